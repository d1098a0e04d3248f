"""Audit lines to a collector."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from proxy.audit.otlp import OtlpOutput, export_request
from proxy.audit.sink import AuditSink
from tests.audit.test_sink import record, until
from tests.serving import serving


class Collector(HTTPServer):
    """Answers what it is told to and keeps what it was sent."""

    status = 200

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Taking)
        self.taken: list[tuple[str | None, dict[str, Any]]] = []

    @property
    def records(self) -> list[dict[str, Any]]:
        return [
            log
            for _, body in self.taken
            for resource in body["resourceLogs"]
            for scope in resource["scopeLogs"]
            for log in scope["logRecords"]
        ]


class _Taking(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.server.status == 200:
            self.server.taken.append((self.headers["Authorization"], body))
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing to the test's output."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with serving(Collector()) as server:
        yield server


def url(collector: Collector) -> str:
    return f"http://127.0.0.1:{collector.server_port}/v1/logs"


async def test_lines_arrive_as_log_records_with_their_fields(collector: Collector):
    sink = AuditSink(OtlpOutput(url(collector), {"Authorization": "Bearer t"}))
    assert sink.opened(record("c1", rule="post", status=200, duration_ms=1.5))
    sink.write(record("c2"))
    await until(lambda: len(collector.records) == 2)
    sink.close()
    first = collector.records[0]
    fields = {attribute["key"]: attribute["value"] for attribute in first["attributes"]}
    assert collector.taken[0][0] == "Bearer t"
    assert first["timeUnixNano"] == "1769847330042000000"
    assert fields["sluicegate.call_id"] == {"stringValue": "c1"}
    assert fields["sluicegate.outcome"] == {"stringValue": "opened"}
    assert fields["sluicegate.status"] == {"intValue": "200"}
    assert fields["sluicegate.duration_ms"] == {"doubleValue": 1.5}
    assert "sluicegate.actor" not in fields
    assert json.loads(first["body"]["stringValue"])["call_id"] == "c1"


async def test_a_collector_that_is_back_gets_what_waited(collector: Collector):
    collector.status = 503
    sink = AuditSink(OtlpOutput(url(collector), {}))
    assert sink.opened(record("c1"))
    await until(lambda: sink.outbox.head is not None)
    collector.status = 200
    sink.write(record("c2"))
    await until(lambda: sink.outbox.written == 2)
    sink.close()
    assert len(collector.records) == 2


async def test_lines_a_collector_never_takes_are_counted(collector: Collector, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("proxy.audit.sink.CLOSE_SECONDS", 0.05)
    collector.status = 400
    sink = AuditSink(OtlpOutput(url(collector), {}))
    sink.write(record())
    sink.close()
    assert (sink.outbox.written, sink.outbox.dropped) == (0, 1)


def test_each_line_is_one_record():
    body = json.loads(export_request(b'{"time":"2026-01-31T08:15:30.042Z","outcome":"audit_gap","dropped":3}\n'))
    (log,) = body["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    assert {"key": "sluicegate.dropped", "value": {"intValue": "3"}} in log["attributes"]
