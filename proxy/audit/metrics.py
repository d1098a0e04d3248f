"""Counters as plain numbers, read when somebody scrapes.

An update through the metrics library costs several microseconds a call, so the path counts into slots found by one
dictionary look-up, and `proxy.audit.exposition` turns them into the library's families. Used on the event loop's
thread; a scrape on the same thread sees whole values.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol, TypeVar

from proxy.model import AuditRecord

Key = TypeVar("Key")

OTHER: Final = "other"
CALL_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
STORE_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class AuditCounts(Protocol):
    """Lines written and dropped, as `proxy.audit.outbox.Outbox` counts them."""

    written: int
    dropped: int


class SpoolState(Protocol):
    """Changes that wait for the store, and whether they outlive the process (proxy.credentials.write_back)."""

    @property
    def waiting(self) -> int: ...
    @property
    def durable(self) -> bool: ...


class Histogram:
    """Counts per bucket (upper bounds in seconds, the last one open) and the sum of what was observed."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds

    def add(self, counts: list[int], total: float) -> None:
        """Add what another one with the same bounds has counted."""
        self.counts = [left + right for left, right in zip(self.counts, counts, strict=True)]
        self.total += total


class CallSeries:
    """What is counted for calls with equal labels: counts per bucket of CALL_BUCKETS, and sums in seconds."""

    __slots__ = ("duration_counts", "duration_total", "repeated", "sent", "upstream_counts", "upstream_total")

    def __init__(self) -> None:
        self.duration_counts = [0] * (len(CALL_BUCKETS) + 1)
        self.duration_total = 0.0
        self.upstream_counts = [0] * (len(CALL_BUCKETS) + 1)
        self.upstream_total = 0.0
        self.sent = 0
        """Calls of which something was sent."""
        self.repeated = 0
        """What was sent before the last attempt of each."""

    @property
    def count(self) -> int:
        return sum(self.duration_counts)


class Metrics:
    """Every number that is counted, by the metric's short name.

    `providers` bounds the provider label: a name outside it counts as "other". The gauges are asked of their owners at
    scrape: `connections` gives (side, state, count) triples, `credential_resolutions` counts by
    (source, result), `credential_expiry` the soonest expiry in epoch seconds by
    provider, `certificate_expiry` that of our own certificates by use; `breakers_open` counts destinations shut off.
    """

    def __init__(self, version: str, providers: Iterable[str] = ()) -> None:
        self.version = version
        self.providers = frozenset(providers)
        self.calls: dict[tuple[str, str, str, str, str], CallSeries] = {}
        self.allowed = 0
        self.denied = 0
        self.would_deny = 0
        self.masked: dict[tuple[str], int] = {(OTHER,): 0}
        self.store_requests: dict[tuple[str, str, str], int] = {}
        self.store_duration: dict[tuple[str, str, str], Histogram] = {}
        self.refreshes: dict[tuple[str, str], int] = {}
        self.policy_reloads: dict[str, int] = {}
        self.certificates_minted = 0
        self.policy_hash = ""
        self.audit: AuditCounts | None = None
        self.spool: SpoolState | None = None
        self.connections: Callable[[], Iterable[tuple[str, str, int]]] = tuple
        self.credential_resolutions: Callable[[], Mapping[tuple[str, str], int]] = dict
        self.credential_expiry: Callable[[], Mapping[str, float]] = dict
        self.certificate_expiry: Callable[[], Mapping[str, float]] = dict
        self.breakers_open: Callable[[], int] = int

    def call_closed(self, record: AuditRecord, duration_s: float, upstream_s: float | None) -> None:
        """Count a finished call by its record; `upstream_s` is None (or 0) when nothing was sent."""
        key = (record.listener, record.provider, record.outcome, record.kind, record.blame)
        series = self.calls.get(key) or self._series(key)
        series.duration_counts[bisect_left(CALL_BUCKETS, duration_s)] += 1
        series.duration_total += duration_s
        if upstream_s:
            series.upstream_counts[bisect_left(CALL_BUCKETS, upstream_s)] += 1
            series.upstream_total += upstream_s
        if record.attempts:
            series.sent += 1
            series.repeated += record.attempts - 1

    def call_durations(self) -> tuple[dict[tuple[str, str], Histogram], dict[tuple[str, str], Histogram]]:
        """Durations of calls, and of their upstream part, by (listener, provider)."""
        whole: dict[tuple[str, str], Histogram] = {}
        upstream: dict[tuple[str, str], Histogram] = {}
        for key, series in self.calls.items():
            whole.setdefault(key[:2], Histogram(CALL_BUCKETS)).add(series.duration_counts, series.duration_total)
            upstream.setdefault(key[:2], Histogram(CALL_BUCKETS)).add(series.upstream_counts, series.upstream_total)
        return whole, upstream

    def attempts(self) -> dict[tuple[str, str], int]:
        """Requests sent upstream by (provider, result): the last of a call ended as the call did, and whatever was
        sent before it had failed, or it would not have been repeated."""
        sent: dict[tuple[str, str], int] = {}
        for (_, provider, outcome, _, _), series in self.calls.items():
            for result, count in ((outcome, series.sent), ("error", series.repeated)):
                if count:
                    sent[provider, result] = sent.get((provider, result), 0) + count
        return sent

    def policy_decisions(self) -> dict[tuple[str, str], int]:
        """Decisions by (decision, mode)."""
        counts = {
            ("allowed", "enforce"): self.allowed,
            ("denied", "enforce"): self.denied,
            ("would_deny", "warn"): self.would_deny,
        }
        return {key: count for key, count in counts.items() if count}

    def masked_in(self, provider: str, times: int) -> None:
        """Count how often a reply gave the credential of its call back."""
        key = (self.label(provider),)
        self.masked[key] = self.masked.get(key, 0) + times

    def store_request(self, store: str, operation: str, result: str, seconds: float) -> None:
        """Count one request to a credential store and how long it took."""
        key = (store, operation, result)
        _add(self.store_requests, key)
        self.store_duration.setdefault(key, Histogram(STORE_BUCKETS)).observe(seconds)

    def refresh(self, provider: str, result: str) -> None:
        """Count a request for a token: "ok", or why there was none (rejected, throttled, down, unknown)."""
        _add(self.refreshes, (self.label(provider), result))

    def policy_reload(self, result: str) -> None:
        """Count an attempt to load policies again: "ok" or "failed"."""
        _add(self.policy_reloads, result)

    def label(self, provider: str) -> str:
        """The provider's name as a label value."""
        return provider if provider in self.providers else OTHER

    def _series(self, key: tuple[str, str, str, str, str]) -> CallSeries:
        """The series of labels not met before; names outside the catalogue share one and are never kept."""
        key = (key[0], self.label(key[1]), *key[2:])
        return self.calls.setdefault(key, CallSeries())


def _add(counts: dict[Key, int], key: Key) -> None:
    counts[key] = counts.get(key, 0) + 1
