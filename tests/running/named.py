"""The product with a name service of its own: every name below `.test` is this machine. For tests of whole commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proxy.upstream import resolver

real = resolver.system_getaddrinfo


async def getaddrinfo(host: str) -> Sequence[tuple[Any, ...]]:
    return await real("127.0.0.1" if host.endswith(".test") else host)


if __name__ == "__main__":
    resolver.Resolver.__init__.__defaults__ = (getaddrinfo,)
    from proxy.cli import main

    main()
