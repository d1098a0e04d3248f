"""One request of our own to an instance of our own, and all that comes back."""

from __future__ import annotations

import asyncio
from typing import NamedTuple


class Raw(NamedTuple):
    """The bytes of the reply; where there are none, `why`."""

    reply: bytes = b""
    why: str = ""


async def asked(proxy: tuple[str, int], request: bytes, seconds: float) -> Raw:
    """Sends a request that asks for the connection to be closed, and reads until it is."""
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection(*proxy)
            writer.write(request)
            reply = await reader.read()
            writer.close()
    except (OSError, TimeoutError) as error:
        return Raw(why=type(error).__name__)
    return Raw(reply)
