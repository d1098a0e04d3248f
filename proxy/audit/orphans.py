"""Calls that were opened and never closed: what a process that died left in its audit file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from proxy.model import AuditRecord

TAIL_BYTES: Final = 16 * 1024 * 1024
"""How much of the file's end is looked at: more than was written while any call may have been running."""


_OPENED: Final = b'"opened"'
_DECODER: Final = msgspec.json.Decoder(AuditRecord)


def orphans(path: Path, end: int) -> list[AuditRecord]:
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


def unclosed(lines: Iterable[bytes]) -> list[AuditRecord]:
    """The records of `opened` lines without a closing one. Lines that are no calls' (a torn one, a read of the store)
    are passed over."""
    waiting: dict[str, AuditRecord] = {}
    for line in lines:
        if not waiting and _OPENED not in line:
            continue
        try:
            record = _DECODER.decode(line)
        except msgspec.MsgspecError:
            continue
        if record.outcome == "opened":
            waiting[record.call_id] = record
        else:
            waiting.pop(record.call_id, None)
    return list(waiting.values())
