"""Spans of calls in a collector: one for each stage, joined to the caller's trace, with nothing that audits hide."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.flows.product import LOOPBACK, Product, eventually, free_port, record, rule
from tests.flows.upstreams import Upstream, answering
from tests.serving import serving

SECRET = "sk-live-0123456789abcdef"
TOKEN = "collector-token-0123456789"
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"traceparent: 00-{TRACE}-{SPAN}-01".encode()
KEY = {"credential": {"name": "key", "header": "X-Api-Key"}}


class Collector(HTTPServer):
    """Keeps the spans that it is sent, and with what authorization."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Taking)
        self.spans: list[Any] = []
        self.raw = b""
        self.services: set[str] = set()
        self.authorizations: set[str | None] = set()
        self.headers: set[str] = set()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1/traces"

    def of(self, call_id: str | None) -> dict[str, Any]:
        """The spans of a call by name, the whole call's as "call"."""
        root = eventually(lambda: next((span for span in self.spans if told(span).get("call_id") == call_id), None))
        parts = {span.name: span for span in self.spans if span.parent_span_id == root.span_id}
        return {"call": root, **parts}


class _Taking(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        collector = self.server
        collector.raw += body
        collector.authorizations.add(self.headers["Authorization"])
        collector.headers |= {name.lower() for name in self.headers}
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            collector.services |= {each.value.string_value for each in resource.resource.attributes}
            collector.spans += [span for scope in resource.scope_spans for span in scope.spans]
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing to the test's output."""


def told(span: Any) -> dict[str, Any]:
    return {
        each.key.removeprefix("sluicegate."): getattr(each.value, each.value.WhichOneof("value"))
        for each in span.attributes
    }


class Misled(Product):
    """Started with variables that would send traces elsewhere, or nowhere."""

    program = (
        "/usr/bin/env", "OTEL_SDK_DISABLED=true", "OTEL_TRACES_SAMPLER=always_off", "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT=1",
        "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_HEADERS=x-elsewhere=1",
        "OTEL_RESOURCE_ATTRIBUTES=service.name=elsewhere", "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION=gzip",
        "HTTP_PROXY=http://127.0.0.1:1", "http_proxy=http://127.0.0.1:1", "ALL_PROXY=http://127.0.0.1:1",
        sys.executable, "-m", "proxy",
    )  # fmt: skip


class Flow:
    def __init__(self, product: Product, upstream: Upstream, collector: Collector) -> None:
        self.product, self.upstream, self.collector = product, upstream, collector


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with serving(Collector()) as server:
        yield server


@pytest.fixture(scope="module")
def running(folder: Path, collector: Collector) -> Iterator[Flow]:
    token = folder / "collector.token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    with ExitStack() as stack:
        upstream = stack.enter_context(Upstream())
        rules = [
            rule("up", upstream, methods=["GET", "POST"], **KEY),
            {
                "name": "own",
                "host": "127.0.0.1",
                "port": collector.server_port,
                "plaintext": True,
                "networks": LOOPBACK,
            },
        ]
        tracing = {"endpoint": collector.endpoint, "token_file": "./collector.token", "service_name": "egress"}
        records = {"key": record("api_key", "127.0.0.1", value=SECRET)}
        product = stack.enter_context(Misled(folder, rules, records, tracing=tracing, log={"level": "debug"}))
        yield Flow(product, upstream, collector)


@pytest.fixture
def flow(running: Flow) -> Flow:
    running.upstream.forget()
    return running


def sent_on(upstream: Upstream, name: bytes) -> list[bytes]:
    return [value for each, value in upstream.requests[-1].headers if each.lower() == name]


def test_a_call_has_a_span_for_each_stage_in_order_and_the_record_of_the_audit(flow: Flow) -> None:
    reply = flow.product.get(flow.upstream, "/a")
    call_id = reply.header("Sluicegate-Call-Id")
    spans = flow.collector.of(call_id)
    stages = ["listener", "identity", "policy", "credential", "sign", "exchange", "audit"]
    assert set(spans) == {"call", *stages}
    ends = [(spans[name].start_time_unix_nano, spans[name].end_time_unix_nano) for name in stages]
    assert all(end == start for (_, end), (start, _) in pairwise(ends))
    assert (ends[0][0], ends[-1][1]) == (spans["call"].start_time_unix_nano, spans["call"].end_time_unix_nano)
    line = flow.product.audited(str(call_id))
    assert told(spans["call"]) == {key: value for key, value in line.items() if value != "" and key != "time"}
    assert spans["call"].name == "other GET"
    assert "egress" in flow.collector.services


def test_a_failure_of_the_provider_is_normalised_and_marked(flow: Flow) -> None:
    flow.upstream.forget(answering(b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno"))
    reply = flow.product.get(flow.upstream, "/b", method="POST")
    spans = flow.collector.of(reply.header("Sluicegate-Call-Id"))
    assert "normalise" in spans
    assert (spans["call"].status.code, spans["call"].status.message) == (2, "provider_error")


def test_a_refused_call_has_the_stages_that_it_came_to(flow: Flow) -> None:
    reply = flow.product.get(flow.upstream, "/c", method="DELETE")
    spans = flow.collector.of(reply.header("Sluicegate-Call-Id"))
    assert set(spans) == {"call", "listener", "identity", "policy", "audit"}
    assert spans["call"].status.message == "policy_denied"


def test_the_callers_trace_is_continued_and_the_upstream_is_told_of_our_span(flow: Flow) -> None:
    reply = flow.product.get(flow.upstream, "/d", PARENT, b"tracestate: vendor=1")
    span = flow.collector.of(reply.header("Sluicegate-Call-Id"))["call"]
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, SPAN)
    assert sent_on(flow.upstream, b"traceparent") == [f"00-{TRACE}-{span.span_id.hex()}-01".encode()]
    assert sent_on(flow.upstream, b"tracestate") == [b"vendor=1"]


@pytest.mark.parametrize(
    "lines",
    [
        (),
        (b"traceparent: 00-" + b"0" * 32 + b"-" + SPAN.encode() + b"-01",),
        (b"traceparent: 00-" + TRACE.encode() + b"-" + b"0" * 16 + b"-01",),
        (b"traceparent: ff-" + TRACE.encode() + b"-" + SPAN.encode() + b"-01",),
        (PARENT + b"-more",),
        (PARENT.replace(b"4bf", b"4BF"),),
        (PARENT, PARENT),
        (b"traceparent: " + SECRET.encode(),),
    ],
)
def test_what_is_no_parent_begins_a_trace_of_its_own(flow: Flow, lines: tuple[bytes, ...]) -> None:
    reply = flow.product.get(flow.upstream, "/e", *lines, b"tracestate: vendor=1")
    assert reply.status == 200
    span = flow.collector.of(reply.header("Sluicegate-Call-Id"))["call"]
    assert (span.trace_id.hex() != TRACE, span.parent_span_id) == (True, b"")
    (line,) = sent_on(flow.upstream, b"traceparent")
    assert line.startswith(f"00-{span.trace_id.hex()}-{span.span_id.hex()}-0".encode())
    assert int(line[-2:], 16) & 1
    assert sent_on(flow.upstream, b"tracestate") == []


def test_nothing_that_the_audit_hides_is_in_a_span_or_in_the_exporters_messages(flow: Flow) -> None:
    """At level debug too."""
    canary = "canary-5b1e7c0d9f"
    hidden = (f"X-Mine: {canary}".encode(), f"Cookie: a={canary}".encode())
    path = f"/p/q/{canary}?key={canary}&{SECRET}"
    reply = flow.product.get(flow.upstream, path, *hidden, method="POST", body=canary.encode())
    flow.collector.of(reply.header("Sluicegate-Call-Id"))
    for secret in (canary, SECRET, TOKEN):
        assert secret.encode() not in flow.collector.raw
        assert secret not in flow.product.diagnostics()


def test_settings_are_the_only_source_of_where_traces_go(flow: Flow) -> None:
    """The process was started with variables that say otherwise."""
    flow.collector.of(flow.product.get(flow.upstream).header("Sluicegate-Call-Id"))
    assert flow.collector.authorizations == {f"Bearer {TOKEN}"}
    assert "x-elsewhere" not in flow.collector.headers
    assert "content-encoding" not in flow.collector.headers
    assert "elsewhere" not in flow.collector.services


def test_the_collector_is_no_destination_of_a_call(flow: Flow) -> None:
    with flow.product.client() as client:
        port = flow.collector.server_port
        reply = client.ask(b"GET http://127.0.0.1:%d/ HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % (port, port))
    assert (reply.status, reply.code) == (403, "destination_refused")


def test_without_tracing_the_callers_headers_pass_as_they_are(tmp_path: Path) -> None:
    with Upstream() as upstream, Product(tmp_path, [rule("up", upstream)]) as product:
        assert product.get(upstream, "/", PARENT, b"tracestate: vendor=1").status == 200
        assert sent_on(upstream, b"traceparent") == [PARENT.partition(b": ")[2]]
        assert sent_on(upstream, b"tracestate") == [b"vendor=1"]
        product.get(upstream, "/")
        assert sent_on(upstream, b"traceparent") == []


def test_what_is_not_sampled_is_not_exported_and_says_so_upstream(tmp_path: Path, collector: Collector) -> None:
    with Upstream() as upstream:
        tracing = {"endpoint": collector.endpoint, "sample": 0}
        with Product(tmp_path, [rule("up", upstream)], tracing=tracing) as product:
            call_id = product.get(upstream, "/", PARENT).header("Sluicegate-Call-Id")
            assert sent_on(upstream, b"traceparent")[0].endswith(b"-00")
            assert product.stop() == 0
    assert call_id not in {told(span).get("call_id") for span in collector.spans}


def test_what_waits_is_exported_at_stop(tmp_path: Path, collector: Collector) -> None:
    tracing = {"endpoint": collector.endpoint}
    with Upstream() as upstream, Product(tmp_path, [rule("up", upstream)], tracing=tracing) as product:
        call_id = product.get(upstream, "/").header("Sluicegate-Call-Id")
        assert product.stop() == 0
        assert call_id in {told(span).get("call_id") for span in collector.spans}


def test_a_collector_that_is_away_holds_up_neither_calls_nor_the_end(tmp_path: Path) -> None:
    tracing = {"endpoint": f"http://127.0.0.1:{free_port()}/v1/traces"}
    with Upstream() as upstream, Product(tmp_path, [rule("up", upstream)], tracing=tracing) as product:
        assert [product.get(upstream, "/").status for _ in range(20)] == [200] * 20
        assert product.stop() == 0


def test_a_token_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o644)
    product = Product(tmp_path, tracing={"endpoint": "https://collector.test/v1/traces", "token_file": "./token"})
    product.write()
    done = product.run("serve", check=False)
    assert done.returncode != 0
    assert b"token" in done.stderr
    assert TOKEN.encode() not in done.stderr
