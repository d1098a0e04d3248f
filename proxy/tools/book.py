"""The tools of a catalogue, and which of them a caller may call."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

from policies.decide import Denied
from proxy.catalog import Catalog
from proxy.catalog.tool import Tool
from proxy.errors import GatewayError
from proxy.model import Caller, Destination, Place
from proxy.routing import Snapshot


class Book:
    """The tools by name, read anew when the snapshot was replaced."""

    def __init__(self) -> None:
        self._catalog: Catalog | None = None
        self._tools: Mapping[str, Tool] = {}

    async def tools(self, catalog: Catalog) -> Mapping[str, Tool]:
        """All tools of the catalogue. Its files are read whole for that, once, and off the loop."""
        if catalog is not self._catalog:
            self._tools = await asyncio.to_thread(lambda: dict(sorted(_of(catalog))))
            self._catalog = catalog
        return self._tools

    async def offered(self, snapshot: Snapshot, caller: Caller) -> list[Tool]:
        """The tools that policy leaves this caller, in the order of their names."""
        return [tool for tool in (await self.tools(snapshot.catalog)).values() if _allowed(snapshot, caller, tool)]


def _of(catalog: Catalog) -> Iterator[tuple[str, Tool]]:
    for name in catalog.outlines:
        provider = catalog.by_name(name)
        if provider is not None:
            yield from ((tool.name, tool) for tool in provider.tools)


def _allowed(snapshot: Snapshot, caller: Caller, tool: Tool) -> bool:
    host = tool.host.replace("{", "").replace("}", "")
    place = Place(Destination("https", host, 443), tool.path.encode(), tool.path)
    try:
        plan = snapshot.lead(caller, place).plan
    except GatewayError:
        return False
    return not isinstance(plan.decide(tool.method, tool.path, tool.operation, write=tool.write), Denied)
