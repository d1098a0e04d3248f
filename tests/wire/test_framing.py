"""Start lines, header sections and body lengths: what RFC 9112 has a strict reader accept, and nothing else."""

from __future__ import annotations

import h11
import httptools
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.errors import GatewayError
from proxy.wire.framing import (
    Limits,
    comparable,
    content_length,
    header_section,
    is_chunked,
    request_line,
    status_line,
    tokens,
)

LIMITS = Limits(target=100)

REQUEST_LINES = [
    (b"GET / HTTP/1.1", ("GET", b"/", 1)),
    (b"GET / HTTP/1.0", ("GET", b"/", 0)),
    (b"LIST /v1/secret HTTP/1.1", ("LIST", b"/v1/secret", 1)),  # llhttp does not know Vault's method
    (b"M-SEARCH * HTTP/1.1", ("M-SEARCH", b"*", 1)),
    (b"OPTIONS * HTTP/1.1", ("OPTIONS", b"*", 1)),
    (b"GET http://a.test/x?q HTTP/1.1", ("GET", b"http://a.test/x?q", 1)),
    (b"CONNECT a.test:443 HTTP/1.1", ("CONNECT", b"a.test:443", 1)),
    (b"GET /%2e%2e/a%2Fb;c HTTP/1.1", ("GET", b"/%2e%2e/a%2Fb;c", 1)),
]


@pytest.mark.parametrize(("line", "parts"), REQUEST_LINES)
def test_a_request_line_keeps_its_target_bytes(line: bytes, parts: tuple[str, bytes, int]) -> None:
    assert request_line(line, LIMITS) == parts


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"GET",
        b"GET /",  # HTTP/0.9
        b"GET /1",  # llhttp takes it for version 0.9
        b"GET / HTTP/2.0",  # llhttp accepts it
        b"GET / HTTP/1.2",
        b"GET / HTTP/1.10",
        b"GET / HTTP/3.0",
        b"GET / RTSP/1.0",  # llhttp reports 1.0
        b"GET / http/1.1",
        b"GET / HTTP/1.1 ",
        b" GET / HTTP/1.1",
        b"GET  / HTTP/1.1",  # llhttp accepts two blanks
        b"GET /  HTTP/1.1",
        b"GET\t/ HTTP/1.1",
        b"GET /a b HTTP/1.1",
        b"GET /\x00 HTTP/1.1",
        b"GET /\x7f HTTP/1.1",
        b"GET /\xc3\xa9 HTTP/1.1",
        b"G(T / HTTP/1.1",
        b"get / HTTP/1.1",
        b"dELETE / HTTP/1.1",
        b"GET / HTTP/1.1\rX",
        b"A" * 65 + b" / HTTP/1.1",
    ],
)
def test_a_request_line_of_any_other_form_is_refused(line: bytes) -> None:
    with pytest.raises(GatewayError) as refusal:
        request_line(line, LIMITS)
    assert (refusal.value.code.name, refusal.value.status) == ("malformed_request", 400)


@pytest.mark.parametrize("line", [b"GET /" + b"a" * 100 + b" HTTP/1.1", b"GET " + b"a" * 200])
def test_a_target_beyond_the_limit_is_414(line: bytes) -> None:
    with pytest.raises(GatewayError) as refusal:
        request_line(line, LIMITS)
    assert refusal.value.status == 414


def test_a_target_of_exactly_the_limit_passes() -> None:
    assert request_line(b"GET /" + b"a" * 99 + b" HTTP/1.1", LIMITS)[1] == b"/" + b"a" * 99


