"""Calls that were opened and never closed: what a process that died left in its audit file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

TAIL_BYTES: Final = 16 * 1024 * 1024
"""How much of the file's end is looked at: more than was written while any call may have been running."""


def orphans(path: Path, end: int) -> list[dict[str, Any]]:
    """The `opened` lines before byte `end` of the file that no later one of the same call closes, oldest first.

    A file that cannot be read has none: the sink will say what is wrong with it.
    """
    try:
        with path.open("rb") as file:
            start = max(0, end - TAIL_BYTES)
            file.seek(start)
            lines = file.read(end - start).split(b"\n")
    except OSError:
        return []
    return unclosed(lines[1:] if start else lines)


def unclosed(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    """The records of `opened` lines without a closing one. Lines that are no records (a torn one) are passed over."""
    waiting: dict[str, dict[str, Any]] = {}
    for line in lines:
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
