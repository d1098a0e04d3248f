"""What a provider's reply head says, and which are not passed on."""

from __future__ import annotations

import pytest

from proxy.errors import GatewayError
from proxy.wire.framing import Limits
from proxy.wire.reply_head import ReplyHead, reply_head

LIMITS = Limits(lines=8)


def head_of(*lines: str, line: str = "HTTP/1.1 200 OK") -> ReplyHead:
    return reply_head("\r\n".join([line, *lines, "", ""]).encode("latin-1"), LIMITS, None)


def test_lines_keep_order_case_and_repeats() -> None:
    head = head_of("SOAPAction: a", "Set-Cookie: b", "ETag: c", "set-cookie: d")
    assert head.section.kept == [(b"SOAPAction", b"a"), (b"Set-Cookie", b"b"), (b"ETag", b"c"), (b"set-cookie", b"d")]


@pytest.mark.parametrize(
    "line",
    [
        "Connection: close",
        "Keep-Alive: timeout=5",
        "Proxy-Connection: keep-alive",
        "Proxy-Authenticate: Basic",
        "Proxy-Authentication-Info: x",
        "TE: trailers",
        "Upgrade: h2",
        'Alt-Svc: h3=":443"',
        "Sluicegate-Error-Kind: auth",
        "SLUICEGATE_CALL_ID: forged",
    ],
)
def test_lines_of_the_other_hop_and_in_our_name_are_dropped(line: str) -> None:
    assert head_of(line, "X: y").section.kept == [(b"X", b"y")]


def test_a_header_named_by_connection_is_dropped_but_never_the_framing() -> None:
    section = head_of("Connection: X-A, Content-Length", "x-a: 1", "Content-Length: 5").section
    assert section.kept == [(b"Content-Length", b"5")]
    assert section.length == 5


@pytest.mark.parametrize(
    "lines",
    [
        ["Content-Length: 5", "Transfer-Encoding: chunked"],
        ["Content-Length: 5", "Content-Length: 5"],
        ["Content-Length: 5, 5"],
        ["Content-Length: -1"],
        ["Transfer-Encoding: gzip, chunked"],
        ["Transfer-Encoding: chunked, gzip"],
        ["Transfer-Encoding: gzip"],
        ["Transfer-Encoding: identity"],
        ["X : y"],
        ["X: a\x00b"],
        ["X: a", " folded"],
        ["X: a\nY: b"],
        [f"X-{at}: y" for at in range(9)],
    ],
)
def test_a_reply_that_could_be_framed_in_two_ways_is_the_providers_fault(lines: list[str]) -> None:
    with pytest.raises(GatewayError) as refusal:
        head_of(*lines)
    assert refusal.value.code.name == "upstream_protocol"


def test_chunked_does_not_exist_in_http_1_0() -> None:
    with pytest.raises(GatewayError):
        head_of("Transfer-Encoding: chunked", line="HTTP/1.0 200 OK")


def test_what_is_noted_of_a_reply() -> None:
    section = head_of("Connection: Keep-Alive", "Content-Encoding: GZIP", "Location: /x").section
    assert (section.keep_alive, section.close, section.coding, section.pointing) == (True, False, b"gzip", True)
    plain = head_of("Transfer-Encoding: Chunked").section
    assert (plain.chunked, plain.length, plain.pointing, plain.coding) == (True, None, False, b"")


def test_the_values_of_upgrade_are_kept_apart_for_a_101() -> None:
    assert head_of("Upgrade: websocket", "Connection: upgrade").section.upgrade == (b"websocket",)


def test_what_equals_the_last_head_is_not_parsed_again() -> None:
    first = reply_head(b"HTTP/1.1 200 OK\r\nX: y\r\n\r\n", LIMITS, None)
    assert reply_head(b"HTTP/1.1 200 OK\r\nX: y\r\n\r\n", LIMITS, first) is first
    other = reply_head(b"HTTP/1.1 404 No\r\nX: y\r\n\r\n", LIMITS, first)
    assert other.section is first.section
    assert other.status == 404