def test_the_preface_of_http_2_is_named() -> None:
    with pytest.raises(GatewayError, match="HTTP/2") as refusal:
        request_line(b"PRI * HTTP/2.0", LIMITS)
    assert refusal.value.code.name == "protocol_unsupported"


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        (b"HTTP/1.1 200 OK", (200, b"OK", 1)),
        (b"HTTP/1.0 404 Not Found", (404, b"Not Found", 0)),
        (b"HTTP/1.1 200 ", (200, b"", 1)),
        (b"HTTP/1.1 200", (200, b"", 1)),  # RFC 9112 section 4: the blank is due, but seen missing
        (b"HTTP/1.1 599 \xc3\xa9t\xe9", (599, b"\xc3\xa9t\xe9", 1)),
        (b"HTTP/1.1 200 " + b"r" * 1024, (200, b"r" * 1024, 1)),
    ],
)
def test_a_status_line_is_taken_apart(line: bytes, parts: tuple[int, bytes, int]) -> None:
    assert status_line(line) == parts


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"200 OK",
        b"ICY 200 OK",
        b"HTTP/2.0 200 OK",
        b"HTTP/1.1  200 OK",
        b"HTTP/1.1 20 OK",
        b"HTTP/1.1 2000 OK",
        b"HTTP/1.1 099 OK",
        b"HTTP/1.1 200 O\x0bK",  # llhttp accepts it
        b"HTTP/1.1 200 O\x00K",
        b"HTTP/1.1 200 O\rK",
        b"HTTP/1.1 200 O\x7fK",
        b"HTTP/1.1 200 " + b"r" * 1025,  # llhttp accepts a megabyte
    ],
)
def test_a_status_line_of_any_other_form_is_the_providers_fault(line: bytes) -> None:
    with pytest.raises(GatewayError) as refusal:
        status_line(line)
    assert refusal.value.code.name == "upstream_protocol"


@pytest.mark.parametrize(
    ("section", "lines"),
    [
        (b"\r\n", []),
        (b"A: b\r\n\r\n", [(b"A", b"b")]),
        (b"A:b\r\n\r\n", [(b"A", b"b")]),
        (b"A:\r\n\r\n", [(b"A", b"")]),
        (b"X: v \t \r\n\r\n", [(b"X", b"v")]),  # llhttp keeps trailing blanks
        (b"X: \t v\r\n\r\n", [(b"X", b"v")]),
        (b"X: a  b\tc\r\n\r\n", [(b"X", b"a  b\tc")]),
        (b"a: 1\r\nA: 2\r\na: 3\r\n\r\n", [(b"a", b"1"), (b"A", b"2"), (b"a", b"3")]),
        (b"X: \xe9\xff\r\n\r\n", [(b"X", b"\xe9\xff")]),
        (b"Connection: upgrade\r\nUpgrade: h2c\r\n\r\n", [(b"Connection", b"upgrade"), (b"Upgrade", b"h2c")]),
        (b"Content-Length: 5\r\n\r\n", [(b"Content-Length", b"5")]),
        (b"Transfer-Encoding: chunked\r\n\r\n", [(b"Transfer-Encoding", b"chunked")]),
    ],
)
def test_header_lines_come_out_in_order_and_spelling(section: bytes, lines: list[tuple[bytes, bytes]]) -> None:
    assert header_section(section) == lines


@pytest.mark.parametrize(
    "section",
    [
        b"A : b\r\n\r\n",
        b" A: b\r\n\r\n",
        b"A: b\r\n c\r\n\r\n",  # obs-fold
        b"A: b\nB: c\r\n\r\n",
        b"A: b\r\n\nB: c\r\n\r\n",
        b"A: b\rc\r\n\r\n",
        b"A: b\r\r\n\r\n",
        b"A: b\x00\r\n\r\n",
        b"A: b\x01\r\n\r\n",
        b"A: b\x7f\r\n\r\n",
        b"A\r\n\r\n",
        b": b\r\n\r\n",
        b"A\xe9: b\r\n\r\n",
        b"A B: c\r\n\r\n",
        b"A(: c\r\n\r\n",
        b"Content-Length: +5\r\n\r\n",
        b"Content-Length: 5, 5\r\n\r\n",
        b"Content-Length: 5\r\nContent-Length: 5\r\n\r\n",
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"Transfer-Encoding: xchunked\r\n\r\n",  # llhttp says so only when the section is over
        b"Transfer-Encoding: identity\r\n\r\n",
    ],
)
def test_a_malformed_header_section_is_refused(section: bytes) -> None:
    assert header_section(section) is None


