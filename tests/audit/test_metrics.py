"""Counting, and what a scrape shows of it."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings, strategies
from prometheus_client.parser import text_string_to_metric_families

from proxy.audit.exposition import Exposition, MetricsCollector
from proxy.audit.metrics import CALL_BUCKETS, Histogram, Metrics
from proxy.model import AuditRecord

PAGE = Path(__file__).resolve().parents[2] / "docs" / "observability.md"


def record(**fields: str) -> AuditRecord:
    return AuditRecord(
        time="", call_id="", **({"attempts": 1, "listener": "proxy", "provider": "slack", "outcome": "ok"} | fields)
    )


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = Exposition(metrics).render("")[0].decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, **labels: str) -> float:
    return samples(metrics)[f"sluicegate_{name}", tuple(sorted(labels.items()))]


def test_a_closed_call_is_counted_by_its_record():
    metrics = Metrics("1", ["slack"])
    metrics.call_closed(record(), 0.2, 0.15)
    metrics.call_closed(record(), 0.3, None)
    metrics.call_closed(record(outcome="denied", kind="permission", blame="policy"), 0.001, None)
    ok = {"listener": "proxy", "provider": "slack", "outcome": "ok", "kind": "", "blame": "none"}
    assert value(metrics, "calls_total", **ok) == 2
    assert value(metrics, "calls_total", **ok | {"outcome": "denied", "kind": "permission", "blame": "policy"}) == 1
    labels = {"listener": "proxy", "provider": "slack"}
    assert value(metrics, "call_duration_seconds_count", **labels) == 3
    assert value(metrics, "call_duration_seconds_sum", **labels) == pytest.approx(0.501)
    assert value(metrics, "call_duration_seconds_bucket", le="0.25", **labels) == 2
    assert value(metrics, "upstream_duration_seconds_count", **labels) == 1


def test_a_provider_outside_the_catalogue_is_other_and_adds_no_series():
    metrics = Metrics("1", ["slack"])
    for number in range(100):
        metrics.call_closed(record(provider=f"made-up-{number}"), 0.1, 0.1)
    assert len(metrics.calls) == 1
    labels = {"listener": "proxy", "outcome": "ok", "kind": "", "blame": "none"}
    assert value(metrics, "calls_total", provider="other", **labels) == 100
    assert value(metrics, "attempts_total", provider="other", result="ok") == 100


def test_each_attempt_counts_by_its_own_result():
    metrics = Metrics("1", ["slack"])
    metrics.call_closed(record(attempts=3), 0.1, 0.1)
    metrics.call_closed(record(attempts=1), 0.1, 0.1)
    metrics.call_closed(record(attempts=0, outcome="denied"), 0.1, None)
    assert value(metrics, "attempts_total", provider="slack", result="ok") == 2
    assert value(metrics, "attempts_total", provider="slack", result="error") == 2
    assert metrics.attempts() == {("slack", "ok"): 2, ("slack", "error"): 2}


def test_each_counter_shows_what_was_counted():
    metrics = Metrics("1.2.3", ["slack"])
    metrics.denied += 1
    metrics.credential_resolutions = lambda: {("cache", "fresh"): 1}
    metrics.store_request("vault", "read", "ok", 0.02)
    metrics.policy_reload("failed")
    metrics.certificates_minted += 2
    metrics.policy_hash = "abcdef012345"
    metrics.audit = SimpleNamespace(written=7, dropped=1)
    metrics.connections = lambda: [("client", "active", 3)]
    assert value(metrics, "policy_decisions_total", decision="denied", mode="enforce") == 1
    assert value(metrics, "credential_resolutions_total", source="cache", result="fresh") == 1
    assert value(metrics, "store_requests_total", store="vault", operation="read", result="ok") == 1
    store = {"store": "vault", "operation": "read", "result": "ok"}
    assert value(metrics, "store_request_duration_seconds_bucket", le="0.025", **store) == 1
    assert value(metrics, "policy_reloads_total", result="failed") == 1
    assert value(metrics, "certificates_minted_total") == 2
    assert value(metrics, "policy_info", hash="abcdef012345") == 1
    assert value(metrics, "build_info", version="1.2.3") == 1
    assert value(metrics, "audit_records_total", result="dropped") == 1
    assert value(metrics, "connections", side="client", state="active") == 3


def test_expiry_counts_down_from_the_time_of_the_scrape():
    metrics = Metrics("1", ["slack"])
    metrics.credential_expiry = lambda: {"slack": 1060.0}
    families = {family.name: family for family in MetricsCollector(metrics, lambda: 1000.0).collect()}
    (sample,) = families["sluicegate_credential_expiry_seconds"].samples
    assert (sample.labels, sample.value) == ({"provider": "slack"}, 60.0)


def test_a_scrape_before_the_first_call_shows_the_build():
    assert samples(Metrics("9"))["sluicegate_build_info", (("version", "9"),)] == 1


def test_the_families_are_those_of_the_documented_table():
    rows = re.findall(r"^\| `(sluicegate_\w+)` \| (counter|histogram|gauge)", PAGE.read_text(), re.MULTILINE)
    documented = {(name.removesuffix("_total") if kind == "counter" else name, kind) for name, kind in rows}
    assert {(family.name, family.type) for family in MetricsCollector(Metrics("1")).collect()} == documented


def test_openmetrics_is_given_to_those_who_ask_for_it():
    body, content_type = Exposition(Metrics("1")).render("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


@given(strategies.lists(strategies.floats(min_value=0, max_value=1000), max_size=30))
@settings(max_examples=60, deadline=None)
def test_every_observation_is_in_the_first_bucket_that_holds_it(values: list[float]):
    histogram = Histogram(CALL_BUCKETS)
    for one in values:
        histogram.observe(one)
    for number, bound in enumerate(CALL_BUCKETS):
        assert sum(histogram.counts[: number + 1]) == sum(1 for one in values if one <= bound)
    assert sum(histogram.counts) == len(values)
