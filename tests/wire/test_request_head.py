"""What a request's head says, and which heads nobody may read in two ways."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.errors import GatewayError
from proxy.model import RequestHead
from proxy.wire.framing import Limits
from proxy.wire.request_head import request_head

LIMITS = Limits()


def head_of(*lines: str, line: str = "GET / HTTP/1.1", host: bool = True) -> RequestHead:
    section = (["Host: a.test"] if host else []) + list(lines)
    raw = "\r\n".join([line, *section, "", ""]).encode("latin-1")
    return request_head(raw, LIMITS, None)


def status_of(*lines: str, line: str = "GET / HTTP/1.1", host: bool = True) -> int:
    with pytest.raises(GatewayError) as refusal:
        head_of(*lines, line=line, host=host)
    assert refusal.value.code.name == "malformed_request"
    return refusal.value.status


def kept(head: RequestHead) -> list[tuple[bytes, bytes]]:
    return [(name, value) for _, name, value in head.section.kept]


def test_the_parts_of_a_request() -> None:
    head = head_of("X-One: 1", "x-ONE:2", line="POST /a?b HTTP/1.1")
    assert (head.line.method, head.line.target, head.line.minor) == ("POST", b"/a?b", 1)
    assert kept(head) == [(b"Host", b"a.test"), (b"X-One", b"1"), (b"x-ONE", b"2")]
    assert [compared for compared, _, _ in head.section.kept] == [b"host", b"x-one", b"x-one"]
    assert head.section.host == b"a.test"


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["Host: a.test", "Host: a.test"],
        ["Host: a.test", "Host: b.test"],
        ["Host: a.test", "HOST: a.test"],
    ],
)
def test_an_http_1_1_request_has_one_host(lines: list[str]) -> None:
    assert status_of(*lines, host=False) == 400


def test_an_http_1_0_request_may_come_without_host() -> None:
    head = head_of(line="GET / HTTP/1.0", host=False)
    assert (head.line.minor, head.section.host) == (0, None)


@pytest.mark.parametrize(
    "lines",
    [
        ["Content-Length: 5", "Content-Length: 5"],
        ["Content-Length: 5", "Content-Length: 6"],
        ["Content-Length: 5, 5"],
        ["Content-Length: +5"],
        ["Content-Length: 005"],
        ["Content-Length: "],
        ["Content-Length: 99999999999999999999"],
        ["Content-Length: 5", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked", "Content-Length: 5"],
        ["Transfer-Encoding: gzip, chunked"],
        ["Transfer-Encoding: chunked, gzip"],
        ["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: identity"],
        ["Transfer-Encoding: xchunked"],
        ["Transfer-Encoding:\x0bchunked"],
        ["Transfer_Encoding: chunked"],
        ["Content_Length: 5"],
        ["Content_length: 5", "Content-Length: 5"],
        ["Content-Type: a/b", "Content-Type: a/c"],
        ["Content-Type: a/b", "content-type: a/b"],
        ["Authorization: Bearer a", "Authorization: Bearer b"],
        ["Proxy-Authorization: Basic a", "Proxy-Authorization: Basic b"],
        ["Sluicegate-Session: a", "sluicegate-session: b"],
        ["X-HTTP-Method-Override: DELETE"],
        ["X-Method-Override: DELETE"],
        ["X_HTTP_Method: DELETE"],
        ["Expect: 200-maybe"],
        ["Expect: 100-continue", "Expect: 100-continue"],
        ["X: a", " folded"],
        ["X : a"],
        ["X: a\x00b"],
        ["X: a\x01b"],
        ["X: a\rb"],
        ["X\xe9: a"],
    ],
)
def test_a_head_that_two_readers_could_take_differently_is_refused(lines: list[str]) -> None:
    assert status_of(*lines, line="POST / HTTP/1.1") == 400


def test_transfer_encoding_does_not_exist_in_http_1_0() -> None:
    assert status_of("Transfer-Encoding: chunked", line="POST / HTTP/1.0") == 400


@pytest.mark.parametrize("body", ["Content-Length: 5", "Content-Length: 0", "Transfer-Encoding: chunked"])
def test_connect_takes_no_body(body: str) -> None:
    assert status_of(body, line="CONNECT a.test:443 HTTP/1.1") == 400


def test_trace_is_refused() -> None:
    assert status_of(line="TRACE / HTTP/1.1") == 400


def test_more_lines_than_the_limit_are_431() -> None:
    assert status_of(*[f"X-{at}: y" for at in range(LIMITS.lines)]) == 431
    assert head_of(*[f"X-{at}: y" for at in range(LIMITS.lines - 1)]).section.host == b"a.test"


@pytest.mark.parametrize(
    ("line", "lines", "close", "keep_alive"),
    [
        ("GET / HTTP/1.1", [], False, False),
        ("GET / HTTP/1.1", ["Connection: Close"], True, False),
        ("GET / HTTP/1.1", ["Connection: x, close"], True, False),
        ("GET / HTTP/1.1", ["Connection: x", "Connection: close"], True, False),
        ("GET / HTTP/1.1", ["Connection: notclose"], False, False),
        ("GET / HTTP/1.0", ["Connection: keep-alive"], False, True),
        ("GET / HTTP/1.1", ["Proxy-Connection: close"], False, False),
    ],
)
def test_what_the_client_says_of_the_connection(line: str, lines: list[str], close: bool, keep_alive: bool) -> None:
    section = head_of(*lines, line=line).section
    assert (section.close, section.keep_alive) == (close, keep_alive)


HOP_BY_HOP = ["Connection: close", "Keep-Alive: 5", "Proxy-Connection: keep-alive", "Proxy-Authorization: Basic eDp5"]


@pytest.mark.parametrize(
    "line",
    [
        *HOP_BY_HOP,
        "Proxy_Authorization: Basic eDp5",
        "Proxy-Authenticate: Basic",
        "TE: gzip",
        "Upgrade: h2c",
        "HTTP2-Settings: AAMAAABk",
        "Sluicegate-Session: token",
        "Sluicegate-Error-Kind: auth",
        "SLUICEGATE_CURSOR: x",
    ],
)
def test_lines_for_this_hop_and_in_our_name_are_not_kept(line: str) -> None:
    assert kept(head_of(line, "X: y")) == [(b"Host", b"a.test"), (b"X", b"y")]


def test_a_header_named_by_connection_goes_whatever_its_case() -> None:
    head = head_of("Connection: close, X-Api-Key", "x-API-key: a", "X_Api_Key: b", "Y: z")
    assert kept(head) == [(b"Host", b"a.test"), (b"Y", b"z")]


@pytest.mark.parametrize("name", ["Host", "Content-Length"])
def test_connection_cannot_name_what_frames_or_routes_the_message(name: str) -> None:
    head = head_of(f"Connection: {name}", "Content-Length: 5", line="POST / HTTP/1.1")
    assert kept(head) == [(b"Host", b"a.test"), (b"Content-Length", b"5")]


@pytest.mark.parametrize("value", ["trailers", "gzip, trailers", "Trailers"])
def test_of_te_only_trailers_is_kept(value: str) -> None:
    assert kept(head_of("Connection: TE", f"TE: {value}"))[1:] == [(b"TE", b"trailers")]


WEBSOCKET = ["Connection: keep-alive, Upgrade", "Upgrade: WebSocket", "Sec-WebSocket-Key: x"]


def test_an_upgrade_to_websocket_is_kept() -> None:
    head = head_of(*WEBSOCKET)
    assert head.section.websocket
    assert kept(head)[1:] == [
        (b"Sec-WebSocket-Key", b"x"),
        (b"Connection", b"Upgrade"),
        (b"Upgrade", b"websocket"),
    ]


@pytest.mark.parametrize(
    "lines",
    [
        ["Connection: Upgrade", "Upgrade: h2c"],
        ["Connection: Upgrade", "Upgrade: websocket, h2c"],
        ["Connection: Upgrade", "Upgrade: websocket/13"],
        ["Connection: notupgrade", "Upgrade: websocket"],
        ["Upgrade: websocket"],
        ["Connection: Upgrade"],
    ],
)
def test_every_other_upgrade_is_stripped(lines: list[str]) -> None:
    head = head_of(*lines)
    assert not head.section.websocket
    assert kept(head) == [(b"Host", b"a.test")]


@pytest.mark.parametrize(
    ("line", "lines"),
    [
        ("POST / HTTP/1.1", ["Connection: Upgrade", "Upgrade: websocket"]),
        ("GET / HTTP/1.0", ["Connection: Upgrade", "Upgrade: websocket"]),
        ("GET / HTTP/1.1", ["Connection: Upgrade", "Upgrade: websocket", "Content-Length: 28"]),
        ("POST / HTTP/1.1", ["Connection: Upgrade", "Upgrade: h2c", "Content-Length: 28"]),
        ("POST / HTTP/1.1", ["Connection: Upgrade", "Upgrade: h2c", "Transfer-Encoding: chunked"]),
    ],
)
def test_an_upgrade_with_a_body_or_by_another_method_is_refused(line: str, lines: list[str]) -> None:
    assert status_of(*lines, line=line) == 400


def test_what_is_presented_is_noted_and_only_authorization_goes_on() -> None:
    head = head_of("Authorization: Bearer a", "Proxy-Authorization: Basic b", "Sluicegate-Session: c")
    assert head.section.presented[:3] == (b"c", b"Basic b", b"Bearer a")
    assert kept(head)[1:] == [(b"Authorization", b"Bearer a")]


def test_a_value_that_may_hold_a_session_token_is_noted() -> None:
    assert head_of("X: Bearer eyJhbGciOi").section.suspects
    assert head_of("Authorization: Basic YWdlbnQ6dG9rZW4=").section.suspects
    assert not head_of("X: y").section.suspects


def test_expect_is_noted_and_kept() -> None:
    head = head_of("Expect: 100-Continue", "Content-Length: 5", line="PUT / HTTP/1.1")
    assert head.section.expect
    assert (b"Expect", b"100-Continue") in kept(head)


def test_what_equals_the_last_head_is_not_parsed_again() -> None:
    first = request_head(b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n", LIMITS, None)
    same = request_head(b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n", LIMITS, first)
    assert same is first
    other_line = request_head(b"POST /2 HTTP/1.1\r\nHost: a\r\n\r\n", LIMITS, first)
    assert other_line.section is first.section
    assert (other_line.line.method, other_line.line.target) == ("POST", b"/2")
    other_section = request_head(b"GET /1 HTTP/1.1\r\nHost: b\r\n\r\n", LIMITS, first)
    assert other_section.line is first.line
    assert other_section.section.host == b"b"


def test_a_remembered_section_is_judged_with_each_request_line_anew() -> None:
    first = request_head(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n", LIMITS, None)
    with pytest.raises(GatewayError):
        request_head(b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n", LIMITS, first)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["Host", "Content-Length", "Transfer-Encoding", "Connection", "Upgrade", "TE", "X", "X_Y"]),
            st.sampled_from(["a", "5", "chunked", "close", "websocket", "upgrade, x", "", "trailers", "\xe9", "a b"]),
        ),
        max_size=6,
    ),
    st.sampled_from(["GET / HTTP/1.1", "POST / HTTP/1.0", "CONNECT a:1 HTTP/1.1", "GET /\x00 HTTP/1.1", "x"]),
)
@settings(max_examples=300, deadline=None)
def test_any_head_is_taken_or_refused_and_never_framed_in_two_ways(lines: list[tuple[str, str]], line: str) -> None:
    try:
        head = head_of(*[f"{name}: {value}" for name, value in lines], line=line, host=False)
    except GatewayError as refusal:
        assert refusal.code.name == "malformed_request"
        return
    framing = [
        compared for compared, _, _ in head.section.kept if compared in (b"content-length", b"transfer-encoding")
    ]
    assert len(framing) <= 1
    assert head.section.chunked == (framing == [b"transfer-encoding"])
    assert (head.section.length is not None) == (framing == [b"content-length"])
    assert sum(compared == b"host" for compared, _, _ in head.section.kept) == (head.section.host is not None)
