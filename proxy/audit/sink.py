"""Where audit lines go: a buffer that the event loop fills and a thread that writes.

    append ─▶ buffer (loop only) ─▶ outbox (shared queue, in order) ─▶ one writer at a time ─▶ descriptor

Lines leave the loop every 100 ms or 64 KB. An `opened` line is written before its call goes on, with all that waits
before it. A write that fails is tried again at the next flush; what does not fit the bound meanwhile is dropped and
counted. Nothing here ever raises into a call.
"""

from __future__ import annotations

import asyncio
import os
import select
import stat
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec

from proxy.audit.rendering import Clock
from proxy.errors import ConfigurationError, Fault
from proxy.model import AuditRecord, Caller

FLUSH_BYTES: Final = 64 * 1024
FLUSH_SECONDS: Final = 0.1
HELD_BYTES: Final = 4 * 1024 * 1024
ROTATION_SECONDS: Final = 0.1
CLOSE_SECONDS: Final = 2.0


class CredentialRead(msgspec.Struct, gc=False):
    """One read of the credential store: who for, which record, how it ended. Never a value."""

    time: str
    outcome: str
    call_id: str
    tenant: str
    actor: str
    agent: str
    record: str
    result: str


class Output:
    """The descriptor behind the sink, written by one thread at a time.

    Counts lines in `written` and `dropped`. A file is opened again when its path leads to another file, so that it can
    be rotated by renaming it.
    """

    def __init__(self, path: Path | None, descriptor: int = 1) -> None:
        """Writes to `path`, made 0600 if missing, or to `descriptor` (standard output) when there is none.

        Raises ConfigurationError when the file cannot be opened.
        """
        self.written = 0
        self.dropped = 0
        self._path = path
        self._descriptor = descriptor if path is None else _open_first(path)
        self._outbox: deque[bytes] = deque()
        self._handed_over = 0  # bytes; only the loop's thread adds here
        self._let_go = 0  # bytes; only the holder of the lock adds here
        self._lock = threading.Lock()
        self._sent = 0
        self._look_again = 0.0
        self._pipe = not stat.S_ISREG(os.fstat(self._descriptor).st_mode)

    @property
    def waiting(self) -> int:
        """Bytes handed over and not yet written."""
        return self._handed_over - self._let_go

    @property
    def idle(self) -> bool:
        """Whether nothing waits."""
        return not self._outbox

    def hand_over(self, lines: bytes) -> None:
        """Queue whole lines, in order, for the next `drain`; drops the lines when too much waits already."""
        if self.waiting + len(lines) > HELD_BYTES:
            self.dropped += lines.count(b"\n")
        else:
            self._handed_over += len(lines)
            self._outbox.append(lines)

    def drain(self) -> bool:
        """Write all that waits. False when something is left because the descriptor would not take it."""
        with self._lock:
            self._follow_rotation()
            while self._outbox:
                if not self._write_some(self._outbox[0]):
                    return False
            return True

    def wait_writable(self, seconds: float) -> bool:
        """Whether a pipe takes more, waiting at most `seconds` for it."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        return bool(poll.poll(seconds * 1000))

    def close(self) -> None:
        """Count what could not be written as dropped; close a file."""
        with self._lock:
            for lines in self._outbox:
                self.dropped += lines.count(b"\n", self._sent)
                self._sent = 0
            self._outbox.clear()
            if self._path is not None:
                os.close(self._descriptor)

    def _write_some(self, lines: bytes) -> bool:
        """Write from the head of the outbox, which stays there until all of it is written. False when nothing went."""
        part = lines
        if self._pipe:
            # A reader that has stopped must not stop the loop too: a pipe that polls writable takes this much at once.
            if not self.wait_writable(0):
                return False
            part = lines[self._sent : self._sent + select.PIPE_BUF]
        elif self._sent:
            part = lines[self._sent :]
        try:
            taken = os.write(self._descriptor, part)
        except OSError:
            return False
        self.written += part.count(b"\n", 0, taken)
        self._sent += taken
        if self._sent == len(lines):
            self._outbox.popleft()
            self._let_go += self._sent
            self._sent = 0
        return True

    def _follow_rotation(self) -> None:
        """Look whether the path leads elsewhere now: never inside a line, and not for each line of a burst."""
        if self._path is None or self._sent or time.monotonic() < self._look_again:
            return
        self._look_again = time.monotonic() + ROTATION_SECONDS
        try:
            there = os.stat(self._path)
        except OSError:
            there = None
        ours = os.fstat(self._descriptor)
        if there is None or (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino):
            self._reopen(self._path)

    def _reopen(self, path: Path) -> None:
        try:
            fresh = _open(path)
        except OSError:
            return  # the old file still takes lines, which is better than none
        os.close(self._descriptor)
        self._descriptor = fresh


def _open(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _open_first(path: Path) -> int:
    try:
        return _open(path)
    except OSError as error:
        raise ConfigurationError([Fault(str(path), 0, f"cannot be opened for audit lines: {error.strerror}")]) from None


class AuditSink:
    """Encodes records into lines and sees to it that they are written. Used on the event loop's thread only."""

    def __init__(self, output: Output) -> None:
        self.output = output
        self.clock = Clock()
        encoder = msgspec.json.Encoder()
        self._encode = encoder.encode
        self._encode_into = encoder.encode_into
        self._buffer = bytearray()
        self._timer: asyncio.TimerHandle | None = None
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="audit")
        self._closed = False

    def write(self, record: AuditRecord | CredentialRead) -> None:
        """Add one line; it is written within 100 ms."""
        buffer = self._buffer
        length = len(buffer)
        try:
            self._encode_into(record, buffer, -1)
        except (ValueError, TypeError):  # text that is not Unicode: this line is lost, the call is not
            del buffer[length:]
            self.output.dropped += 1
            return
        buffer += b"\n"
        if len(buffer) >= FLUSH_BYTES:
            self._flush()
        elif self._timer is None:
            self._arm()

    def opened(self, record: AuditRecord) -> bool:
        """Write at once that a write, an upgrade or a tunnel is about to be sent, after all lines before it.

        True once the line is in the kernel's hands; False when the sink would not take it (it is tried again).
        """
        outcome = record.outcome
        record.outcome = "opened"
        try:
            line = self._encode(record)
        except (ValueError, TypeError):
            self.output.dropped += 1
            return False
        finally:
            record.outcome = outcome
        self._hand_over()
        self.output.hand_over(line + b"\n")
        if self.output.drain():
            return True
        if self._timer is None:
            self._arm()
        return False

    def credential_read(self, record: str, result: str, caller: Caller | None, now: float, call_id: str = "") -> None:
        """Add a line for one store read. `record` is its path below the mount, `now` epoch seconds."""
        tenant, actor, agent = (caller.tenant, caller.actor, caller.agent) if caller else ("", "", "")
        stamp = self.clock.stamp(now)
        self.write(CredentialRead(stamp, "credential_read", call_id, tenant, actor, agent, record, result))

    def close(self) -> None:
        """Write what is left, waiting at most two seconds for a full pipe, and stop the writer."""
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._hand_over()
        self._writer.shutdown(wait=True)
        end = time.monotonic() + CLOSE_SECONDS
        while not self.output.drain() and time.monotonic() < end:
            self.output.wait_writable(0.05)
        self.output.close()

    def _arm(self) -> None:
        """A timer only while something waits, so that an idle process sleeps."""
        if not self._closed:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self._flush)

    def _hand_over(self) -> None:
        if self._buffer:
            self.output.hand_over(bytes(self._buffer))
            self._buffer.clear()

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._hand_over()
        if self._closed or self.output.idle:
            return
        loop = asyncio.get_running_loop()
        self._writer.submit(self.output.drain).add_done_callback(lambda done: self._after(loop, done.result()))

    def _after(self, loop: asyncio.AbstractEventLoop, complete: bool) -> None:
        """On the writer's thread: come back later for what was left."""
        if complete or self._closed:
            return
        try:
            loop.call_soon_threadsafe(self._come_back)
        except RuntimeError:
            return  # the loop is closed; close() writes the rest

    def _come_back(self) -> None:
        if self._timer is None:
            self._arm()
