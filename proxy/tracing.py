"""A call that leaves a trace: its stages as spans, and the place of its span in the caller's trace, sent upstream.

Where tracing is configured, calls are made of this class instead of `Served`; elsewhere nothing of it is loaded.
"""

from __future__ import annotations

import re
import time
from typing import Any, Final

import msgspec

from proxy.audit.spans import Mark, Parent, Spans
from proxy.model import HeaderSection
from proxy.served import Served

_PARENT: Final = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")
"""traceparent (W3C Trace Context, section 3.2); later versions may hold more behind a hyphen."""


def parent_of(section: HeaderSection) -> Parent | None:
    """The caller's span; None without a traceparent, and with one that is repeated or not valid."""
    values = [value for name, _, value in section.kept if name == b"traceparent"]
    found = _PARENT.fullmatch(values[0]) if len(values) == 1 else None
    if found is None or found[1] == b"ff" or (found[1] == b"00" and found[4]):
        return None
    parent = Parent(int(found[2], 16), int(found[3], 16))
    return parent if all(parent) else None


def placed(section: HeaderSection, line: bytes, *, continued: bool) -> HeaderSection:
    """The section with our traceparent for the caller's. A tracestate belongs to the trace that is `continued`."""
    ended = {b"traceparent"} if continued else {b"traceparent", b"tracestate"}
    kept = [each for each in section.kept if each[0] not in ended]
    return section.having([*kept, (b"traceparent", b"traceparent", line)])


class Traced(Served, eq=False, kw_only=True):
    """An exchange that notes when each stage begins."""

    spans: Spans
    span: Any = None
    marks: list[Mark] = msgspec.field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        call = self.call
        begun = time.time_ns() - int((time.monotonic() - call.started) * 1e9)
        parent = parent_of(call.section)
        self.span = self.spans.begin(parent, begun)
        self.marks.append((self.stage, begun))
        ours = self.span.get_span_context()
        line = b"00-%032x-%016x-%02x" % (ours.trace_id, ours.span_id, ours.trace_flags)
        call.section = placed(call.section, line, continued=parent is not None)

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name == "stage":
            self._mark(self.stage)
        elif name == "holding":  # a reply is held while it is looked at and put into our words
            self._mark("normalise" if value is not None else self.stage)

    def _mark(self, stage: str) -> None:
        if self.marks[-1][0] != stage:
            self.marks.append((stage, time.time_ns()))

    def _end(self, outcome: str) -> None:
        if self.over:
            return
        self._mark("audit")
        super()._end(outcome)
        assert self.record is not None
        self.spans.end(self.span, self.marks, time.time_ns(), self.record)
