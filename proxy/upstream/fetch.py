"""Documents of the operator's own choosing (key sets), fetched over verified TLS. Not for agents' calls."""

from __future__ import annotations

import ssl
from collections.abc import Callable

MAX_BYTES = 1_048_576
SECONDS = 10.0


class Fetcher:
    """GETs a document: no redirect followed, no proxy variable of the environment used, the body bounded."""

    def __init__(self, context: Callable[[], ssl.SSLContext], parent_url: str | None) -> None:
        self._context = context
        self._parent = parent_url

    async def fetch(self, url: str) -> bytes:
        """The body of a 200. Raises OSError or ValueError saying what was wrong."""
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=SECONDS)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, trust_env=False, auto_decompress=True) as session,
                session.get(url, ssl=self._context(), proxy=self._parent, allow_redirects=False) as reply,
            ):
                if reply.status != 200:
                    raise ValueError(f"answered {reply.status}")
                body = b""
                while len(body) <= MAX_BYTES and (piece := await reply.content.read(MAX_BYTES)):
                    body += piece  # a read returns what is there, which may be a part
        except aiohttp.ClientError as error:
            raise OSError(f"could not be fetched: {type(error).__name__}") from None
        if len(body) > MAX_BYTES:
            raise ValueError(f"longer than {MAX_BYTES} bytes")
        return body
