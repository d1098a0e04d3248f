"""The reply on its way to the client: framed truthfully, masked, in few writes."""

from __future__ import annotations

import gzip

import h11
import pytest

from proxy.errors import GatewayError
from proxy.model import Call, Destination, HeaderSection, Place, Presented
from proxy.responses.delivery import Delivery
from proxy.responses.masking import Masks
from proxy.wire.framing import Limits
from proxy.wire.reply_head import ReplyHead, reply_head
from proxy.wire.server_connection import ServerConnection
from tests.wire.recording import RecordingService, RecordingTransport

SECRET = b"sk-live-0123456789"


def head_of(*lines: str, line: str = "HTTP/1.1 200 OK") -> ReplyHead:
    return reply_head("\r\n".join([line, *lines, "", ""]).encode("latin-1"), Limits(), None)


class Delivered:
    """A delivery over a client connection that asked with `asked`."""

    def __init__(
        self, method: str = "GET", minor: int = 1, asked: str = "", masks: Masks | None = None, segment: str = ""
    ) -> None:
        self.method = method
        self.transport = RecordingTransport()
        self.connection = ServerConnection(RecordingService())
        self.connection.connection_made(self.transport)
        self.connection.data_received(f"{method} / HTTP/1.{minor}\r\nHost: a\r\n{asked}\r\n".encode())
        destination = Destination("https", "api.x", 443)
        place = Place(destination, b"/", "/", segment=segment)
        call = Call("id-1", "base-url", method, destination, place, HeaderSection(), 0.0, minor, Presented())
        self.delivery = Delivery(self.connection, call)
        self.delivery.mask(masks)

    @property
    def wire(self) -> bytes:
        return bytes(self.transport.written)

    def relay(self, head: ReplyHead, *payloads: bytes, bodiless: bool = False) -> bytes:
        self.delivery.head(head, bodiless, bool(payloads))
        for payload in payloads:
            self.delivery.body(payload)
        self.delivery.end([])
        return self.wire


def read(wire: bytes, method: str = "GET", eof: bool = False) -> tuple[h11.Response, bytes]:
    """The one reply that a client makes of the bytes."""
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method=method, target="/", headers=[("Host", "a")]))
    client.send(h11.EndOfMessage())
    client.receive_data(wire)
    if eof:
        client.receive_data(b"")
    head, body = client.next_event(), b""
    assert isinstance(head, h11.Response)
    while isinstance(event := client.next_event(), h11.Data):
        body += bytes(event.data)
    assert isinstance(event, h11.EndOfMessage)
    return head, body


@pytest.mark.parametrize(
    ("lines", "framing"),
    [
        (["Content-Length: 10"], (b"content-length", b"10")),
        (["Transfer-Encoding: chunked"], (b"transfer-encoding", b"chunked")),
        ([], (b"transfer-encoding", b"chunked")),  # delimited by its end there, chunked here
    ],
)
async def test_a_body_reaches_an_http_1_1_client_whole_and_the_connection_stays(
    lines: list[str], framing: tuple[bytes, bytes]
) -> None:
    delivered = Delivered()
    head, body = read(delivered.relay(head_of(*lines), b"hello", b"world"))
    assert body == b"helloworld"
    assert framing in list(head.headers)
    assert delivered.delivery.keep
    assert b"connection" not in dict(head.headers)
    assert (delivered.delivery.bytes_out, delivered.delivery.status) == (10, 200)


@pytest.mark.parametrize("lines", [["Content-Length: 10"], ["Transfer-Encoding: chunked"], []])
async def test_an_http_1_0_client_never_gets_chunks(lines: list[str]) -> None:
    delivered = Delivered(minor=0, asked="Connection: keep-alive\r\n")
    wire = delivered.relay(head_of(*lines), b"hello", b"world")
    head, _, body = wire.partition(b"\r\n\r\n")
    assert body == b"helloworld"
    assert b"chunked" not in head
    assert (b"Connection: keep-alive" in head) is bool(lines and "Length" in lines[0]) is delivered.delivery.keep
    assert (b"Connection: close" in head) is not delivered.delivery.keep


