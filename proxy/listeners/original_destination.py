"""Where a redirected connection was going before the firewall sent it here, and whose it is.

The kernel keeps the address that a REDIRECT replaced (netfilter's SO_ORIGINAL_DST, linux/netfilter_ipv4.h and
linux/netfilter_ipv6/ip6_tables.h). Only the port of it is ever used: where a call goes is said by its checked name.
"""

from __future__ import annotations

import socket
import struct
from pathlib import Path
from typing import Any, Final, NamedTuple

_SO_ORIGINAL_DST: Final = 80
_SIZE: Final = {socket.AF_INET: 16, socket.AF_INET6: 28}
_LEVEL: Final = {socket.AF_INET: socket.IPPROTO_IP, socket.AF_INET6: socket.IPPROTO_IPV6}
PROC: Final = Path("/proc")


class Redirected(NamedTuple):
    """The address that the client dialled."""

    address: str
    port: int


def original_destination(sock: Any) -> Redirected | None:
    """What the client of an accepted connection dialled; None when it was not redirected but came to us by itself."""
    family = sock.family
    try:
        raw = sock.getsockopt(_LEVEL[family], _SO_ORIGINAL_DST, _SIZE[family])
    except (OSError, KeyError):
        return None  # no connection tracking has seen it, so nothing has redirected it
    found = _parsed(family, raw)
    return None if found == Redirected(*sock.getsockname()[:2]) else found


def _parsed(family: int, raw: bytes) -> Redirected:
    """struct sockaddr_in or sockaddr_in6 (ip(7), ipv6(7))."""
    (port,) = struct.unpack_from("!H", raw, 2)
    start, size = (4, 4) if family == socket.AF_INET else (8, 16)
    return Redirected(socket.inet_ntop(family, raw[start : start + size]), port)


def owner(client: tuple[str, int], dialled: Redirected, proc: Path = PROC) -> int | None:
    """The user who holds the client's end of a connection made on this machine (proc(5)); None when nobody does."""
    ends = (_hexadecimal(*client), _hexadecimal(*dialled))
    table = "tcp6" if ":" in client[0] else "tcp"
    try:
        lines = (proc / "net" / table).read_text().splitlines()
    except OSError:
        return None
    for line in lines[1:]:
        columns = line.split()
        if (columns[1], columns[2]) == ends:
            return int(columns[7])
    return None


def _hexadecimal(address: str, port: int) -> str:
    """An end as the kernel prints it: the address in words of 32 bits, each in the machine's byte order."""
    packed = socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"
