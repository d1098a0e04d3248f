"""TLS over a plain transport: every way to begin, to end and to stop reading, against the standard library."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

import pytest
import trustme

from proxy.wire.tls import READ_SIZE, TlsTransport, peer_has_left, reset
from tests.wire.recording import RecordingTransport, one_by_one

AUTHORITY = trustme.CA()
LEAF = AUTHORITY.issue_cert("a.test")


def server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    LEAF.configure_cert(context)
    return context


def client_context(version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = context.maximum_version = version
    AUTHORITY.configure_trust(context)
    return context


class Above(asyncio.Protocol):
    """The protocol above the layer."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.received = b""
        self.pause_after = -1
        self.half_open = False
        self.transport: TlsTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, TlsTransport)
        self.transport = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.received += data
        if 0 <= self.pause_after <= len(self.received) and self.transport is not None:
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        self.events.append("eof")
        return self.half_open

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost" if exc is None else "broken")

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")


class Pair:
    """Our layer, as server or as client, and a peer of the standard library, joined by memory."""

    def __init__(
        self,
        serve: bool = True,
        context: ssl.SSLContext | None = None,
        version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
    ) -> None:
        self.raw, self.above = RecordingTransport(), Above()
        self.failures: list[Exception | None] = []
        self._to_peer, self._from_peer = ssl.MemoryBIO(), ssl.MemoryBIO()
        name = None if serve else "a.test"
        own = context or (server_context() if serve else client_context(version))
        self.layer = TlsTransport(
            self.raw,
            self.above,
            lambda incoming, outgoing: own.wrap_bio(incoming, outgoing, server_side=serve, server_hostname=name),
            self.failures.append,
        )
        peer = client_context(version) if serve else server_context()
        self.peer = peer.wrap_bio(
            self._to_peer, self._from_peer, server_side=not serve, server_hostname="a.test" if serve else None
        )

    def heard(self) -> None:
        """What our layer wrote reaches the peer."""
        self._to_peer.write(self.raw.taken())

    def said(self) -> bytes:
        """What the peer wrote, on its way to our layer."""
        return self._from_peer.read()

    def attempt(self, step: Callable[[], object]) -> None:
        try:
            step()
        except ssl.SSLWantReadError:
            pass

    def shake(self, deliver: Callable[[bytes], None] | None = None, last: bytes = b"") -> None:
        """Runs the handshake to its end; `last` is written by the peer with its last flight."""
        deliver = deliver or self.layer.data_received
        for _ in range(4):
            self.attempt(self.peer.do_handshake)
            if last and self.peer.version() and self._done:
                self.peer.write(last)
                last = b""
            said = self.said()
            if said:
                deliver(said)
            self.heard()

    @property
    def _done(self) -> bool:
        try:
            self.peer.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def say(self, data: bytes) -> None:
        self.peer.write(data)
        self.layer.data_received(self.said())

    def peer_reads(self) -> bytes:
        self.heard()
        read = b""
        while True:
            try:
                piece = self.peer.read(1 << 20)
            except ssl.SSLWantReadError:
                return read
            if not piece:
                return read + b"<end>"
            read += piece


@pytest.fixture
async def pair() -> Pair:
    joined = Pair()
    joined.shake()
    assert joined.above.events == ["made"]
    return joined


VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("serve", [True, False])
async def test_a_handshake_in_single_bytes_is_one_connection(serve: bool, version: ssl.TLSVersion) -> None:
    joined = Pair(serve, version=version)

    def bytewise(data: bytes) -> None:
        for byte in one_by_one(data):
            joined.layer.data_received(byte)

    if not serve:
        joined.layer.start()
        joined.heard()
    joined.shake(bytewise)
    assert (joined.above.events, joined.failures) == (["made"], [])
    joined.peer.write(b"hello")
    bytewise(joined.said())
    assert joined.above.received == b"hello"


async def test_bytes_that_were_read_before_the_layer_existed_are_fed_to_it() -> None:
    joined = Pair()
    joined.shake(deliver=lambda data: joined.layer.start(data) if not joined.raw.written else None)
    joined.attempt(joined.peer.do_handshake)
    joined.layer.data_received(joined.said())
    assert joined.above.events == ["made"]


async def test_data_that_comes_with_the_last_flight_follows_connection_made() -> None:
    joined = Pair()
    joined.shake(last=b"GET / HTTP/1.1\r\n\r\n")
    assert joined.above.events == ["made"]
    assert joined.above.received == b"GET / HTTP/1.1\r\n\r\n"