async def test_lines_keep_their_order_and_spelling_and_ours_follow() -> None:
    wire = Delivered().relay(head_of("SOAPAction: a", "set-cookie: b", "Set-Cookie: c", "Content-Length: 0"))
    assert wire == (
        b"HTTP/1.1 200 OK\r\nSOAPAction: a\r\nset-cookie: b\r\nSet-Cookie: c\r\nContent-Length: 0\r\n"
        b"Sluicegate-Call-Id: id-1\r\n\r\n"
    )


async def test_an_error_of_the_providers_is_marked_as_such() -> None:
    wire = Delivered().relay(head_of("Content-Length: 0", line="HTTP/1.1 429 Slow"))
    assert b"Sluicegate-Error-Kind: rate_limit\r\nSluicegate-Error-Source: provider\r\n" in wire


async def test_a_client_that_asked_for_close_is_told_so() -> None:
    delivered = Delivered(asked="Connection: close\r\n")
    assert b"\r\nConnection: close\r\n" in delivered.relay(head_of("Content-Length: 0"))
    assert not delivered.delivery.keep


async def test_the_head_leaves_with_the_body_bytes_that_came_with_it() -> None:
    delivered = Delivered()
    delivered.delivery.head(head_of("Content-Length: 5"), False, True)
    assert (delivered.wire, delivered.delivery.started) == (b"", False)
    delivered.delivery.body(b"hello")
    assert delivered.wire.endswith(b"\r\n\r\nhello")
    assert delivered.delivery.started


async def test_the_head_leaves_at_once_when_nothing_came_with_it() -> None:
    delivered = Delivered()
    delivered.delivery.head(head_of("Transfer-Encoding: chunked"), False, False)
    assert delivered.wire.endswith(b"\r\n\r\n")


async def test_an_empty_piece_lets_the_head_go_and_ends_nothing() -> None:
    delivered = Delivered()
    delivered.delivery.head(head_of("Transfer-Encoding: chunked"), False, True)
    delivered.delivery.body(b"")
    assert delivered.wire.endswith(b"\r\n\r\n")
    delivered.delivery.end([])
    assert read(delivered.wire)[1] == b""


@pytest.mark.parametrize(
    ("method", "head"),
    [
        ("HEAD", head_of("Content-Length: 5")),
        ("HEAD", head_of("Transfer-Encoding: chunked")),
        ("GET", head_of("Content-Length: 5", line="HTTP/1.1 304 Not Modified")),
        ("GET", head_of(line="HTTP/1.1 204 No Content")),
    ],
)
async def test_a_reply_without_body_ends_with_its_head_and_keeps_its_lines(method: str, head: ReplyHead) -> None:
    delivered = Delivered(method)
    wire = delivered.relay(head, bodiless=True)
    assert wire.endswith(b"\r\n\r\n")
    assert wire.count(b"\r\n\r\n") == 1
    for name, value in head.section.kept:
        assert name + b": " + value in wire
    assert delivered.delivery.keep


@pytest.mark.parametrize("status", ["101 Switching Protocols", "204 No Content"])
@pytest.mark.parametrize("line", ["Content-Length: 5", "Transfer-Encoding: chunked"])
async def test_a_101_and_a_204_say_nothing_of_a_body(status: str, line: str) -> None:
    wire = Delivered().relay(head_of(line, line=f"HTTP/1.1 {status}"), bodiless=True)
    assert line.encode() not in wire


# Interim replies.


async def test_an_interim_reply_is_passed_on_without_framing_or_connection_lines() -> None:
    delivered = Delivered()
    delivered.delivery.interim(
        head_of("Connection: close", "Link: </x>", "Content-Length: 5", line="HTTP/1.1 103 Early Hints")
    )
    assert delivered.wire == b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    assert not delivered.delivery.started


async def test_an_http_1_0_client_gets_no_interim_reply() -> None:
    delivered = Delivered(minor=0)
    delivered.delivery.interim(head_of(line="HTTP/1.1 100 Continue"))
    assert delivered.wire == b""


# Trailers.


async def test_trailers_follow_the_last_chunk() -> None:
    delivered = Delivered()
    delivered.delivery.head(head_of("Transfer-Encoding: chunked"), False, False)
    delivered.delivery.end([(b"grpc-status", b"0")])
    assert delivered.wire.endswith(b"\r\n\r\n0\r\ngrpc-status: 0\r\n\r\n")


# The credential.

MASKS = Masks((SECRET,))
COVER = b"*" * len(SECRET)


