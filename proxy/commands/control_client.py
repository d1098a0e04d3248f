"""A question to a running instance through its control socket."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

SECONDS = 10.0


def ask(path: Path, route: str, question: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to POST `route`. Raises ClickException when nobody answers, or with the refusal's own words."""
    return asyncio.run(_ask(path, route, question))


async def _ask(path: Path, route: str, question: Mapping[str, Any]) -> dict[str, Any]:
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=SECONDS)
    try:
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path)), timeout=timeout) as session,
            session.post(f"http://control{route}", data=msgspec.json.encode(question)) as reply,
        ):
            answer = msgspec.json.decode(await reply.read(), type=dict[str, Any])
    except (aiohttp.ClientError, OSError):
        raise click.ClickException(f"{path}: no instance answers there; start `sluicegate serve`") from None
    if reply.status != 200:
        raise click.ClickException("; ".join([str(answer.get("error")), *answer.get("faults", ())]))
    return answer
