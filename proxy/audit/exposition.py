"""The metrics as Prometheus reads them. Imported at the first scrape: the library is not needed to serve calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from proxy.audit.metrics import Histogram, Metrics

Labels = tuple[str, ...]
Key = TypeVar("Key", bound=Labels)
CALL_LABELS: Labels = ("listener", "provider", "outcome", "kind", "blame")


class MetricsCollector(Collector):
    """Yields one family for each row of the table in docs/observability.md."""

    def __init__(self, metrics: Metrics, wall_clock: Callable[[], float] = time.time) -> None:
        self._metrics = metrics
        self._wall_clock = wall_clock

    def collect(self) -> Iterator[Metric]:
        yield from self._calls()
        yield from self._decisions()
        yield from self._store()
        yield from self._spool()
        yield from self._process()

    def _calls(self) -> Iterator[Metric]:
        m = self._metrics
        calls = ((key, series.count) for key, series in m.calls.items())
        yield _counter("calls", "Calls, closed after their last byte.", CALL_LABELS, calls)
        labels = ("listener", "provider")
        durations, upstream = m.call_durations()
        yield _histogram("call_duration_seconds", "From a call's head to its last byte.", labels, durations)
        yield _histogram("upstream_duration_seconds", "Of that, from the first byte sent upstream.", labels, upstream)
        yield _counter("attempts", "Requests sent, repeats included.", ("provider", "result"), m.attempts().items())

    def _decisions(self) -> Iterator[Metric]:
        m = self._metrics
        yield _counter("policy_decisions", "Decisions.", ("decision", "mode"), m.policy_decisions().items())
        yield _counter(
            "credential_resolutions", "Credentials looked up.", ("source", "result"), m.credential_resolutions().items()
        )
        yield _counter("credentials_masked", "Found in a reply to their call.", ("provider",), m.masked.items())
        yield _counter("refreshes", "Tokens asked for.", ("provider", "result"), m.refreshes.items())
        now = self._wall_clock()
        expiry = (((m.label(name),), end - now) for name, end in m.credential_expiry().items())
        yield _gauge(
            "credential_expiry_seconds", "Until the soonest expiry of a known credential.", ("provider",), expiry
        )

    def _store(self) -> Iterator[Metric]:
        m = self._metrics
        labels = ("store", "operation", "result")
        yield _counter("store_requests", "Requests to the credential store.", labels, m.store_requests.items())
        yield _histogram("store_request_duration_seconds", "How long they took.", labels, m.store_duration)

    def _spool(self) -> Iterator[Metric]:
        spool = self._metrics.spool
        waiting = [((), float(spool.waiting))] if spool else []
        yield _gauge("spool_changes", "Refreshed credentials that wait for the store.", (), waiting)
        durable = [((), float(spool.durable))] if spool else []
        yield _gauge("spool_durable", "Whether they outlive this pod (1) or are lost with it (0).", (), durable)

    def _process(self) -> Iterator[Metric]:
        m = self._metrics
        connections = (((side, state), count) for side, state, count in m.connections())
        yield _gauge("connections", "Open connections.", ("side", "state"), connections)
        yield _counter("certificates_minted", "Leaf certificates made.", (), [((), m.certificates_minted)])
        now = self._wall_clock()
        ends = (((use,), end - now) for use, end in m.certificate_expiry().items())
        yield _gauge("certificate_expiry_seconds", "Until the end of a certificate of our own.", ("use",), ends)
        yield _gauge("breakers_open", "Destinations that nothing is sent to.", (), [((), m.breakers_open())])
        # From zero on: a counter that appears with its first failure would show no increase.
        results = {"ok": 0, "failed": 0} | m.policy_reloads
        reloads = (((result,), count) for result, count in results.items())
        yield _counter("policy_reloads", "Policies loaded again.", ("result",), reloads)
        audit = m.audit
        lines = [(("written",), audit.written), (("dropped",), audit.dropped)] if audit else []
        yield _counter("audit_records", "Audit lines.", ("result",), lines)
        hashes = [((m.policy_hash,), 1)] if m.policy_hash else []
        yield _gauge("policy_info", "The policies in force.", ("hash",), hashes)
        yield _gauge("build_info", "The running version.", ("version",), [((m.version,), 1)])


class Exposition:
    """Renders a scrape in the format that its Accept header asks for."""

    def __init__(self, metrics: Metrics) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(MetricsCollector(metrics))

    def render(self, accept: str) -> tuple[bytes, str]:
        """(body, content type) for an Accept header, which may be empty."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type


def _counter(name: str, text: str, labels: Labels, values: Iterable[tuple[Labels, float]]) -> Metric:
    family = CounterMetricFamily(f"sluicegate_{name}", text, labels=labels)
    for key, value in values:
        family.add_metric(key, value)
    return family


def _gauge(name: str, text: str, labels: Labels, values: Iterable[tuple[Labels, float]]) -> Metric:
    family = GaugeMetricFamily(f"sluicegate_{name}", text, labels=labels)
    for key, value in values:
        family.add_metric(key, value)
    return family


def _histogram(name: str, text: str, labels: Labels, values: Mapping[Key, Histogram]) -> Metric:
    family = HistogramMetricFamily(f"sluicegate_{name}", text, labels=labels)
    for key, histogram in values.items():
        bounds = [str(bound) for bound in histogram.bounds] + ["+Inf"]
        family.add_metric(key, list(zip(bounds, accumulate(histogram.counts), strict=True)), histogram.total)
    return family