async def test_the_credential_is_covered_in_reason_headers_body_and_trailers() -> None:
    delivered = Delivered(masks=MASKS)
    echo = SECRET.decode()
    delivered.delivery.interim(head_of(f"X-Echo: {echo}", line=f"HTTP/1.1 103 {echo}"))
    head = head_of(f"Location: /?k={echo}", "Transfer-Encoding: chunked", line=f"HTTP/1.1 400 no {echo}")
    delivered.delivery.head(head, False, True)
    delivered.delivery.body(b"you sent " + SECRET[:9])
    delivered.delivery.body(SECRET[9:])
    delivered.delivery.end([(b"X-Sum", SECRET)])
    assert SECRET not in delivered.wire
    assert delivered.wire.count(COVER) == 6
    assert delivered.delivery.hits == 6
    assert delivered.delivery.bytes_out == len(b"you sent " + SECRET)


@pytest.mark.parametrize("at", range(len(SECRET) + 1))
async def test_a_body_of_known_length_stays_as_long_as_it_says(at: int) -> None:
    delivered = Delivered(masks=MASKS)
    payload = b"a" + SECRET + b"b"
    wire = delivered.relay(head_of(f"Content-Length: {len(payload)}"), payload[: at + 1], payload[at + 1 :])
    assert read(wire)[1] == b"a" + COVER + b"b"


async def test_a_body_that_ends_in_what_could_begin_the_credential_arrives_whole() -> None:
    for lines in (["Content-Length: 9"], ["Transfer-Encoding: chunked"]):
        delivered = Delivered(masks=MASKS)
        assert read(delivered.relay(head_of(*lines), b"hi ", SECRET[:6]))[1] == b"hi " + SECRET[:6]
        assert delivered.delivery.bytes_out == 9


async def test_a_compressed_body_that_holds_the_credential_is_the_providers_fault() -> None:
    delivered = Delivered(masks=MASKS)
    packed = gzip.compress(b"echo " + SECRET)
    delivered.delivery.head(head_of("Content-Encoding: gzip", f"Content-Length: {len(packed)}"), False, True)
    with pytest.raises(GatewayError) as refusal:
        delivered.delivery.body(packed)
    assert refusal.value.code.name == "upstream_protocol"
    assert not delivered.delivery.started
    delivered.delivery.problem(refusal.value)
    head, body = read(delivered.wire)
    assert head.status_code == 502
    assert b"upstream_protocol" in body


async def test_a_remembered_header_block_is_not_used_for_another_credential() -> None:
    head = head_of("X-Echo: sk-other-0123456789", f"X-More: {SECRET.decode()}", "Content-Length: 0")
    first = Delivered(masks=MASKS).relay(head)
    second = Delivered(masks=Masks((b"sk-other-0123456789",))).relay(head)
    third = Delivered().relay(head)
    assert (SECRET in first, SECRET in second, SECRET in third) == (False, True, True)
    assert (b"sk-other-0" in first, b"sk-other-0" in second) == (True, False)


# Pointing back.


async def test_urls_point_back_only_in_base_url_mode() -> None:
    head = head_of("Location: https://api.x/next", "Content-Length: 0", line="HTTP/1.1 302 Found")
    assert b"Location: /x/next\r\n" in Delivered(segment="x").relay(head)
    assert b"Location: https://api.x/next\r\n" in Delivered().relay(head)


# Refusals.


async def test_a_refusal_takes_the_place_of_a_head_that_has_not_left() -> None:
    delivered = Delivered()
    delivered.delivery.head(head_of("Content-Length: 5"), False, True)
    delivered.delivery.problem(GatewayError("upstream_timeout", "x"), provider="slack")
    head, body = read(delivered.wire)
    assert (head.status_code, delivered.delivery.status) == (504, 504)
    assert b'"provider":"slack"' in body
    assert delivered.delivery.bytes_out == len(delivered.wire)
    assert delivered.delivery.keep


async def test_a_cut_ends_the_connection_without_an_end() -> None:
    delivered = Delivered()
    delivered.delivery.head(head_of("Transfer-Encoding: chunked"), False, False)
    delivered.delivery.body(b"half")
    delivered.delivery.cut()
    assert delivered.transport.aborted
    assert not delivered.wire.endswith(b"0\r\n\r\n")
