"""What is left of a call: its audit record and its place in the metrics."""

from __future__ import annotations

import time

from proxy.audit.metrics import Metrics
from proxy.audit.rendering import PathTemplates
from proxy.audit.sink import AuditSink
from proxy.errors import GatewayError
from proxy.model import AuditRecord, Caller, Destination, ListenerKind
from proxy.responses.kinds import blame_of, kind_of
from proxy.served import Served


class Accounting:
    """Leaves one record for each call, closed after its last byte, and one for each refusal before there was a call."""

    def __init__(self, audit: AuditSink, metrics: Metrics) -> None:
        self._audit = audit
        self.policy_hash = ""
        """Of the policies in force, for what is refused before they are asked."""
        self._metrics = metrics
        self._paths = PathTemplates()

    def admit(self) -> None:
        """Raises `overloaded` when no call may leave now, since its line might be lost."""
        if self._audit.full:
            raise unrecorded()

    def opened(self, exchange: Served) -> None:
        """A call that may change something is about to be sent: its line is written first.

        Raises `overloaded` when it cannot be, and the operator wants no call without one.
        """
        if not self._audit.opened(self._record(exchange)):
            raise unrecorded()

    def closed(self, exchange: Served) -> None:
        """A call has ended."""
        now = time.monotonic()
        record = exchange.record or self._record(exchange)
        upstream = now - exchange.sent_at if exchange.sent_at else 0.0
        duration = now - exchange.call.started
        _close(record, exchange, duration, upstream)
        self._metrics.call_closed(record, duration, upstream)
        if exchange.reply_to.hits:
            self._metrics.masked_in(record.provider, exchange.reply_to.hits)
        self._audit.write(record)

    def refused(
        self,
        error: GatewayError,
        call_id: str,
        listener: ListenerKind,
        destination: Destination | None,
        bytes_out: int = 0,
        method: str = "",
        caller: Caller | None = None,
    ) -> None:
        """Leaves the record of something that was refused before it was a call."""
        record = AuditRecord(
            time=self._audit.clock.stamp(time.time()),
            call_id=call_id,
            listener=listener,
            tenant=caller.tenant if caller else "",
            actor=caller.actor if caller else "",
            agent=caller.agent if caller else "",
            provider="other",
            method=method,
            host=destination.host if destination else "",
            status=error.status,
            outcome="denied" if error.code.kind == "permission" else "error",
            kind=error.code.kind,
            code=error.code.name,
            blame=error.blame,
            stage="listener",
            rule=error.rule or "",
            policy_hash=self.policy_hash,
            bytes_out=bytes_out,
        )
        self._metrics.call_closed(record, 0.0, None)
        self._audit.write(record)

    def _record(self, exchange: Served) -> AuditRecord:
        call, caller, route, allowed = exchange.call, exchange.caller, exchange.route, exchange.allowed
        operation = route.operation if route is not None else None
        decided = allowed if allowed is not None else exchange.denied
        exchange.record = AuditRecord(
            time=self._audit.clock.stamp(time.time()),
            call_id=call.call_id,
            listener=call.listener,
            tool=call.tool,
            tenant=caller.tenant if caller else "",
            actor=caller.actor if caller else "",
            agent=caller.agent if caller else "",
            provider=route.provider.name if route is not None and route.provider is not None else "other",
            operation=operation.name if operation else "",
            method=call.method,
            host=call.destination.host,
            path=self._paths.of(call.place.path, operation.path if operation else None),
            rule=(decided.rule or "") if decided is not None else "",
            policy=(decided.policy or "") if decided is not None else "",
            policy_hash=exchange.policy_hash or self.policy_hash,
            credential=exchange.material.name if exchange.material is not None else "",
        )
        return exchange.record


def unrecorded() -> GatewayError:
    """The refusal of a call that would leave without an audit line."""
    return GatewayError("overloaded", "The audit log takes no lines, and nothing leaves unrecorded.", retry_after=1)


def _close(record: AuditRecord, exchange: Served, duration: float, upstream: float) -> None:
    """Fills in how a call ended."""
    error, reply, allowed = exchange.error, exchange.reply_to, exchange.allowed
    record.status = reply.status
    record.outcome = exchange.outcome
    record.stage = exchange.stage
    record.credential = exchange.material.name if exchange.material is not None else ""
    record.attempts = exchange.attempts
    record.duration_ms = round(duration * 1000, 3)
    record.upstream_ms = round(upstream * 1000, 3)
    record.bytes_in = exchange.bytes_in
    record.bytes_out = reply.bytes_out
    if error is not None:
        record.kind, record.code, record.blame = error.code.kind, error.code.name, error.blame
    elif exchange.outcome == "ok":
        kind = exchange.finding.kind if exchange.finding is not None else kind_of(reply.status)
        if kind is not None:
            record.outcome, record.kind, record.code, record.blame = "error", kind, "provider_error", blame_of(kind)
        elif allowed is not None and allowed.would_deny:
            record.code = "would_deny"
        elif exchange.unjudged:
            record.code = "unjudged"
    elif exchange.outcome == "canceled":
        record.blame = "caller"
