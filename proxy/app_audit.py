"""The audit sink that the configuration names, and what an earlier process left unfinished in it."""

from __future__ import annotations

import asyncio
import logging
import time

from proxy.app_terms import shown_to
from proxy.audit.orphans import orphans
from proxy.audit.output import Descriptor, Output, Rotation
from proxy.audit.sink import AuditSink
from proxy.settings.audit import Audit, FileAudit, OtlpAudit

log = logging.getLogger("sluicegate")


def open_audit(audit: Audit) -> AuditSink:
    """The sink. Raises ConfigurationError when a file of its cannot be opened."""
    return AuditSink(_output(audit), blocks=audit.full == "block")


class Unfinished:
    """What an earlier process left open in the audit file. Made before this one writes to it."""

    def __init__(self, audit: Audit) -> None:
        self._path = audit.path if isinstance(audit, FileAudit) else None
        self._end = self._path.stat().st_size if self._path is not None and self._path.exists() else 0

    async def report(self, sink: AuditSink) -> None:
        """Each such call gets a closing line, and one warning counts them. The file is read off the loop."""
        if self._path is None or not self._end:
            return
        found = await asyncio.to_thread(orphans, self._path, self._end)
        for opened in found:
            sink.orphaned(opened, time.time())
        if found:
            log.warning(
                "%d calls were in progress when an earlier process ended; whether they took effect is not known: "
                "their audit lines say orphaned",
                len(found),
            )


def _output(audit: Audit) -> Output:
    if isinstance(audit, OtlpAudit):
        from proxy.audit.otlp import OtlpOutput

        return OtlpOutput(audit.endpoint, shown_to(audit), str(audit.ca_file) if audit.ca_file else None)
    if isinstance(audit, FileAudit):
        rotation = Rotation(audit.rotate.bytes, audit.rotate.keep) if audit.rotate else None
        return Descriptor(audit.path, sync=audit.fsync, rotation=rotation)
    return Descriptor(None)