async def test_many_records_in_one_segment_are_handed_on_together(pair: Pair) -> None:
    for at in range(10):
        pair.peer.write(b"%d" % at)
    handed: list[bytes] = []
    pair.above.data_received = handed.append  # type: ignore[assignment]
    pair.layer.data_received(pair.said())
    assert handed == [b"0123456789"]


@pytest.mark.parametrize("size", [0, 1, 16_384, 16_385, 5_000_000])
async def test_writes_of_any_size_arrive_whole(pair: Pair, size: int) -> None:
    pair.layer.write(bytes(size))
    assert pair.peer_reads() == bytes(size)


async def test_backpressure_of_the_plain_transport_reaches_the_protocol(pair: Pair) -> None:
    pair.layer.pause_writing()
    pair.layer.resume_writing()
    assert pair.above.events == ["made", "pause", "resume"]


# Ends.


async def test_close_notify_is_the_end_and_closes(pair: Pair) -> None:
    pair.attempt(pair.peer.unwrap)
    pair.layer.data_received(pair.said())
    assert pair.above.events == ["made", "eof"]
    assert pair.raw.closed
    pair.layer.connection_lost(None)
    assert pair.above.events == ["made", "eof", "lost"]


async def test_data_and_close_notify_in_one_segment_come_in_order(pair: Pair) -> None:
    pair.peer.write(b"last")
    pair.attempt(pair.peer.unwrap)
    pair.layer.data_received(pair.said())
    assert (pair.above.received, pair.above.events) == (b"last", ["made", "eof"])


async def test_a_bare_fin_is_no_end(pair: Pair) -> None:
    assert not pair.layer.eof_received()
    pair.layer.connection_lost(None)
    assert pair.above.events == ["made", "lost"]


async def test_a_fin_in_the_middle_of_a_record_is_no_end(pair: Pair) -> None:
    pair.peer.write(b"cut")
    pair.layer.data_received(pair.said()[:-3])
    assert not pair.layer.eof_received()
    pair.layer.connection_lost(None)
    assert (pair.above.received, pair.above.events) == (b"", ["made", "lost"])


async def test_a_reset_is_reported_as_such(pair: Pair) -> None:
    pair.layer.connection_lost(ConnectionResetError())
    assert pair.above.events == ["made", "broken"]


async def test_a_forged_record_aborts(pair: Pair) -> None:
    pair.peer.write(b"secret")
    record = bytearray(pair.said())
    record[-1] ^= 1
    pair.layer.data_received(bytes(record))
    assert pair.raw.aborted
    assert pair.above.received == b""


async def test_after_the_peers_close_notify_the_other_direction_goes_on(pair: Pair) -> None:
    pair.above.half_open = True
    pair.attempt(pair.peer.unwrap)
    pair.layer.data_received(pair.said())
    assert not pair.raw.closed
    pair.layer.write(b"answer")
    pair.heard()
    # The standard library's peer cannot read after unwrap: what matters is that a record left.
    assert not pair.layer.is_closing()


async def test_after_our_close_notify_reading_goes_on(pair: Pair) -> None:
    pair.layer.write(b"bye")
    pair.layer.write_eof()
    assert pair.peer_reads() == b"bye<end>"
    pair.say(b"still here")
    assert pair.above.received == b"still here"
    assert not pair.raw.is_closing()


async def test_closing_says_close_notify_once_and_writes_nothing_after_it(pair: Pair) -> None:
    pair.layer.write(b"bye")
    pair.layer.close()
    pair.layer.close()
    pair.layer.write(b"late")
    assert pair.peer_reads() == b"bye<end>"
    assert pair.raw.closed


async def test_closing_after_a_half_close_says_nothing_more(pair: Pair) -> None:
    pair.layer.write_eof()
    assert pair.peer_reads() == b"<end>"
    pair.layer.close()
    assert pair.raw.written == b""


async def test_aborting_says_no_close_notify(pair: Pair) -> None:
    pair.layer.abort()
    assert (pair.raw.aborted, pair.raw.written) == (True, b"")


# Reading paused.


async def test_what_is_decrypted_when_reading_pauses_waits_for_its_turn(pair: Pair) -> None:
    pair.above.pause_after = 1
    pair.peer.write(bytes(READ_SIZE * 2 + 10))
    pair.layer.data_received(pair.said())
    first = len(pair.above.received)
    assert READ_SIZE <= first < READ_SIZE * 2
    assert pair.raw.paused
    pair.above.pause_after = -1
    pair.layer.resume_reading()
    assert len(pair.above.received) == first  # nothing is handed on inside resume_reading
    await asyncio.sleep(0)
    assert len(pair.above.received) == READ_SIZE * 2 + 10
    assert not pair.raw.paused


