"""Whole lines on their way out, in order and within a bound, and what is said of those that did not fit."""

from __future__ import annotations

import time
from collections import deque
from typing import Final

import msgspec

from proxy.audit.rendering import Clock

HELD_BYTES: Final = 4 * 1024 * 1024
"""Bytes of lines that wait at most, for a sink that takes none."""


class Gap(msgspec.Struct, gc=False):
    """Says in the log itself that lines are missing there, and how many."""

    time: str
    dropped: int
    outcome: str = "audit_gap"


class Outbox:
    """A queue of chunks of whole lines: the loop's thread adds, whoever holds the sink's lock takes.

    Counts lines in `written` and `dropped`. Once there is room again after lines were dropped, one that says how many
    goes first, so that a reader of the log need not know the metric.
    """

    def __init__(self) -> None:
        self.written = 0
        self.dropped = 0
        self._chunks: deque[bytes] = deque()
        self._handed_over = 0  # bytes; only the loop's thread adds here
        self._let_go = 0  # bytes; only the taker adds here
        self._untold = 0  # dropped lines that no line has told of yet
        self._clock = Clock()

    @property
    def waiting(self) -> int:
        """Bytes handed over and not yet written."""
        return self._handed_over - self._let_go

    @property
    def head(self) -> bytes | None:
        """The chunk to write next; it stays until `done`."""
        return self._chunks[0] if self._chunks else None

    def add(self, lines: bytes) -> None:
        """Queue whole lines; they are dropped when too much waits already."""
        if self.waiting + len(lines) > HELD_BYTES:
            self.lose(lines.count(b"\n"))
            return
        if self._untold:
            lines = self._gap() + lines
        self._handed_over += len(lines)
        self._chunks.append(lines)

    def lose(self, lines: int) -> None:
        """Count lines that will not be written."""
        self.dropped += lines
        self._untold += lines

    def done(self) -> None:
        """The head is written."""
        self._let_go += len(self._chunks.popleft())

    def give_up(self, sent: int = 0) -> None:
        """Nothing more will be written: what waits is lost, but for the first `sent` bytes of the head."""
        while self._chunks:
            self.lose(self._chunks[0].count(b"\n", sent))
            self.done()
            sent = 0

    def _gap(self) -> bytes:
        gap = Gap(self._clock.stamp(time.time()), self._untold)
        self._untold = 0
        return msgspec.json.encode(gap) + b"\n"
