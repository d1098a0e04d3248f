"""Where audit lines go, and what happens when they cannot."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from proxy.settings.base import FilePath, Section
from proxy.settings.collector import Collector


class _Sink(Section):
    full: Literal["drop", "block"] = Field(
        "drop",
        description="When the sink takes no lines for long: `drop` loses lines, counts them and says so in the log; "
        "`block` refuses calls (503 `overloaded`) until it takes lines again.",
    )


class StdoutAudit(_Sink):
    """Audit lines to standard output, which carries nothing else."""

    sink: Literal["stdout"] = "stdout"


class RotationSettings(Section):
    """When the file is put aside as PATH.1, and how many such files are kept."""

    bytes: int = Field(100_000_000, ge=1_000_000, description="Size from which on it is put aside.")
    keep: int = Field(10, ge=1, le=1_000, description="Files put aside that are kept; older ones are removed.")


class FileAudit(_Sink):
    """Audit lines to a file (0600), opened again after it was rotated away by others."""

    sink: Literal["file"]
    path: FilePath = Field(description="The file.")
    fsync: Literal["never", "opened", "always"] = Field(
        "never",
        description="When lines are forced to the disk: `opened` does it for the line that is written before a write "
        "leaves (the call waits for the disk), `always` for every batch too.",
    )
    rotate: RotationSettings | None = Field(default=None, description="Rotation by size; without it others may rotate.")


class OtlpAudit(_Sink, Collector):
    """Audit lines as log records to an OpenTelemetry collector: OTLP over HTTP, JSON."""

    sink: Literal["otlp"]


Audit = Annotated[StdoutAudit | FileAudit | OtlpAudit, Field(discriminator="sink")]
