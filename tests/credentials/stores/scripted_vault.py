"""A Vault that answers what the test says, byte for byte, and keeps every request."""

from __future__ import annotations

import json
import socket
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: Any

    @property
    def token(self) -> str | None:
        return self.headers.get("x-vault-token")


@dataclass
class ScriptedVault:
    """`answer` makes the raw reply to each request; b"" closes the connection, None says nothing at all."""

    address: str
    answer: Callable[[Request], bytes | None]
    requests: list[Request] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)

    def count(self, start: str) -> int:
        return sum(f"{request.method} {request.path}".startswith(start) for request in self.requests)


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body) if body else None
    except ValueError:
        return body.decode()


def reply(status: int, body: Any = None, *headers: str) -> bytes:
    content = json.dumps(body).encode() if body is not None else b""
    lines = [
        f"HTTP/1.1 {status} Scripted",
        f"Content-Length: {len(content)}",
        "Content-Type: application/json",
        *headers,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


def secret(fields: dict[str, Any], version: int = 1) -> bytes:
    return reply(200, {"data": {"data": fields, "metadata": {"version": version}}})


def login(token: str, ttl: int = 3600, renewable: bool = True) -> bytes:
    return reply(200, {"auth": {"client_token": token, "lease_duration": ttl, "renewable": renewable}})


@contextmanager
def scripted_vault(
    answer: Callable[[Request], bytes | None], tls: ssl.SSLContext | None = None
) -> Iterator[ScriptedVault]:
    class Connection(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while (request := self._request()) is not None:
                vault.requests.append(request)
                content = vault.answer(request)
                if content is None:
                    vault.released.wait(20)
                    return
                self.wfile.write(content)
                if not content or b"Connection: close" in content:
                    return

        def _request(self) -> Request | None:
            try:
                first = self.rfile.readline().decode().split()
                if len(first) < 2:
                    return None
                lines = iter(lambda: self.rfile.readline().decode().strip(), "")
                headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
                body = self.rfile.read(int(headers.get("content-length", 0)))
            except OSError:
                return None
            return Request(first[0], first[1], headers, _parsed(body))

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

        def get_request(self) -> tuple[socket.socket, Any]:
            connection, peer = super().get_request()
            return (tls.wrap_socket(connection, server_side=True) if tls else connection), peer

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that left is part of the script."""

    scheme = "https" if tls else "http"
    with Server(("127.0.0.1", 0), Connection) as server:
        vault = ScriptedVault(f"{scheme}://127.0.0.1:{server.server_address[1]}", answer)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield vault
        vault.released.set()
        server.shutdown()
