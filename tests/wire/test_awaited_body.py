"""A body that is waited for before anybody takes it: it stays with the connection, bounded."""

from __future__ import annotations

import pytest

from proxy.wire.server_connection import EARLY_LIMIT, ServerConnection
from tests.wire.recording import RecordingHop, RecordingService, RecordingTransport

HEAD = b"POST /2 HTTP/1.1\r\nHost: a\r\n"
MOST = 100_000


class Waiting(RecordingHop):
    """Waits for the whole body, and takes it when it has come."""

    def __init__(self, connection: ServerConnection) -> None:
        super().__init__(connection)
        self.connection = connection
        self.told = 0
        self.waits = connection.await_body(MOST, self.then)

    def then(self) -> None:
        self.told += 1
        self.seen = self.connection.whole_body


def received(*pieces: bytes) -> tuple[Waiting, ServerConnection, RecordingTransport]:
    hops: list[Waiting] = []
    service = RecordingService(lambda head, connection: hops.append(Waiting(connection)))
    connection, transport = ServerConnection(service), RecordingTransport()
    connection.connection_made(transport)
    for piece in pieces:
        connection.data_received(piece)
    return hops[0], connection, transport


async def test_a_whole_body_needs_no_waiting() -> None:
    for head in (b"Content-Length: 5\r\n\r\nhello", b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"):
        hop, connection, _ = received(HEAD + head)
        assert (hop.waits, connection.whole_body, hop.told) == (False, b"hello", 0)
        assert connection.take_body() == b"hello"
        assert connection.whole_body is None


@pytest.mark.parametrize(
    "pieces",
    [
        (HEAD + b"Content-Length: 5\r\n\r\n", b"hel", b"lo"),
        (HEAD + b"Content-Length: 5\r\n\r\nhe", b"lloGET /next HTTP/1.1\r\nHost: a\r\n\r\n"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"5\r\nhello\r\n", b"0\r\n\r\n"),
    ],
)
async def test_the_call_is_told_once_when_the_body_is_whole(pieces: tuple[bytes, ...]) -> None:
    hop, connection, _ = received(*pieces)
    assert (hop.waits, hop.told, hop.seen) == (True, 1, b"hello")
    assert hop.body == b""
    assert connection.take_body() == b"hello"


async def test_more_than_is_waited_for_is_told_and_kept() -> None:
    body = b"x" * (MOST + 1)
    hop, connection, transport = received(
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"%x\r\n" % (len(body) + 9), body
    )
    assert (hop.told, hop.seen) == (1, None)
    assert transport.paused
    assert connection.take_body() == body
    assert not transport.paused


async def test_a_length_beyond_the_bound_is_not_waited_for() -> None:
    hop, connection, _ = received(HEAD + b"Content-Length: %d\r\n\r\n" % (MOST + 1), b"x" * 10)
    assert (hop.waits, hop.told) == (False, 0)
    assert connection.take_body() == b"x" * 10


async def test_reading_goes_on_beyond_what_is_kept_unasked() -> None:
    hop, _, transport = received(HEAD + b"Content-Length: 90000\r\n\r\n", b"x" * (EARLY_LIMIT + 1))
    assert not transport.paused
    assert hop.told == 0


async def test_a_client_that_waits_is_invited_once() -> None:
    hop, connection, transport = received(HEAD + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    assert transport.taken() == b"HTTP/1.1 100 Continue\r\n\r\n"
    connection.data_received(b"ok")
    assert (hop.told, hop.seen, transport.taken()) == (1, b"ok", b"")


async def test_a_fault_or_a_client_that_leaves_ends_the_waiting() -> None:
    hop, connection, _ = received(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"zz\r\n")
    assert (hop.told, hop.fault is not None) == (0, True)
    hop, connection, _ = received(HEAD + b"Content-Length: 5\r\n\r\nhe")
    connection.connection_lost(None)
    assert (hop.told, hop.gone, connection.service.buffered.used) == (0, 1, 0)


async def test_another_body_takes_its_place() -> None:
    _, connection, _ = received(HEAD + b"Content-Length: 5\r\n\r\n", b"hello")
    connection.replace_body(b"other body")
    assert connection.service.buffered.used == 10
    assert connection.take_body() == b"other body"
    assert connection.service.buffered.used == 0
