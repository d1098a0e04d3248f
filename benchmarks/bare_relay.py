"""The floor: a relay that parses and injects but decides, checks and records nothing.

asyncio protocols on uvloop with httptools, one upstream connection kept per client connection, no request bodies.
What Sluicegate costs above this line is what its stages cost.

usage: python -m benchmarks.bare_relay SECRET_FILE CA_FILE LISTEN_PORT=http[s]://host:port [LISTEN_PORT=…]
"""

from __future__ import annotations

import asyncio
import signal
import ssl
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import httptools
import uvloop


@dataclass(frozen=True, slots=True)
class Upstream:
    """Where one listener relays to, and the lines put into every request."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    lines: bytes


class UpstreamSide(asyncio.Protocol):
    """Replies go to the client as they come."""

    def __init__(self, client: asyncio.Transport) -> None:
        self.client = client

    def data_received(self, data: bytes) -> None:
        self.client.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.client.close()


class ClientSide(asyncio.Protocol):
    """Requests are parsed, their credential replaced, and written upstream in one piece."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self.onward: asyncio.Transport | None = None
        self.waiting: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are not derived from it
        self.parser = httptools.HttpRequestParser(self)
        self.opening = asyncio.get_running_loop().create_task(self.open())

    async def open(self) -> None:
        loop, to = asyncio.get_running_loop(), self.upstream
        name = to.host if to.tls else None
        onward, _ = await loop.create_connection(
            lambda: UpstreamSide(self.transport), to.host, to.port, ssl=to.tls, server_hostname=name
        )
        self.onward = onward
        for head in self.waiting:
            onward.write(head)

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_message_begin(self) -> None:
        self.url, self.lines = b"", [b""]

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() not in (b"host", b"authorization"):
            self.lines.append(name + b": " + value + b"\r\n")

    def on_message_complete(self) -> None:
        self.lines[0] = self.parser.get_method() + b" " + self.url + b" HTTP/1.1\r\n"
        self.lines.append(self.upstream.lines)
        head = b"".join(self.lines)
        if self.onward:
            self.onward.write(head)
        else:
            self.waiting.append(head)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.onward:
            self.onward.close()


def upstream(url: str, secret: str, ca_file: str) -> Upstream:
    parts = urlsplit(url)
    assert parts.hostname
    assert parts.port
    tls = ssl.create_default_context(cafile=ca_file) if parts.scheme == "https" else None
    lines = f"Host: {parts.netloc}\r\nAuthorization: Bearer {secret}\r\n\r\n".encode()
    return Upstream(parts.hostname, parts.port, tls, lines)


async def relay(secret_file: str, ca_file: str, listeners: list[str]) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    secret = Path(secret_file).read_text().strip()
    for listener in listeners:
        port, _, url = listener.partition("=")
        to = upstream(url, secret, ca_file)
        await loop.create_server(lambda to=to: ClientSide(to), "127.0.0.1", int(port))  # type: ignore[misc]
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()


if __name__ == "__main__":
    uvloop.run(relay(sys.argv[1], sys.argv[2], sys.argv[3:]))
