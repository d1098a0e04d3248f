"""Requests to token endpoints: verified TLS, checked addresses, no redirect, bounded in time and size.

Nothing of the agent's reaches them: the URL is the catalogue's or the application record's.
"""

from __future__ import annotations

import asyncio
import ssl
import tempfile
import time
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

from proxy.errors import GatewayError
from proxy.upstream.addresses import Networks
from proxy.upstream.resolver import Resolver
from proxy.workload_token import workload_token
from signers.grants.model import (
    Answer,
    ClientCertificate,
    SignatureRequest,
    Step,
    TokenRefused,
    TokenReply,
    TokenRequest,
    WorkloadToken,
)

if TYPE_CHECKING:
    import aiohttp

T = TypeVar("T")
MAX_BYTES: Final = 262_144
Sign = Callable[[SignatureRequest], Awaitable[bytes]]
"""Has a remote key sign. Raises OSError."""


class TokenEndpoints:
    """Runs grants against their endpoints.

    addresses   checks where a name leads
    context     makes a TLS context: one is kept for all requests, a new one made for each client certificate
    parent_url  proxy for all outbound connections, None for none
    sign        asks for signatures of keys that are not held here
    connect, total  seconds: to a connection, and for the whole request
    """

    def __init__(
        self,
        addresses: Resolver,
        context: Callable[[], ssl.SSLContext],
        *,
        parent_url: str | None = None,
        sign: Sign | None = None,
        connect: float = 10.0,
        total: float = 40.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._addresses = addresses
        self._context = context
        self._kept_context: ssl.SSLContext | None = None
        self._parent = parent_url
        self._sign = sign
        self._connect = connect
        self._total = total
        self._clock = clock

    async def ask(self, grant: Generator[Step, Answer, T], networks: Networks = ()) -> T:
        """Run a grant to its end. Raises TokenRefused, or ValueError naming what the grant lacks."""
        try:
            step = next(grant)
            while True:
                try:
                    answer = await self._answer(step, networks)
                except TokenRefused as refusal:
                    step = grant.throw(refusal)  # a login of several steps may know what to do without one
                else:
                    step = grant.send(answer)
        except StopIteration as done:
            issued: T = done.value
            return issued

    async def _answer(self, step: Step, networks: Networks) -> Answer:
        if isinstance(step, TokenRequest):
            return await self.send(step, networks)
        if isinstance(step, WorkloadToken):
            return await _own_token(step.path)
        if self._sign is None:
            raise ValueError("a transit_key needs a Vault store")
        try:
            return await self._sign(step)
        except OSError:
            raise TokenRefused("down", "signature") from None

    async def send(self, request: TokenRequest, networks: Networks = ()) -> TokenReply:
        """One request. Raises TokenRefused: `down` when it was not sent, `unknown` when its answer was lost."""
        import aiohttp.client  # noqa: F401  the first import takes a while, which must not count as the endpoint's

        sent = _Sent()
        try:
            async with asyncio.timeout(self._total):
                return await self._send(request, networks, sent)
        except GatewayError as refusal:
            refused = refusal.code.name == "destination_refused"
            raise TokenRefused("down", "address_refused" if refused else "unreachable") from None
        except (OSError, TimeoutError, ValueError):
            # aiohttp's ClientError is looked at inside; what arrives here is the time limit or the system's word.
            raise TokenRefused(*(("unknown", "no_reply") if sent.begun else ("down", "unreachable"))) from None

    async def _send(self, request: TokenRequest, networks: Networks, sent: _Sent) -> TokenReply:
        import aiohttp

        parts = urlsplit(request.url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        found = self._addresses.resolve(host, port, networks)
        checked = found if isinstance(found, tuple) else await found
        tls = self._tls(request.certificate) if parts.scheme == "https" else True
        trace = aiohttp.TraceConfig()
        trace.on_request_headers_sent.append(sent.mark)
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                resolver=None if self._parent else _checked_resolver(checked, port), use_dns_cache=False, limit=1
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=self._total, connect=self._connect, sock_connect=self._connect),
            trust_env=False,
            trace_configs=[trace],
            skip_auto_headers=["User-Agent"],
        )
        try:
            async with (
                session,
                session.request(
                    request.method,
                    request.url,
                    data=request.body or None,
                    headers=request.headers,
                    ssl=tls,
                    proxy=self._parent,
                    allow_redirects=False,
                ) as reply,
            ):
                body = await _bounded(reply)
                headers = {name.lower(): value for name, value in reply.headers.items()}
                return TokenReply(reply.status, headers, body, self._clock())
        except aiohttp.ClientError:
            raise TokenRefused(*(("unknown", "no_reply") if sent.begun else ("down", "unreachable"))) from None

    def _tls(self, certificate: ClientCertificate | None) -> ssl.SSLContext:
        if certificate is not None:
            context = self._context()
            _show(context, certificate)
            return context
        if self._kept_context is None:
            self._kept_context = self._context()
        return self._kept_context


async def _own_token(path: str) -> bytes:
    try:
        return await asyncio.to_thread(workload_token, path)
    except OSError:
        raise TokenRefused("down", "workload_token") from None


class _Sent:
    """Whether a request has begun to leave."""

    def __init__(self) -> None:
        self.begun = False

    async def mark(self, *_: Any) -> None:
        self.begun = True


def _show(context: ssl.SSLContext, certificate: ClientCertificate) -> None:
    """The library reads certificates from files only: one that only we can open, gone when it has been read."""
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(f"{certificate.certificate.strip()}\n{certificate.private_key.reveal().strip()}\n")
        file.flush()
        context.load_cert_chain(file.name)


async def _bounded(reply: aiohttp.ClientResponse) -> bytes:
    body = b""
    async for piece in reply.content.iter_chunked(65_536):
        body += piece
        if len(body) > MAX_BYTES:
            raise ValueError("too long")
    return body


def _checked_resolver(checked: tuple[str, ...], port: int) -> aiohttp.abc.AbstractResolver:
    """Gives the library the addresses that were checked, so that nothing is looked up a second time. A parent proxy is
    the operator's: its name is looked up as it stands."""
    import socket

    from aiohttp.abc import AbstractResolver, ResolveResult

    class Checked(AbstractResolver):
        async def resolve(
            self, host: str, port: int = port, family: socket.AddressFamily = socket.AF_UNSPEC
        ) -> list[ResolveResult]:
            return [_row(host, address, port) for address in checked]

        async def close(self) -> None: ...

    def _row(host: str, address: str, port: int) -> ResolveResult:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return ResolveResult(
            hostname=host, host=address, port=port, family=family, proto=0, flags=socket.AI_NUMERICHOST
        )

    return Checked()
