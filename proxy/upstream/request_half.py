"""The half of an exchange that sends: the request's head and body, as they are or signed, once or again."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Container

from proxy.errors import GatewayError
from proxy.model import Headers
from proxy.upstream.ledger.keeping import entered
from proxy.upstream.relaying import Relaying
from proxy.upstream.sealing import Seal
from proxy.upstream.way import Way
from proxy.wire.chunks import frame, frame_end
from proxy.wire.client_connection import ClientConnection
from proxy.wire.pool import Addresses
from proxy.wire.server_connection import EARLY_LIMIT


class RequestHalf(Relaying, eq=False):
    """Waits for what has to be there first, then writes the request to a connection; nothing leaves before `send`."""

    def send(self, head: bytes, way: Way, idempotent: bool, trailers_dropped: Container[bytes]) -> None:
        """Sends the request as soon as a connection is there. A small body of known length is waited for first: what
        the client never finishes is then never begun upstream, and a body kept whole can be sent again.

        `idempotent`: the catalogue declares the operation so. `trailers_dropped` are comparable names that a request's
        trailers must not carry: those of the credential.
        """
        self._head = head
        self._way = way
        self._idempotent = idempotent
        self._trailers_dropped = trailers_dropped
        section = self.call.section
        self._chunked = section.chunked
        if self.seal is not None:
            self._send_sealed(self.seal.need.hold)
            return
        if not section.chunked and section.length is not None and section.length <= EARLY_LIMIT and not section.expect:
            self._hold_piece(self.connection.take_body())
            if not self.connection.body_complete:
                self._waits_for_body = True
                return
        self._dispatch(fresh=False)

    def _send_sealed(self, hold: int) -> None:
        """A body that a signature covers is waited for, up to `hold` bytes; so is a small one, as for any call."""
        section = self.call.section
        small = not section.chunked and section.length is not None and section.length <= EARLY_LIMIT
        if not (section.chunked or section.length) or not (hold or (small and not section.expect)):
            self._dispatch(fresh=False)
            return
        self._hold, self._chunked = max(hold, EARLY_LIMIT), False
        self._held, self._waits_for_body = [], True
        if section.expect and self.call.minor and not self.connection.body_complete:
            self.connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")  # nobody upstream can ask for it yet
        self.client_body(self.connection.take_body())
        if self._waits_for_body and self.connection.body_complete:
            self._waits_for_body = False
            self._dispatch(fresh=False)

    def _overflowed(self, seal: Seal) -> None:
        """More than may be held: it goes out now and the rest as it comes, if the signer can do with that."""
        self._waits_for_body, self._chunked = False, self.call.section.chunked
        seal.overflow()
        self.connection.pause_body()
        self._dispatch(fresh=False)

    def _attempt(self, fresh: bool) -> None:
        try:
            self._dispatch(fresh)
        except GatewayError as error:
            self.fail(error)

    def _dispatch(self, fresh: bool) -> None:
        way = self._way
        assert way is not None
        self.stage = "exchange"
        if self.entry is not None and not self.entry.begun:
            self.later(entered(self, self.entry, self._fingerprinted()))
            return
        if self.means.trouble.known:
            self._refuse_while_open()
        addresses = way.addresses(time.monotonic())
        if not isinstance(addresses, tuple):
            self.later(self._resolve(addresses, fresh), addresses)
            return
        found = self.means.pool.take(way.key, addresses, once=not self._replaceable, fresh=fresh)
        if isinstance(found, ClientConnection):
            self._write(found)
        else:
            self.later(self._dialled(found), found)

    def send_again(self, head: bytes) -> None:
        """The same call once more. Raises GatewayError."""
        self._head = head
        self.first_byte_at = 0.0
        self._dispatch(fresh=False)

    def _fingerprinted(self) -> bytes:
        """What an idempotency key stands for besides the target: the body, or the length of one that is not kept."""
        if self._held is not None:
            return b"".join(self._held)
        section = self.call.section
        return (
            b"" if section.length in (None, 0) and not section.chunked else b"unseen body, length %r" % section.length
        )

    def _hold_piece(self, payload: bytes) -> None:
        if self._held is None:
            self._held = []
        self._held.append(payload)
        self._held_size += len(payload)
        self.connection.service.buffered.used += len(payload)

    def _refuse_while_open(self) -> None:
        left = self.means.trouble.refused_for(self.trouble_key, time.monotonic())
        if left is not None:
            raise GatewayError(
                "breaker_open", "The provider has failed many times in a row.", retry_after=math.ceil(left)
            )

    async def _resolve(self, addresses: Awaitable[Addresses], fresh: bool) -> None:
        way = self._way
        assert way is not None
        found = self.means.pool.take(way.key, await addresses, once=not self._replaceable, fresh=fresh)
        self._write(found if isinstance(found, ClientConnection) else await found)

    async def _dialled(self, found: Awaitable[ClientConnection]) -> None:
        self._write(await found)

    # What goes out.

    def _write(self, upstream: ClientConnection) -> None:
        way, call = self._way, self.call
        assert way is not None
        self._upstream = upstream
        self.attempts += 1
        self.first_byte_at = 0.0
        now = time.monotonic()
        self.sent_at = self.sent_at or now
        self._deadline = now + way.timeouts.head
        upstream.begin(self, call.method, call.section.websocket)  # type: ignore[arg-type] # the next layer's part
        if self.seal is not None:
            self._write_sealed(upstream, self.seal)
            return
        if not call.section.chunked and not call.section.length:
            upstream.request_complete = True
            upstream.write(self._head)
            return
        self._write_with_body(upstream, self._head)

    def _write_with_body(self, upstream: ClientConnection, head: bytes) -> None:
        body = b"".join(self._held) if self._held is not None else self.connection.take_body()
        self.bytes_in = len(body)
        if self.call.section.chunked and body:
            body = frame(body)
        complete = self.connection.body_complete
        if complete and self.call.section.chunked:
            body += self._last_chunk(self.connection.trailers)
        upstream.request_complete = complete
        upstream.write(head + body)

    def _write_sealed(self, upstream: ClientConnection, seal: Seal) -> None:
        """Signed anew for each attempt, over the body as far as it is here."""
        connection = self.connection
        whole = self.body_kept and self._hold >= 0
        body = b"".join(self._held) if self._held is not None else connection.take_body()
        if not whole:
            self._let_go_of_held()
        complete = connection.body_complete
        self.bytes_in = len(body)
        head = seal.head(body if whole else None)
        payload = seal.piece(body) + (seal.end() if complete else b"")
        if self._chunked and payload:
            payload = frame(payload)
        if complete and self._chunked:
            payload += self._last_chunk(connection.trailers)
        upstream.request_complete = complete
        upstream.write(head + payload)
        if not complete:
            connection.resume_body()

    def _sealed_piece(self, seal: Seal, payload: bytes, *, last: bool = False) -> bytes:
        """A piece of a streamed body as the signer wants it; b"" too when the call had to be given up for it."""
        try:
            return seal.piece(payload) + (seal.end() if last else b"")
        except GatewayError as error:
            self.fail(error)
            return b""

    def _last_chunk(self, trailers: Headers) -> bytes:
        dropped = self._trailers_dropped
        return frame_end([line for line in trailers if line[0].lower().replace(b"_", b"-") not in dropped])

    def _progress(self) -> None:
        if self._way is not None and not self.reply_to.started:
            self._deadline = time.monotonic() + self._way.timeouts.head

    # The client's connection (Hop).

    def client_body(self, payload: bytes) -> None:
        if self._held is not None and self._upstream is None:
            self._hold_piece(payload)
            if self.seal is not None:
                self._hold_less(self.seal, len(payload))
            return
        self.bytes_in += len(payload)
        upstream = self._upstream
        if upstream is None:
            return
        if self.seal is not None:
            payload = self._sealed_piece(self.seal, payload)
            if not payload:
                return
        upstream.write(frame(payload) if self._chunked else payload)
        self._progress()
        if not upstream.writable:
            self.connection.pause_body()

    def _hold_less(self, seal: Seal, size: int) -> None:
        self._hold -= size
        if self._hold < 0 and self._waits_for_body:
            try:
                self._overflowed(seal)
            except GatewayError as error:
                self.fail(error)

    def client_body_end(self, trailers: Headers) -> None:
        upstream = self._upstream
        if upstream is None:
            if self._waits_for_body:
                self._waits_for_body = False
                self._attempt(fresh=False)
            return
        if self.seal is not None:
            rest = self._sealed_piece(self.seal, b"", last=True)
            if self.over:
                return
            if rest:
                upstream.write(frame(rest) if self._chunked else rest)
        if self._chunked:
            upstream.write(self._last_chunk(trailers))
        upstream.request_complete = True
        self._progress()

    def client_fault(self, error: GatewayError) -> None:
        """The request turned out malformed under way: the provider must not take what it got for a whole one."""
        self.fail(error)
