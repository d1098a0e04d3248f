"""Spans of calls, exported in batches by a thread of OpenTelemetry's SDK. Imported only where tracing is configured."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import requests

from proxy.model import AuditRecord

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

TIMEOUT_SECONDS: Final = 5.0
QUEUE: Final = 8_192
"""Spans that wait at most; those beyond are lost: a trace is no evidence."""
BATCH: Final = 512
EVERY_MILLISECONDS: Final = 1_000

Mark = tuple[str, int]
"""A stage and when it began, in nanoseconds of the epoch."""


class Parent(NamedTuple):
    """The caller's span."""

    trace_id: int
    span_id: int


@contextmanager
def _unconfigured_by_environment() -> Iterator[None]:
    """The SDK reads OTEL_* variables when its parts are made; settings are the only source here."""
    held = {name: value for name, value in os.environ.items() if name.startswith("OTEL_")}
    for name in held:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(held)


def exporter(endpoint: str, headers: Mapping[str, str], ca_file: str | None) -> SpanExporter:
    """Posts to `endpoint`, the whole URL. Neither proxies nor .netrc of the environment are used, nor redirects."""
    session = requests.Session()
    session.trust_env = False
    session.max_redirects = 0
    with _unconfigured_by_environment():
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        return OTLPSpanExporter(
            endpoint, certificate_file=ca_file, headers=dict(headers), timeout=TIMEOUT_SECONDS, session=session
        )


class Spans:
    """Makes the spans of calls. Used on the event loop's thread, which never waits for the collector."""

    def __init__(self, exporter: SpanExporter, sample: float, service: str, version: str) -> None:
        """`sample` is the share of traces that is recorded; all processes choose the same ones, by their ids."""
        with _unconfigured_by_environment():
            from opentelemetry import trace
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.sdk.trace.sampling import TraceIdRatioBased

            self._provider = TracerProvider(
                TraceIdRatioBased(sample),
                Resource({"service.name": service, "service.version": version}),
                shutdown_on_exit=False,
            )
            self._provider.add_span_processor(
                BatchSpanProcessor(exporter, QUEUE, EVERY_MILLISECONDS, BATCH, TIMEOUT_SECONDS * 1000)
            )
            self._tracer = self._provider.get_tracer("sluicegate", version)
        self._trace = trace

    def begin(self, parent: Parent | None, start: int) -> Span:
        """The span of a call, which began at `start` (nanoseconds of the epoch)."""
        trace = self._trace
        context = trace.set_span_in_context(trace.INVALID_SPAN)
        if parent is not None:
            theirs = trace.SpanContext(parent.trace_id, parent.span_id, is_remote=True)
            context = trace.set_span_in_context(trace.NonRecordingSpan(theirs))
        return self._tracer.start_span("call", context, trace.SpanKind.SERVER, start_time=start)

    def end(self, span: Span, marks: Sequence[Mark], end: int, record: AuditRecord) -> None:
        """Ends a call's span, and gives it one for each stage, which lasts until the next begins. What is told of the
        call is its audit record."""
        if not span.is_recording():
            return
        trace = self._trace
        context = trace.set_span_in_context(span)
        for (stage, start), (_, until) in pairwise([*marks, ("", end)]):
            kind = trace.SpanKind.CLIENT if stage == "exchange" else trace.SpanKind.INTERNAL
            self._tracer.start_span(stage, context, kind, start_time=start).end(until)
        span.update_name(f"{record.provider} {record.operation or record.method}")
        for name, value in msgspec.structs.asdict(record).items():
            if value != "" and name != "time":
                span.set_attribute(f"sluicegate.{name}", value)
        if record.outcome != "ok":
            span.set_status(trace.StatusCode.ERROR, record.code or record.outcome)
        span.end(end)

    def close(self) -> None:
        """Exports what waits, for as long as one export may take. Blocks."""
        self._provider.force_flush(int(TIMEOUT_SECONDS * 1000))
        self._provider.shutdown()
