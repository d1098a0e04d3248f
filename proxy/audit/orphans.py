"""Calls that were opened and never closed: what a process that died left in its audit file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

TAIL_BYTES: Final = 16 * 1024 * 1024
"""How much of the file's end is looked at: more than was written while any call may have been running."""


_OPENED: Final = b'"opened"'


def orphans(path: Path, end: int) -> list[dict[str, Any]]:
    """The `opened` lines before byte `end` of the file that no later one of the same call closes, oldest first.

    A file that cannot be read has none: the sink will say what is wrong with it.
    """
    try:
        with path.open("rb") as file:
            return unclosed(_lines(file, max(0, end - TAIL_BYTES), end))
    except OSError:
        return []


def _lines(file: BinaryIO, start: int, end: int) -> Iterator[bytes]:
    """The whole lines between two places, one after the other: the file may be larger than what we want to hold."""
    file.seek(start)
    if start:
        file.readline()  # perhaps only the end of one
    while file.tell() < end and (line := file.readline()):
        yield line


def unclosed(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    """The records of `opened` lines without a closing one. Lines that are no records (a torn one) are passed over."""
    waiting: dict[str, dict[str, Any]] = {}
    for line in lines:
        if not waiting and _OPENED not in line:
            continue
        try:
            record = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.MsgspecError:
            continue
        call = str(record.get("call_id", ""))
        if record.get("outcome") == "opened":
            waiting[call] = record
        elif record.get("outcome") != "credential_read":
            waiting.pop(call, None)
    return list(waiting.values())