async def test_pausing_again_before_the_turn_comes_hands_nothing_on(pair: Pair) -> None:
    pair.above.pause_after = 1
    pair.peer.write(bytes(READ_SIZE * 2))
    pair.layer.data_received(pair.said())
    first = len(pair.above.received)
    pair.layer.resume_reading()
    pair.layer.pause_reading()
    await asyncio.sleep(0)
    assert len(pair.above.received) == first
    assert pair.raw.paused


async def test_a_new_protocol_gets_what_the_old_one_left_unread(pair: Pair) -> None:
    pair.above.pause_after = 1
    pair.peer.write(bytes(READ_SIZE * 2))
    pair.layer.data_received(pair.said())
    first, after = len(pair.above.received), Above()
    pair.layer.resume_reading()
    pair.layer.set_protocol(after)
    await asyncio.sleep(0)
    assert first + len(after.received) == READ_SIZE * 2


async def test_close_notify_behind_unread_data_is_told_after_it(pair: Pair) -> None:
    pair.above.pause_after = 1
    pair.peer.write(bytes(READ_SIZE + 5))
    pair.attempt(pair.peer.unwrap)
    pair.layer.data_received(pair.said())
    assert "eof" not in pair.above.events or len(pair.above.received) == READ_SIZE + 5
    pair.above.pause_after = -1
    pair.layer.resume_reading()
    await asyncio.sleep(0)
    assert (len(pair.above.received), pair.above.events) == (READ_SIZE + 5, ["made", "eof"])


# Handshakes that fail.


async def test_bytes_that_are_no_tls_fail_once() -> None:
    joined = Pair()
    joined.layer.data_received(b"GET / HTTP/1.1\r\n\r\n")
    joined.layer.data_received(b"more")
    joined.layer.eof_received()
    joined.layer.connection_lost(None)
    assert [type(error) for error in joined.failures] == [ssl.SSLError]
    assert joined.above.events == []
    assert joined.raw.closed


async def test_a_certificate_that_is_not_trusted_fails_once_and_tells_the_peer() -> None:
    joined = Pair(serve=False, context=ssl.create_default_context())
    joined.layer.start()
    joined.heard()
    joined.attempt(joined.peer.do_handshake)
    joined.layer.data_received(joined.said())
    joined.layer.connection_lost(None)
    assert [type(error) for error in joined.failures] == [ssl.SSLCertVerificationError]
    assert joined.raw.written  # the alert
    assert joined.above.events == []


@pytest.mark.parametrize("leave", ["eof_received", "connection_lost"])
async def test_a_peer_that_leaves_in_the_handshake_fails_once(leave: str) -> None:
    joined = Pair()
    joined.attempt(joined.peer.do_handshake)
    joined.layer.data_received(joined.said()[:20])
    if leave == "eof_received":
        joined.layer.eof_received()
    joined.layer.connection_lost(None)
    assert joined.failures == [None]
    assert joined.above.events == []


async def test_a_handshake_that_does_not_end_fails_in_time() -> None:
    raw, failures = RecordingTransport(), asyncio.Queue[Exception | None]()
    context = server_context()
    TlsTransport(
        raw,
        Above(),
        lambda incoming, outgoing: context.wrap_bio(incoming, outgoing, server_side=True),
        failures.put_nowait,
        patience=0.01,
    )
    assert isinstance(await failures.get(), TimeoutError)
    assert raw.closed


async def test_the_ssl_object_can_be_had_and_everything_else_is_the_transports_own(pair: Pair) -> None:
    assert pair.layer.get_extra_info("ssl_object") is pair.layer.tls
    assert pair.layer.get_extra_info("peername", "nobody") == "nobody"


# On real sockets.


class Peer(asyncio.Protocol):
    """The accepted side of a loopback connection."""

    def __init__(self) -> None:
        self.made: asyncio.Future[asyncio.Transport] = asyncio.get_running_loop().create_future()
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.made.set_result(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)


async def test_a_reset_is_no_clean_end_for_the_peer_and_its_leaving_can_be_seen_while_paused() -> None:
    loop = asyncio.get_running_loop()
    accepted = Peer()
    server = await loop.create_server(lambda: accepted, "127.0.0.1", 0)
    ours = Peer()
    transport, _ = await loop.create_connection(lambda: ours, *server.sockets[0].getsockname())
    far = await accepted.made
    far.pause_reading()
    assert not peer_has_left(far)  # type: ignore[arg-type]
    reset(transport)  # type: ignore[arg-type]
    await ours.lost
    assert peer_has_left(far)  # type: ignore[arg-type]
    far.resume_reading()
    assert isinstance(await accepted.lost, ConnectionResetError)
    server.close()
