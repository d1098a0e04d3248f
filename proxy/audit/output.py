"""The sinks that are a descriptor: standard output, and a file that is rotated by others or by size."""

from __future__ import annotations

import os
import select
import stat
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol

from proxy.audit.outbox import Outbox
from proxy.errors import ConfigurationError, Fault

LOOK_SECONDS: Final = 0.1
"""How long a file is written to before it is looked whether its path leads elsewhere."""

Sync = Literal["never", "opened", "always"]


class Output(Protocol):
    """Where lines go. `drain` is called by one thread at a time, the rest by the loop's."""

    outbox: Outbox

    @property
    def immediate(self) -> bool:
        """Whether `drain` is quick enough for a call to wait for it."""

    def drain(self, *, opened: bool = False) -> bool:
        """Write all that waits, now; `opened` when a call waits for it. False when something is left."""

    def settle(self, seconds: float) -> None:
        """Wait at most so long until more can be written."""

    def close(self) -> None:
        """Count what could not be written as dropped; let go of the sink."""


@dataclass(frozen=True, slots=True)
class Rotation:
    """When an audit file is put aside, and how many such are kept: `audit.jsonl.1` is the newest of them."""

    size: int
    keep: int


class Descriptor:
    """A file or standard output, written by one thread at a time."""

    immediate: bool = True

    def __init__(
        self, path: Path | None, descriptor: int = 1, *, sync: Sync = "never", rotation: Rotation | None = None
    ) -> None:
        """Writes to `path`, made 0600 if missing, or to `descriptor` (standard output) when there is none.

        A file is opened again when its path leads to another file, so that others can rotate it by renaming; with
        `rotation` it is put aside when it has grown to that size. `sync` says when lines are forced to the disk.
        Raises ConfigurationError when the file cannot be opened.
        """
        self.outbox = Outbox()
        self._path = path
        self._descriptor = descriptor if path is None else _open_first(path)
        self._sync = sync
        self._rotation = rotation
        self._lock = threading.Lock()
        self._sent = 0  # bytes of the head that are written
        self._look_again = 0.0
        self._pipe = not stat.S_ISREG(os.fstat(self._descriptor).st_mode)

    def drain(self, *, opened: bool = False) -> bool:
        """Write all that waits. False when something is left because the descriptor would not take it."""
        with self._lock:
            self._follow()
            before = self.outbox.waiting
            while (head := self.outbox.head) is not None:
                if not self._write_some(head):
                    return False
            return self._synced(opened) if before else True

    def settle(self, seconds: float) -> None:
        """Waits at most `seconds` for a pipe to take more."""
        self._writable(seconds)

    def close(self) -> None:
        """Count what could not be written as dropped; close a file."""
        with self._lock:
            self.outbox.give_up(self._sent)
            if self._path is not None:
                os.close(self._descriptor)

    def _write_some(self, lines: bytes) -> bool:
        """Write from the head of the outbox, which stays there until all of it is written. False when nothing went."""
        part = lines
        if self._pipe:
            # A reader that has stopped must not stop the loop too: a pipe that polls writable takes this much at once.
            if not self._writable(0):
                return False
            part = lines[self._sent : self._sent + select.PIPE_BUF]
        elif self._sent:
            part = lines[self._sent :]
        try:
            taken = os.write(self._descriptor, part)
        except OSError:
            return False
        self.outbox.written += part.count(b"\n", 0, taken)
        self._sent += taken
        if self._sent == len(lines):
            self.outbox.done()
            self._sent = 0
        return True

    def _writable(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        return bool(poll.poll(seconds * 1000))

    def _synced(self, opened: bool) -> bool:
        if self._pipe or self._sync == "never" or (self._sync == "opened" and not opened):
            return True
        try:
            os.fdatasync(self._descriptor)
        except OSError:
            return False  # the lines are written, and may be lost with the machine: not what was asked for
        return True

    def _follow(self) -> None:
        """Look whether the path leads elsewhere now: never inside a line, and not for each line of a burst."""
        if self._path is None or self._sent or time.monotonic() < self._look_again:
            return
        self._look_again = time.monotonic() + LOOK_SECONDS
        try:
            there = os.stat(self._path)
        except OSError:
            there = None
        ours = os.fstat(self._descriptor)
        if there is None or (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino):
            self._reopen(self._path)
        elif self._rotation is not None and ours.st_size >= self._rotation.size:
            put_aside(self._path, self._rotation.keep)
            self._reopen(self._path)

    def _reopen(self, path: Path) -> None:
        try:
            fresh = _open(path)
        except OSError:
            return  # the old file still takes lines, which is better than none
        os.close(self._descriptor)
        self._descriptor = fresh


def put_aside(path: Path, keep: int) -> None:
    """Renames a file to NAME.1, what was that to NAME.2, and so on; the one after the last of `keep` is removed.

    A rename that fails leaves the file where it is: it grows, and no line is lost.
    """
    try:
        for number in range(keep - 1, 0, -1):
            older = aside(path, number)
            if older.exists():
                older.replace(aside(path, number + 1))
        path.replace(aside(path, 1))
    except OSError:
        return


def aside(path: Path, number: int) -> Path:
    """The name of the `number`th file that was put aside."""
    return path.with_name(f"{path.name}.{number}")


def _open(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _open_first(path: Path) -> int:
    try:
        return _open(path)
    except OSError as error:
        raise ConfigurationError([Fault(str(path), 0, f"cannot be opened for audit lines: {error.strerror}")]) from None