section_bytes = st.lists(
    st.sampled_from(
        [b"A", b"Host", b"Content-Length", b"Transfer-Encoding", b": ", b":", b" ", b"\t", b"5", b"chunked", b"\r\n"]
    )
    | st.sampled_from(
        [b"\n", b"\r", b"\x00", b"\x7f", b"\xe9", b"upgrade", b"Connection", b"Upgrade", b",", b"x", b"_", b"("]
    ),
    max_size=14,
).map(b"".join) | st.binary(max_size=40)


class _Heard:
    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.messages = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value.strip(b" \t")))

    def on_message_begin(self) -> None:
        self.messages += 1


@given(section_bytes)
@example(b"A: b\r\n\r\nGET / HTTP/1.1\r\nB: c")
@settings(max_examples=300, deadline=None)
def test_what_passes_means_one_message_of_the_same_lines_to_other_parsers(content: bytes) -> None:
    section = content.partition(b"\r\n\r\n")[0].removeprefix(b"\r\n")
    section = section + b"\r\n\r\n" if section else b"\r\n"
    lines = header_section(section)
    if lines is None:
        return
    heard = _Heard()
    parser = httptools.HttpRequestParser(heard)
    try:
        parser.feed_data(b"POST / HTTP/1.1\r\n" + section)
    except httptools.HttpParserUpgrade:
        pass
    assert (heard.messages, heard.headers) == (1, lines)
    if any(name.lower() in (b"host", b"content-length", b"transfer-encoding") for name, _ in lines):
        return  # h11 judges these as a whole message; our own judgement of them is tested in test_request_head
    reader = h11.Connection(h11.SERVER)
    reader.receive_data(b"GET / HTTP/1.1\r\nHost: h\r\n" + section)
    event = reader.next_event()
    assert isinstance(event, h11.Request)
    assert event.headers.raw_items()[1:] == lines


@pytest.mark.parametrize(
    ("values", "length"), [([], None), ([b"0"], 0), ([b"5"], 5), ([b"999999999999999999"], 999_999_999_999_999_999)]
)
def test_content_length_is_plain_digits(values: list[bytes], length: int | None) -> None:
    assert content_length(values) == length


@pytest.mark.parametrize(
    "values",
    [
        [b""],
        [b"+5"],
        [b"-1"],
        [b"005"],  # llhttp accepts leading zeros
        [b"00"],
        [b"0x5"],
        [b"5 "],
        [b"5,5"],
        [b"5.0"],
        [b"1_000"],
        ["５".encode()],
        [b"1000000000000000000"],
        [b"5", b"5"],
        [b"5", b"6"],
    ],
)
def test_any_other_content_length_is_refused(values: list[bytes]) -> None:
    with pytest.raises(ValueError, match="Content-Length"):
        content_length(values)


@pytest.mark.parametrize(("values", "chunked"), [([], False), ([b"chunked"], True), ([b"Chunked"], True)])
def test_the_one_transfer_coding_is_chunked(values: list[bytes], chunked: bool) -> None:
    assert is_chunked(values) is chunked


@pytest.mark.parametrize(
    "values",
    [
        [b""],
        [b"gzip"],
        [b"identity"],
        [b"gzip, chunked"],  # llhttp accepts it
        [b"chunked, gzip"],
        [b"chunked, chunked"],
        [b"chunked", b"chunked"],
        [b"xchunked"],
        [b"chunked;q=1"],
        [b"\x0bchunked"],
    ],
)
def test_every_other_transfer_coding_is_refused(values: list[bytes]) -> None:
    with pytest.raises(ValueError, match="Transfer-Encoding"):
        is_chunked(values)


def test_list_members_are_compared_without_case_or_blanks() -> None:
    assert tokens([b"Keep-Alive,\tCLOSE ,", b", x"]) == {b"keep-alive", b"close", b"x"}
    assert tokens([b" , "]) == frozenset()


def test_names_compare_as_gateways_behind_cgi_would_read_them() -> None:
    assert comparable(b"Content_LENGTH") == b"content-length"


@given(st.binary(max_size=60))
@settings(max_examples=200, deadline=None)
def test_start_lines_raise_nothing_but_their_documented_error(line: bytes) -> None:
    for judge in (lambda: request_line(line, LIMITS), lambda: status_line(line)):
        try:
            judge()
        except GatewayError as refusal:
            assert refusal.code.name in ("malformed_request", "upstream_protocol", "protocol_unsupported")
