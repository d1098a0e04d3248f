"""The product on a machine where some names lead to a server of the tests and no other name leads anywhere.

    redirected.py HOST[,HOST…] PORT COMMAND…

Each HOST is 127.0.0.1, and what would be dialled at its port 443 is dialled at PORT. The destination of the call stays
the real one for policy, credential, server name and certificate.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from typing import Any

from proxy.model import Destination
from proxy.upstream import dial, resolver

connect = dial.Dialler._connect


def lead(hosts: frozenset[str], port: int) -> None:
    async def getaddrinfo(host: str) -> Sequence[tuple[Any, ...]]:
        if host not in hosts:
            raise socket.gaierror(socket.EAI_NONAME, "no such name in this test")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]

    async def redirected(self: dial.Dialler, destination: Destination, address: str) -> Any:
        assert (destination.host in hosts, address) == (True, "127.0.0.1"), destination
        return await connect(self, destination._replace(port=port), address)

    resolver.Resolver.__init__.__defaults__ = (getaddrinfo,)
    dial.Dialler._connect = redirected  # type: ignore[method-assign]


if __name__ == "__main__":
    lead(frozenset(sys.argv.pop(1).split(",")), int(sys.argv.pop(1)))
    from proxy.cli import main

    main()
