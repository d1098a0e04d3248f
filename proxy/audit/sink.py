"""Where audit lines go: a buffer that the event loop fills and a thread that writes.

    write ─▶ buffer (loop only) ─▶ outbox (shared queue, in order) ─▶ one writer at a time ─▶ output

Lines leave the loop every 100 ms or 64 KB. An `opened` line is written before its call goes on, with all that waits
before it. A write that fails is tried again at the next flush. What happens when the output takes nothing for long is
the operator's choice: what does not fit the bound is dropped, counted and told of by a line in the log, or (`blocks`)
`full` says that no further call may leave until it takes lines again. Nothing here ever raises into a call.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

from proxy.audit.outbox import HELD_BYTES
from proxy.audit.output import Output
from proxy.audit.rendering import Clock
from proxy.model import AuditRecord, Caller

FLUSH_BYTES: Final = 64 * 1024
FLUSH_SECONDS: Final = 0.1
FULL_BYTES: Final = HELD_BYTES * 3 // 4
"""Waiting bytes from which on no call leaves, where it is so chosen. The rest is for the lines of those in progress."""
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


class AuditSink:
    """Encodes records into lines and sees to it that they are written. Used on the event loop's thread only."""

    def __init__(self, output: Output, *, blocks: bool = False) -> None:
        self.output = output
        self.outbox = output.outbox
        self.blocks = blocks
        """Whether calls wait for a sink that takes no lines."""
        self.clock = Clock()
        encoder = msgspec.json.Encoder()
        self._encode = encoder.encode
        self._encode_into = encoder.encode_into
        self._buffer = bytearray()
        self._timer: asyncio.TimerHandle | None = None
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="audit")
        self._closed = False

    @property
    def full(self) -> bool:
        """Whether no call may leave now, since its line might be lost. Refusals still find room."""
        return self.blocks and self.outbox.waiting > FULL_BYTES

    def write(self, record: AuditRecord | CredentialRead) -> None:
        """Add one line; it is written within 100 ms."""
        buffer = self._buffer
        length = len(buffer)
        try:
            self._encode_into(record, buffer, -1)
        except (ValueError, TypeError):  # text that is not Unicode: this line is lost, the call is not
            del buffer[length:]
            self.outbox.lose(1)
            return
        buffer += b"\n"
        if len(buffer) >= FLUSH_BYTES:
            self._flush()
        elif self._timer is None:
            self._arm()

    def opened(self, record: AuditRecord) -> bool:
        """Write at once that a write, an upgrade or a tunnel is about to be sent, after all lines before it.

        False when the call may not go on: the output would not take the line (it is tried again), and `blocks`.
        """
        outcome = record.outcome
        record.outcome = "opened"
        try:
            line = self._encode(record)
        except (ValueError, TypeError):
            self.outbox.lose(1)
            return not self.blocks
        finally:
            record.outcome = outcome
        self._hand_over()
        self.outbox.add(line + b"\n")
        if not self.output.immediate:
            self._flush()
            return not self.full
        if self.output.drain(opened=True):
            return True
        if self._timer is None:
            self._arm()
        return not self.blocks

    def orphaned(self, opened: AuditRecord, now: float) -> None:
        """Closes a call that was opened by an earlier process and never ended: whether it took effect is not known."""
        opened.time, opened.outcome = self.clock.stamp(now), "orphaned"
        self.write(opened)

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
            self.output.settle(0.05)
        self.output.close()

    def _arm(self) -> None:
        """A timer only while something waits, so that an idle process sleeps."""
        if not self._closed:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self._flush)

    def _hand_over(self) -> None:
        if self._buffer:
            self.outbox.add(bytes(self._buffer))
            self._buffer.clear()

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._hand_over()
        if self._closed or self.outbox.head is None:
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
