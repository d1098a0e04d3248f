"""A server on loopback that stands in for every host and notes what reaches it. It answers without repeating any."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Self

from proxy.listeners.certificate_authority import CertificateAuthority

_REPLY = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Received(NamedTuple):
    """One request as it arrived: the request target and the header lines in order."""

    target: str
    lines: tuple[tuple[str, str], ...]


class Echo:
    """Listens plain and inside TLS, with certificates of an authority made for the purpose."""

    def __init__(self, folder: Path, hosts: set[str]) -> None:
        self._authority = CertificateAuthority.open(folder, False, time.time())
        self._hosts = hosts
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._servers: list[asyncio.Server] = []
        self.received: dict[str, Received] = {}
        """By the value of the header `X-Sluicegate-Doctor` that the probe carried."""
        self.ports: Mapping[str, int] = {}

    async def __aenter__(self) -> Self:
        for host in self._hosts:
            context = self._authority.context_for(host)
            self._contexts[host] = context if isinstance(context, ssl.SSLContext) else await context
        plain = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        secure = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._front())
        self._servers = [plain, secure]
        self.ports = {
            scheme: int(server.sockets[0].getsockname()[1]) for scheme, server in (("http", plain), ("https", secure))
        }
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
        self._authority.close()

    def trusted(self) -> ssl.SSLContext:
        """What a client of this server verifies against: this server and nothing else."""
        context = ssl.create_default_context(cadata=self._authority.certificate_pem)
        context.set_alpn_protocols(["http/1.1"])
        return context

    def _front(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.sni_callback = self._choose
        return context

    def _choose(self, connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> int | None:
        chosen = self._contexts.get(name or "")
        if chosen is None:
            return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
        connection.context = chosen
        return None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.rstrip("\r\n").split("\r\n")
            fields = tuple((name, value.strip()) for name, _, value in (line.partition(":") for line in lines))
            probe = next((value for name, value in fields if name.lower() == "x-sluicegate-doctor"), "")
            self.received[probe] = Received(first.split(" ")[1], fields)
            writer.write(_REPLY)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the probe's own answer says that something went wrong
        finally:
            writer.close()
