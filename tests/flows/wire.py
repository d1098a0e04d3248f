"""Sockets that write exactly the bytes they are given and say exactly what came back.

`Stream` reads bytes and remembers how the peer ended; `Client` adds HTTP/1.1 replies, CONNECT and TLS. The parsing is
as strict as a test needs and independent of the parser under test.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

TIMEOUT = 5.0
Lines = list[tuple[bytes, bytes]]


class PeerEnded(Exception):
    """The peer ended before what was asked for had arrived; `Stream.ended` says how."""


class Stream:
    """A connected socket with a buffer.

    `ended` is None while the peer can still send, then "fin", "rst" or "close_notify" (a TLS connection that ends in a
    bare FIN is "fin": it may have been cut).
    """

    def __init__(self, sock: socket.socket, timeout: float = TIMEOUT) -> None:
        sock.settimeout(timeout)
        self.sock = sock
        self.buffer = bytearray()
        self.received = bytearray()
        self.ended: str | None = None

    @property
    def is_tls(self) -> bool:
        return isinstance(self.sock, ssl.SSLSocket)

    def fill(self) -> bool:
        """Read once; False when the peer has ended. Raises TimeoutError when nothing comes."""
        if self.ended:
            return False
        try:
            got = self.sock.recv(65536)
        except (ConnectionResetError, BrokenPipeError):
            self.ended = "rst"
            return False
        except ssl.SSLEOFError:
            self.ended = "fin"
            return False
        if not got:
            self.ended = "close_notify" if self.is_tls else "fin"
            return False
        self.buffer += got
        self.received += got
        return True

    def take(self, count: int) -> bytes:
        taken = bytes(self.buffer[:count])
        del self.buffer[:count]
        return taken

    def exactly(self, count: int) -> bytes:
        while len(self.buffer) < count:
            if not self.fill():
                raise PeerEnded(self.ended)
        return self.take(count)

    def some(self) -> bytes:
        """What has arrived, at least one byte; empty at the end."""
        if not self.buffer:
            self.fill()
        return self.take(len(self.buffer))

    def until(self, mark: bytes) -> bytes:
        while mark not in self.buffer:
            if not self.fill():
                raise PeerEnded(self.ended)
        return self.take(self.buffer.index(mark) + len(mark))

    def rest(self) -> bytes:
        """Everything until the peer ends."""
        while self.fill():
            pass
        return self.take(len(self.buffer))

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def send_quietly(self, data: bytes) -> None:
        """Send to a peer that may already have gone."""
        try:
            self.sock.sendall(data)
        except OSError:
            pass

    def half_close(self) -> None:
        """FIN, or close_notify without waiting for the peer's."""
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self) -> None:
        try:
            self.sock.close()
        except OSError:
            pass

    def reset(self) -> None:
        """RST."""
        try:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except OSError:
            pass
        self.close()


def fields(head: bytes) -> Lines:
    """Field lines of a head that ends in an empty line, without the start line."""
    lines = head[: -len(b"\r\n\r\n")].split(b"\r\n")[1:]
    return [(name, value.strip(b" \t")) for name, _, value in (line.partition(b":") for line in lines)]


def values(lines: Lines, name: str) -> list[str]:
    wanted = name.lower().encode()
    return [value.decode("latin-1") for key, value in lines if key.lower() == wanted]


def chunked(stream: Stream, on_bytes: Callable[[bytes], None]) -> Lines:
    """Read a chunked body; give each chunk's bytes to `on_bytes`; the trailers."""
    while True:
        size = int(stream.until(b"\r\n").split(b";")[0], 16)
        if size == 0:
            break
        on_bytes(stream.exactly(size))
        assert stream.exactly(2) == b"\r\n"
    trailers: Lines = []
    while (line := stream.until(b"\r\n")) != b"\r\n":
        name, _, value = line.rstrip(b"\r\n").partition(b":")
        trailers.append((name, value.strip()))
    return trailers


