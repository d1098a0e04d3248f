"""Upstreams that record every byte: raw socket servers in threads, plain or TLS, with scripted replies.

A script is a function of one connection; it runs in a thread of its own and reads and writes as it likes. The script
is looked up again for each request of `serving`, so that a shared upstream can change its behaviour between tests.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.flows.wire import Lines, PeerEnded, Stream, chunked, fields, values

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass
class Request:
    """One request as it stood on the wire."""

    head: bytes
    line: bytes
    headers: Lines
    body: bytes = b""
    trailers: Lines = field(default_factory=list)

    def all(self, name: str) -> list[str]:
        return values(self.headers, name)

    @property
    def method(self) -> str:
        return self.line.split(b" ")[0].decode()

    @property
    def target(self) -> bytes:
        return self.line.split(b" ")[1]

    @property
    def names(self) -> list[str]:
        return [name.decode("latin-1") for name, _ in self.headers]


class Connection(Stream):
    """One connection that an upstream accepted."""

    def __init__(self, sock: socket.socket, upstream: Upstream) -> None:
        super().__init__(sock, timeout=30)
        self.upstream = upstream
        self.gone = threading.Event()

    def fill(self) -> bool:
        if super().fill():
            return True
        self.gone.set()
        return False

    def head(self) -> Request:
        """Read and record a request's head only."""
        head = self.until(b"\r\n\r\n")
        request = Request(head, head.split(b"\r\n", 1)[0], fields(head))
        self.upstream.requests.append(request)
        self.upstream.arrived.release()
        return request

    def body(self, request: Request) -> None:
        """Read the body that belongs to a head."""
        body = bytearray()
        if "chunked" in [value.lower() for value in request.all("Transfer-Encoding")]:
            request.trailers = chunked(self, body.extend)
        elif length := request.all("Content-Length"):
            body += self.exactly(int(length[0]))
        request.body = bytes(body)

    def request(self) -> Request:
        request = self.head()
        self.body(request)
        return request

    def wait_for_end(self) -> None:
        """Read until the peer goes."""
        while self.fill():
            pass

    def drop(self) -> None:
        """Close the TCP connection; over TLS without close_notify."""
        self.gone.set()
        try:
            # the plain method, also for TLS: a thread that waits in recv would keep the connection alive otherwise
            socket.socket.shutdown(self.sock, socket.SHUT_RDWR)
        except OSError:
            pass
        self.close()

    def end(self) -> None:
        """Close cleanly; over TLS with close_notify."""
        if isinstance(self.sock, ssl.SSLSocket):
            self.sock.settimeout(0.2)
            try:
                self.sock.unwrap()
            except (OSError, ValueError):
                pass
        self.gone.set()
        self.close()


Script = Callable[[Connection], None]


def answering(reply: bytes) -> Script:
    """Every request read whole, then `reply`, kept alive."""

    def script(connection: Connection) -> None:
        connection.request()
        connection.send(reply)

    return script


class Upstream:
    """A recording server on `host`. Use as a context manager.

    `script` is called for each request of each connection while the connection lives.
    """

    def __init__(
        self, script: Script | None = None, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
    ) -> None:
        self.host = host
        self.tls = tls
        self.script = script or answering(OK)
        self.requests: list[Request] = []
        self.connections: list[Connection] = []
        self.arrived = threading.Semaphore(0)
        self.failures: list[BaseException] = []
        self._open = True
        self._listeners = self._bind()
        self.port: int = self._listeners[0].getsockname()[1]

    def _bind(self) -> list[socket.socket]:
        if self.host != "localhost":
            return [socket.create_server((self.host, 0), backlog=512)]
        first = socket.create_server(("127.0.0.1", 0), backlog=512)
        try:
            second = socket.create_server(("::1", first.getsockname()[1]), family=socket.AF_INET6, backlog=512)
        except OSError:
            return [first]
        return [first, second]

    @property
    def scheme(self) -> str:
        return "https" if self.tls else "http"

    @property
    def authority(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}"

    @property
    def received(self) -> bytes:
        """Every byte, all connections in turn."""
        return b"".join(bytes(connection.received) for connection in list(self.connections))

    def forget(self, script: Script | None = None) -> None:
        """Drop what was recorded and go back to answering 200 (or to `script`)."""
        self.script = script or answering(OK)
        self.requests.clear()
        self.connections = [connection for connection in self.connections if not connection.gone.is_set()]
        for connection in self.connections:
            connection.received.clear()
        self.arrived = threading.Semaphore(0)

    def drop_connections(self) -> None:
        for connection in self.connections:
            connection.drop()
        self.connections.clear()

    def wait(self, within: float = 8.0) -> None:
        """Until one more request has arrived."""
        assert self.arrived.acquire(timeout=within), "no request reached the upstream"

    def __enter__(self) -> Upstream:
        for listener in self._listeners:
            threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._open = False
        for listener in self._listeners:
            try:
                listener.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            listener.close()
        for connection in self.connections:
            connection.drop()

    def _accept(self, listener: socket.socket) -> None:
        while self._open:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._run, args=(sock,), daemon=True).start()

    def _run(self, sock: socket.socket) -> None:
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.tls:
                sock.settimeout(10)
                sock = self.tls.wrap_socket(sock, server_side=True, suppress_ragged_eofs=False)
        except OSError as failure:
            self.failures.append(failure)
            sock.close()
            return
        connection = Connection(sock, self)
        self.connections.append(connection)
        try:
            while not connection.gone.is_set():
                if not connection.buffer and not connection.fill():
                    break
                self.script(connection)
        except (PeerEnded, OSError, ValueError):
            pass
        finally:
            connection.gone.set()
            connection.close()
