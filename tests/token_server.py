"""A provider for tests of renewals, in two forms: a model in memory and the same behind a real socket.

It rotates refresh tokens and, as RFC 9700 section 4.14.2 recommends, ends the whole grant when a spent one comes back.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl


@dataclass
class RotatingProvider:
    """The provider's side of one or more grants. `requests` lists every refresh token that was presented."""

    lifetime: int = 3600
    rotates: bool = True
    current: dict[str, str] = field(default_factory=dict)
    """Grant → the refresh token that is good now."""
    ended: set[str] = field(default_factory=set)
    requests: list[str] = field(default_factory=list)
    issued: int = 0

    def consent(self, grant: str) -> str:
        """A new grant's first refresh token."""
        self.current[grant] = f"rt-{grant}-0"
        self.ended.discard(grant)
        return self.current[grant]

    def refresh(self, token: str) -> tuple[int, dict[str, Any]]:
        """Status and body of a refresh_token request."""
        self.requests.append(token)
        grant = token.removeprefix("rt-").rpartition("-")[0]
        if grant in self.ended or self.current.get(grant) is None:
            return 400, {"error": "invalid_grant"}
        if self.current[grant] != token:
            self.ended.add(grant)
            return 400, {"error": "invalid_grant"}
        self.issued += 1
        reply: dict[str, Any] = {
            "access_token": f"at-{grant}-{self.issued}",
            "token_type": "Bearer",
            "expires_in": self.lifetime,
        }
        if self.rotates:
            number = int(token.rpartition("-")[2]) + 1
            reply["refresh_token"] = self.current[grant] = f"rt-{grant}-{number}"
        return 200, reply


Answer = tuple[int, dict[str, str], bytes]
Respond = Callable[[dict[str, str], dict[str, str]], Awaitable[Answer | None]]
"""Form and headers of a request → status, headers, body; None: the connection is closed without an answer."""


class TokenServer:
    """A token endpoint on a loopback port. Use as an async context manager."""

    def __init__(self, respond: Respond, tls: ssl.SSLContext | None = None) -> None:
        self.tls = tls
        self.respond = respond
        self.forms: list[dict[str, str]] = []
        self.heads: list[dict[str, str]] = []
        self.targets: list[str] = []
        self.arrived = asyncio.Event()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/token"

    async def __aenter__(self) -> TokenServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.tls)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {
                name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)
            }
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            is_json = headers.get("content-type", "") == "application/json"
            form = json.loads(body) if is_json else dict(parse_qsl(body.decode()))
            self.forms.append(form)
            self.heads.append(headers)
            self.targets.append(head[0])
            self.arrived.set()
            answer = await self.respond(form, headers)
            if answer is not None:
                status, extra, content = answer
                lines = "".join(f"{name}: {value}\r\n" for name, value in extra.items())
                start = f"HTTP/1.1 {status} X\r\nContent-Length: {len(content)}\r\nConnection: close\r\n{lines}\r\n"
                writer.write(start.encode() + content)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def as_json(status: int, document: object, **headers: str) -> Answer:
    return status, {"Content-Type": "application/json", **headers}, json.dumps(document).encode()


def serving(provider: RotatingProvider) -> Respond:
    """The provider behind a socket."""

    async def respond(form: dict[str, str], headers: dict[str, str]) -> Answer:
        return as_json(*provider.refresh(form["refresh_token"]))

    return respond
