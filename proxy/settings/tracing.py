"""`tracing:` spans of calls, to an OpenTelemetry collector."""

from __future__ import annotations

from pydantic import Field

from proxy.settings.base import FilePath, Section


class Tracing(Section):
    """Spans of calls and of their stages: OTLP over HTTP. Nothing of it is taken from environment variables."""

    endpoint: str = Field(
        pattern=r"^https?://[^\s/@]+/\S*$", description="The whole URL, such as https://collector:4318/v1/traces."
    )
    sample: float = Field(1.0, ge=0, le=1, description="The share of traces that is recorded, told from their ids.")
    token_file: FilePath | None = Field(None, description="A bearer token for the collector, 0600, read at start.")
    ca_file: FilePath | None = Field(None, description="Roots for the collector's certificate; default: the usual.")
    service_name: str = Field("sluicegate", min_length=1, max_length=255, description="`service.name` of the spans.")
