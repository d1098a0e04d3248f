"""TLS as a layer over a plain asyncio transport: `ssl.SSLObject` between two memory BIOs.

Against the loop's own TLS this costs half the memory an idle tunnel holds, takes bytes that were read before it was
known that they are TLS, tells close_notify from truncation, goes on in one direction after the other has closed, and
resumes upstream sessions (docs/decisions/0001).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable
from typing import Any, Protocol

READ_SIZE = 65_536
RECORD = 16_384
"""No record holds more text (RFC 8446 section 5.1). A larger buffer would be made for each read, to be cut down."""
HANDSHAKE_SECONDS = 10.0
WRITE_HIGH, WRITE_LOW = 65_536, 16_384
_RESET = struct.pack("ii", 1, 0)


class Transport(Protocol):
    """What connections need of a transport: the plain one of the loop and TlsTransport both are one."""

    def write(self, data: bytes) -> None: ...
    def write_eof(self) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def is_closing(self) -> bool: ...
    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None: ...
    def get_extra_info(self, name: str, default: Any = None) -> Any: ...


def reset(transport: Transport) -> None:
    """Ends a connection so that the peer cannot take what it has for a complete message: RST instead of FIN."""
    sock = transport.get_extra_info("socket")
    if sock is not None and not transport.is_closing():
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        except OSError:
            pass  # the peer was faster: there is nothing left to reset
    transport.abort()


def peer_has_left(transport: Transport) -> bool:
    """Whether FIN or RST has arrived on a connection whose reading is paused, where no event tells it.

    Asks Linux for TCP_INFO.
    """
    sock = transport.get_extra_info("socket")
    if sock is None:
        return transport.is_closing()
    try:
        state = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    except OSError:
        return True
    return state in (7, 8)  # TCP_CLOSE, TCP_CLOSE_WAIT


class TlsTransport(asyncio.Protocol):
    """The protocol of a plain transport, and the transport of the protocol above.

    `protocol.connection_made(self)` is called when the handshake is done; `failed(error)` instead when it is not: None
    when the peer just left, TimeoutError when it took more than `patience` seconds. `eof_received` above means
    close_notify; a connection that ends without one calls `connection_lost` alone, so that the protocol above can tell
    a cut from an end (RFC 8446 section 6.1).
    """

    def __init__(
        self,
        raw: Transport,
        protocol: asyncio.Protocol,
        make: Callable[[ssl.MemoryBIO, ssl.MemoryBIO], ssl.SSLObject],
        failed: Callable[[Exception | None], None],
        patience: float = HANDSHAKE_SECONDS,
    ) -> None:
        self._raw = raw
        self._protocol = protocol
        self._failed = failed
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = make(self._incoming, self._outgoing)
        self._open = False
        self._paused = False
        self._closing = False
        self._ended = False
        self._fault: Exception | None = None
        self._timer = asyncio.get_running_loop().call_later(patience, self._overdue)
        raw.set_protocol(self)

    # The protocol of the plain transport.

    def start(self, received: bytes = b"") -> None:
        """Begins the handshake, with bytes that were read from the transport before."""
        if received:
            self._incoming.write(received)
        self._handshake()

    def data_received(self, data: bytes) -> None:
        self._incoming.write(data)
        if self._open:
            self._read()
        elif not self._closing:
            self._handshake()

    def eof_received(self) -> bool | None:
        if not self._open and not self._closing:
            self._give_up(None)
        return None  # without close_notify: the plain transport closes, connection_lost says the rest

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        if self._open:
            self._open = False
            self._protocol.connection_lost(exc or self._fault)
        else:
            self._failed_once(exc)

    def pause_writing(self) -> None:
        if self._open:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._open:
            self._protocol.resume_writing()

    def _handshake(self) -> None:
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as error:
            self._flush()  # the alert that says why
            self._give_up(error)
            return
        self._open = True
        self._timer.cancel()
        self._flush()
        self._protocol.connection_made(self)  # type: ignore[arg-type]
        if self._open and not self._paused:
            self._read()

    def _overdue(self) -> None:
        self._give_up(TimeoutError("the TLS handshake took too long"))

    def _give_up(self, error: Exception | None) -> None:
        self._closing = True
        self._raw.close()
        self._failed_once(error)

    def _failed_once(self, error: Exception | None) -> None:
        self._timer.cancel()
        failed, self._failed = self._failed, _ignore
        failed(error)

    def _read(self) -> None:
        """Hands on what can be decrypted, in one piece for each segment, until the protocol above pauses."""
        pieces: list[bytes] = []
        size = 0
        ended = False
        error: Exception | None = None
        try:
            while size < READ_SIZE:
                piece = self.tls.read(RECORD)
                if not piece:
                    ended = True
                    break
                pieces.append(piece)
                size += len(piece)
                if not self._incoming.pending:
                    break  # nothing more can come: asking would raise, which costs as much as decrypting a small reply
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as failure:
            error = failure
        if self._outgoing.pending:
            self._flush()
        if pieces:
            self._protocol.data_received(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if error is not None:
            self._fault = error  # an alert, which in TLS 1.3 may be the answer to our certificate
            self.abort()
        elif ended:
            self._end()
        elif size >= READ_SIZE and not self._paused and self._open:
            self._read()

    def _end(self) -> None:
        if self._ended or not self._open:
            return
        self._ended = True
        if not self._protocol.eof_received():
            self.close()

    def _flush(self) -> None:
        data = self._outgoing.read()
        if data and not self._raw.is_closing():
            self._raw.write(data)

    # The transport of the protocol above.

    def write(self, data: bytes) -> None:
        if self._closing or not self._open:
            return
        self.tls.write(data)
        self._raw.write(self._outgoing.read())

    def write_eof(self) -> None:
        """Sends close_notify; reading goes on."""
        if self._closing:
            return
        try:
            self.tls.unwrap()
        except ssl.SSLError:
            pass  # the peer's own close_notify has not come yet, which is what half-closed means
        self._flush()

    def pause_reading(self) -> None:
        if not self._paused and not self._raw.is_closing():
            self._paused = True
            self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Goes on reading; as with the loop's own transports nothing is handed on before this has returned."""
        if self._paused:
            self._paused = False
            asyncio.get_running_loop().call_soon(self._resumed)

    def _resumed(self) -> None:
        if self._open and not self._paused:
            self._read()  # what lies decrypted or not in the BIO comes before what lies in the kernel
        if not self._paused and not self._raw.is_closing():
            self._raw.resume_reading()

    def close(self) -> None:
        if self._closing:
            return
        self.write_eof()
        self._closing = True
        self._raw.close()

    def abort(self) -> None:
        self._closing = True
        self._raw.abort()

    def is_closing(self) -> bool:
        return self._closing or self._raw.is_closing()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol  # type: ignore[assignment]

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.tls if name == "ssl_object" else self._raw.get_extra_info(name, default)


def _ignore(_: Exception | None) -> None:
    """Takes the place of `failed` once it was called."""
