"""`tracing:` spans of calls, to an OpenTelemetry collector."""

from __future__ import annotations

from pydantic import Field

from proxy.settings.collector import Collector


class Tracing(Collector):
    """Spans of calls and of their stages: OTLP over HTTP. No OTEL_ variable counts."""

    sample: float = Field(1.0, ge=0, le=1, description="The share of traces that is recorded, told from their ids.")
    service_name: str = Field("sluicegate", min_length=1, max_length=255, description="`service.name` of the spans.")
