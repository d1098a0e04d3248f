"""The ops port: health, readiness, and counts that follow the calls; no tenant, no detail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.flows.product import Product, eventually, origin, record, rule
from tests.flows.upstreams import Connection, Upstream, answering

SECRET = "sk-live-0123456789abcdef"


class Flow:
    def __init__(self, product: Product, upstream: Upstream) -> None:
        self.product = product
        self.upstream = upstream


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Flow]:
    with Upstream() as upstream:
        rules = [rule("up", upstream, methods=["GET", "POST"], credential={"name": "key", "header": "X-Api-Key"})]
        with Product(folder, rules, {"key": record("api_key", "127.0.0.1", value=SECRET)}) as product:
            yield Flow(product, upstream)


@pytest.fixture
def flow(running: Flow) -> Flow:
    running.upstream.forget()
    return running


def grows(flow: Flow, name: str, labels: dict[str, str], act: Callable[[], object]) -> None:
    before = flow.product.metric(name, **labels)
    act()
    eventually(lambda: flow.product.metric(name, **labels) > before)


def test_calls_are_counted_by_outcome_and_blame(flow: Flow) -> None:
    name = "sluicegate_calls_total"
    grows(
        flow, name, {"listener": "proxy", "provider": "other", "outcome": "ok"}, lambda: flow.product.get(flow.upstream)
    )
    grows(
        flow, name, {"outcome": "denied", "blame": "policy"}, lambda: flow.product.get(flow.upstream, method="DELETE")
    )
    flow.upstream.forget(answering(b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"))
    grows(flow, name, {"outcome": "error", "blame": "provider"}, lambda: flow.product.get(flow.upstream, method="POST"))


def test_durations_decisions_resolutions_and_reads_are_counted(flow: Flow) -> None:
    flow.product.get(flow.upstream)
    for name in (
        "sluicegate_call_duration_seconds_count",
        "sluicegate_upstream_duration_seconds_count",
        "sluicegate_attempts_total",
    ):
        grows(flow, name, {}, lambda: flow.product.get(flow.upstream))
    grows(flow, "sluicegate_policy_decisions_total", {}, lambda: flow.product.get(flow.upstream))
    grows(flow, "sluicegate_credential_resolutions_total", {"source": "cache"}, lambda: flow.product.get(flow.upstream))
    assert flow.product.metric("sluicegate_store_requests_total") >= 1
    assert flow.product.metric("sluicegate_policy_info") == 1
    assert flow.product.metric("sluicegate_build_info") == 1


def test_connections_are_gauged(flow: Flow) -> None:
    def silent(connection: Connection) -> None:
        connection.request()
        connection.wait_for_end()

    flow.upstream.forget(silent)
    with flow.product.client() as client:
        client.send(origin(flow.upstream, "/").replace(b"GET /", b"GET " + flow.upstream.url.encode() + b"/"))
        flow.upstream.wait()
        assert flow.product.metric("sluicegate_connections", side="client") >= 1
        assert flow.product.metric("sluicegate_connections", side="upstream") >= 1
    eventually(lambda: flow.product.metric("sluicegate_connections", side="client") == 0)


def test_nothing_of_a_tenant_or_of_a_call_is_shown(flow: Flow) -> None:
    flow.product.get(flow.upstream, "/private-path?q=private-query")
    for path in ("/metrics", "/healthz", "/readyz"):
        text = flow.product.ops_get(path)[1]
        for word in ("acme", "support-bot", "private", SECRET, "127.0.0.1"):
            assert word not in text, path


def test_what_the_ops_port_does_not_serve_is_404(flow: Flow) -> None:
    assert flow.product.ops_get("/healthz")[0] == 200
    assert flow.product.ops_get("/readyz")[0] == 200
    assert flow.product.ops_get("/reload")[0] == 404
