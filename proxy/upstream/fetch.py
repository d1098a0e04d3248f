"""Addresses of the operator's own choosing (key sets, revocation), asked over verified TLS. Not for agents' calls."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import aiohttp

MAX_BYTES = 1_048_576
SECONDS = 10.0


class Fetcher:
    """Asks for a document: no redirect followed, no proxy variable of the environment used, the body bounded."""

    def __init__(self, context: Callable[[], ssl.SSLContext], parent_url: str | None) -> None:
        self._context = context
        self._parent = parent_url

    async def fetch(self, url: str) -> bytes:
        """The body of a 200. Raises OSError or ValueError saying what was wrong."""
        status, body = await self._ask("GET", url, {}, None)
        if status != 200:
            raise ValueError(f"answered {status}")
        return body

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        """(status, body) of the answer, whatever the status. Raises OSError or ValueError as `fetch` does."""
        return await self._ask("POST", url, headers, body)

    async def _ask(self, method: str, url: str, headers: Mapping[str, str], sent: bytes | None) -> tuple[int, bytes]:
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=SECONDS)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, trust_env=False, auto_decompress=True) as session,
                session.request(
                    method,
                    url,
                    headers=headers,
                    data=sent or None,
                    ssl=self._context(),
                    proxy=self._parent,
                    allow_redirects=False,
                ) as reply,
            ):
                body = await _bounded(reply.content)
        except aiohttp.ClientError as error:
            raise OSError(f"could not be fetched: {type(error).__name__}") from None
        return reply.status, body


async def _bounded(content: aiohttp.StreamReader) -> bytes:
    body = bytearray()
    async for part in content.iter_chunked(MAX_BYTES):
        body += part
        if len(body) > MAX_BYTES:
            raise ValueError(f"longer than {MAX_BYTES} bytes")
    return bytes(body)
