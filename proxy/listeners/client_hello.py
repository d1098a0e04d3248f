"""Reads the server name and protocols out of a TLS ClientHello before any handshake (RFC 8446 section 4.1.2).

Pure: the bytes received so far come in. The message may be spread over several records and segments. It is read as
strictly as a TLS library would, so that no name is seen here that the library would not see.
"""

from __future__ import annotations

from typing import Final, NamedTuple

LONGEST_HELLO: Final = 64 * 1024
MOST_RECORDS: Final = 128
"""A hello of 64 KiB in the smallest records that a client may ask for (512 bytes); more only cost us time."""
_LONGEST_RECORD: Final = 16 * 1024  # RFC 8446 section 5.1
_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1
_SERVER_NAME: Final = 0  # RFC 6066 section 3
_ALPN: Final = 16  # RFC 7301 section 3.1


def _fatal(description: int) -> bytes:
    """An alert record: type 21, version 3.3, two bytes: fatal, description (RFC 8446 section 6)."""
    return bytes((21, 3, 3, 0, 2, 2, description))


HANDSHAKE_FAILURE: Final = _fatal(40)
ACCESS_DENIED: Final = _fatal(49)
UNRECOGNIZED_NAME: Final = _fatal(112)
NO_APPLICATION_PROTOCOL: Final = _fatal(120)


class Hello(NamedTuple):
    """What a client asks for: `server_name` as sent (None without one), `alpn` in the client's order."""

    server_name: str | None
    alpn: tuple[str, ...]


def parse(buffer: bytes) -> Hello | None:
    """The ClientHello at the start of `buffer`, None while bytes are missing.

    Raises ValueError, saying why, for what is not a ClientHello or is longer than 64 KiB.
    """
    message = _message(buffer)
    if message is None:
        return None
    body = _Reader(message)
    body.take(2 + 32)  # legacy_version, random
    if len(body.vector(1)) > 32:
        raise ValueError("session id is too long")
    body.vector(2)  # cipher_suites
    body.vector(1)  # legacy_compression_methods
    extensions = _extensions(body.vector(2)) if body.left else {}
    body.end()
    name, protocols = extensions.get(_SERVER_NAME), extensions.get(_ALPN)
    return Hello(
        server_name=None if name is None else _server_name(name),
        alpn=() if protocols is None else _protocols(protocols),
    )


class _Reader:
    """Takes fields off a complete byte string; ValueError where it is too short."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._position

    def take(self, count: int) -> bytes:
        if count > self.left:
            raise ValueError("a field is longer than what holds it")
        start, self._position = self._position, self._position + count
        return self._data[start : self._position]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def vector(self, size: int) -> bytes:
        """A field that begins with its length in `size` bytes."""
        return self.take(self.number(size))

    def end(self) -> None:
        if self.left:
            raise ValueError("bytes follow the last field")


def _message(buffer: bytes) -> bytes | None:
    """The body of the handshake message that the records carry; None while it is incomplete."""
    fragments = bytearray()
    position = 0
    for _ in range(MOST_RECORDS + 1):
        if len(fragments) >= 4 and len(fragments) >= 4 + _length(fragments):
            return _only(fragments)
        header = buffer[position : position + 5]
        size = _record_size(header)
        if size is None or len(buffer) < position + 5 + size:
            _first_byte(fragments + buffer[position + 5 :])
            return None
        fragments += buffer[position + 5 : position + 5 + size]
        _first_byte(fragments)
        position += 5 + size
    raise ValueError("ClientHello is spread over too many records")


def _record_size(header: bytes) -> int | None:
    """Length of the record whose header may be cut off."""
    if header and header[0] != _HANDSHAKE:
        raise ValueError("not a TLS handshake record")
    if len(header) > 1 and header[1] != 3:
        raise ValueError("not a TLS version")
    if len(header) < 5:
        return None
    size = int.from_bytes(header[3:5], "big")
    if not 0 < size <= _LONGEST_RECORD:
        raise ValueError("record length out of bounds")
    return size


def _first_byte(fragments: bytes | bytearray) -> None:
    """Refuses what cannot become a ClientHello as early as possible."""
    if fragments and fragments[0] != _CLIENT_HELLO:
        raise ValueError("not a ClientHello")
    if len(fragments) >= 4:
        _length(fragments)


def _length(fragments: bytes | bytearray) -> int:
    length = int.from_bytes(fragments[1:4], "big")
    if length > LONGEST_HELLO:
        raise ValueError("ClientHello is longer than 64 KiB")
    return length


def _only(fragments: bytearray) -> bytes:
    """The message, which has to fill its records: nothing may follow a ClientHello before the server answers."""
    if len(fragments) > 4 + _length(fragments):
        raise ValueError("bytes follow the ClientHello in its record")
    return bytes(fragments[4:])


def _extensions(block: bytes) -> dict[int, bytes]:
    reader = _Reader(block)
    found: dict[int, bytes] = {}
    while reader.left:
        kind = reader.number(2)
        if kind in found:
            raise ValueError("an extension is repeated")
        found[kind] = reader.vector(2)
    return found


def _server_name(extension: bytes) -> str:
    outer = _Reader(extension)
    names = _Reader(outer.vector(2))
    outer.end()
    if names.number(1) != 0:
        raise ValueError("server name is not a host name")
    name = names.vector(2)
    names.end()
    if not name or not name.isascii() or not name.decode().isprintable():
        raise ValueError("server name is not printable ASCII")
    return name.decode()


def _protocols(extension: bytes) -> tuple[str, ...]:
    outer = _Reader(extension)
    names = _Reader(outer.vector(2))
    outer.end()
    found = []
    while names.left:
        found.append(names.vector(1).decode("latin-1"))  # bytes by definition; GREASE uses what is not ASCII
    if not all(found) or not found:
        raise ValueError("empty application protocol")
    return tuple(found)
