"""Whose connection is this? For clients on this machine that cannot present a token.

The JDK's HTTP clients send no proxy credentials unless the program was written to. Such a client is known by its
process: the kernel says which socket is at the other end (proc(5), /proc/net/tcp), and the process that holds it must
have been started with the session's token in its environment. That is as good as presenting the token: who is not
given it cannot have it there, and other users' processes cannot be looked into.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
_MAPPED: Final = "0000000000000000FFFF0000"
"""::ffff:0:0/96 as /proc/net/tcp6 writes it: a client with dual-stack sockets reaches 127.0.0.1 that way."""


def holder_has(secret: bytes, client: tuple[str, int], server: tuple[str, int], proc: Path = PROC) -> bool:
    """Whether the process at the client's end of a loopback connection has `secret` in its initial environment.

    `client` and `server` are IPv4 address and port. False when nobody of ours holds that socket.
    """
    inode = _inode(client, server, proc)
    if inode is None:
        return False
    wanted = f"socket:[{inode}]"
    return any(_holds(process, wanted) for process in _started_with(secret, proc))


def _inode(client: tuple[str, int], server: tuple[str, int], proc: Path) -> str | None:
    local, remote = _hexadecimal(client), _hexadecimal(server)
    for table, prefix in (("tcp", ""), ("tcp6", _MAPPED)):
        try:
            lines = (proc / "net" / table).read_text().splitlines()
        except OSError:
            continue
        for line in lines[1:]:
            columns = line.split()
            if columns[1] == prefix + local and columns[2] == prefix + remote:
                return columns[9]
    return None


def _hexadecimal(end: tuple[str, int]) -> str:
    """An address as the kernel prints it: the IPv4 address as a little-endian number."""
    octets = bytes(map(int, end[0].split(".")))
    return f"{octets[::-1].hex().upper()}:{end[1]:04X}"


def _started_with(secret: bytes, proc: Path) -> Iterator[Path]:
    own = str(os.getpid())
    for process in proc.iterdir():
        if process.name.isdigit() and process.name != own:
            try:
                if secret in (process / "environ").read_bytes():
                    yield process
            except OSError:  # ended meanwhile, or not ours to look into
                continue


def _holds(process: Path, wanted: str) -> bool:
    try:
        with os.scandir(process / "fd") as descriptors:
            return any(_target(descriptor.path) == wanted for descriptor in descriptors)
    except OSError:
        return False


def _target(descriptor: str) -> str:
    try:
        return os.readlink(descriptor)
    except OSError:
        return ""