@dataclass
class Reply:
    """One reply. `complete` is False when it was cut before its framing said it had ended."""

    status: int
    reason: bytes
    headers: Lines
    head: bytes
    body: bytes = b""
    complete: bool = False
    trailers: Lines = field(default_factory=list)
    interim: list[tuple[int, Lines]] = field(default_factory=list)

    def header(self, name: str) -> str | None:
        found = values(self.headers, name)
        return found[0] if found else None

    def all(self, name: str) -> list[str]:
        return values(self.headers, name)

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def call_id(self) -> str:
        found = self.header("Sluicegate-Call-Id")
        assert found, self.head
        return found

    @property
    def code(self) -> str:
        """Code of a refusal of the product's own."""
        assert (
            self.header(
                "Content-Type",
            )
            == "application/problem+json"
        ), (self.head, self.body)
        return str(self.json()["code"])


class Client(Stream):
    """A client of the product that writes raw bytes."""

    @classmethod
    def to(cls, port: int, host: str = "127.0.0.1", timeout: float = TIMEOUT) -> Client:
        return cls(socket.create_connection((host, port), timeout), timeout)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def reply_head(self) -> Reply:
        """The next final reply's head; interim replies are collected on it."""
        interim: list[tuple[int, Lines]] = []
        while True:
            head = self.until(b"\r\n\r\n")
            version, status, *reason = head.split(b"\r\n", 1)[0].split(b" ", 2)
            assert version in (b"HTTP/1.1", b"HTTP/1.0"), head
            reply = Reply(int(status), b"".join(reason), fields(head), head, interim=interim)
            if reply.status >= 200 or reply.status == 101:
                return reply
            interim.append((reply.status, reply.headers))

    def reply(self, method: str = "GET") -> Reply:
        """The next final reply with its body; a cut one has `complete` False."""
        reply = self.reply_head()
        body = bytearray()
        try:
            self._body(reply, method, body)
        except PeerEnded:
            reply.complete = False
        reply.body = bytes(body)
        return reply

    def _body(self, reply: Reply, method: str, body: bytearray) -> None:
        reply.complete = True
        if method == "HEAD" or reply.status in (101, 204, 304) or (method == "CONNECT" and reply.status == 200):
            return
        length = reply.header("Content-Length")
        if reply.header("Transfer-Encoding") == "chunked":
            assert length is None, reply.head
            reply.trailers = chunked(self, body.extend)
        elif length is not None:
            while len(body) < int(length):
                got = self.take(min(len(self.buffer), int(length) - len(body))) or self.some_of(int(length) - len(body))
                body += got
        else:
            body += self.rest()
            reply.complete = self.ended in ("fin", "close_notify")

    def some_of(self, most: int) -> bytes:
        if not self.fill():
            raise PeerEnded(self.ended)
        return self.take(min(len(self.buffer), most))

    def ask(self, request: bytes, method: str = "GET") -> Reply:
        self.send(request)
        return self.reply(method)

    def chunk(self) -> bytes:
        """The next chunk of a chunked reply; empty for the last."""
        size = int(self.until(b"\r\n").split(b";")[0], 16)
        data = self.exactly(size)
        assert self.exactly(2) == b"\r\n"
        return data

    def start_tls(self, context: ssl.SSLContext, server_name: str | None) -> Client:
        """TLS over this connection; raises ssl.SSLError when the handshake fails."""
        assert not self.buffer
        wrapped = context.wrap_socket(self.sock, server_hostname=server_name, suppress_ragged_eofs=False)
        return Client(wrapped, self.sock.gettimeout() or TIMEOUT)

    def connect(self, authority: str, *lines: bytes) -> Reply:
        """CONNECT; the connection goes on raw when the reply is 200."""
        head = [b"CONNECT %s HTTP/1.1" % authority.encode(), b"Host: " + authority.encode(), *lines]
        return self.ask(b"\r\n".join(head) + b"\r\n\r\n", "CONNECT")
