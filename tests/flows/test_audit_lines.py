"""One line for each call, with the fields of the design and nothing that was said."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.conftest import NewFolder
from tests.flows.product import Product, eventually, is_closing, record, rule
from tests.flows.upstreams import Connection, Upstream, answering
from tests.flows.ways import PLAIN_WAYS, enter

SECRET = "sk-live-0123456789abcdef"
FIELDS = [
    "time",
    "call_id",
    "listener",
    "tenant",
    "actor",
    "agent",
    "provider",
    "operation",
    "tool",
    "method",
    "host",
    "path",
    "status",
    "outcome",
    "kind",
    "code",
    "blame",
    "stage",
    "rule",
    "policy",
    "policy_hash",
    "credential",
    "attempts",
    "duration_ms",
    "upstream_ms",
    "bytes_in",
    "bytes_out",
]


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


@pytest.mark.parametrize("way", PLAIN_WAYS)
def test_a_call_leaves_one_line_with_every_field(flow: Flow, way: str) -> None:
    flow.upstream.forget(answering(b"HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\nhello"))
    with enter(flow.product, way, flow.upstream, "up") as session:
        call = session.ask("POST", "/v1/things/42?q=secret", body=b"1234567").call_id
    line = flow.product.audited(call)
    assert [name for name in FIELDS if name not in line] == []
    wanted = {
        "listener": "base-url" if way == "base-url" else "proxy",
        "tenant": "acme",
        "agent": "support-bot",
        "method": "POST",
        "status": 201,
        "outcome": "ok",
        "blame": "none",
        "rule": "up",
        "policy": "flows",
        "credential": "key@1",
        "attempts": 1,
    }
    assert {name: line[name] for name in wanted} == wanted
    assert line["host"].startswith("127.0.0.1")
    assert line["path"].startswith("/v1/things")
    assert "secret" not in str(line)
    assert line["bytes_in"] >= 7
    assert line["bytes_out"] >= 5
    assert line["duration_ms"] >= line["upstream_ms"] >= 0
    assert sum(is_closing(other, call) for other in flow.product.audit()) == 1


def test_an_unknown_path_is_cut_to_two_segments(flow: Flow) -> None:
    line = flow.product.audited(flow.product.get(flow.upstream, "/a/b/c/d?x=1").call_id)
    assert "/c" not in line["path"]
    masked = flow.product.audited(
        flow.product.get(flow.upstream, "/hooks/xoxb0123456789abcdefABCDEF0123456789").call_id
    )
    assert "0123456789abcdef" not in masked["path"]


def test_a_write_has_an_opened_line_before_its_first_credentialed_byte(flow: Flow) -> None:
    """Read by the upstream at the moment the request arrives."""
    seen: list[list[dict[str, object]]] = []

    def script(connection: Connection) -> None:
        connection.request()
        seen.append(flow.product.audit())
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    flow.upstream.forget(script)
    call = flow.product.get(flow.upstream, method="POST").call_id
    opened = [line for line in seen[0] if line.get("call_id") == call]
    assert len(opened) == 1
    assert not is_closing(opened[0], call)
    flow.product.audited(call)


def test_each_store_read_is_a_line(flow: Flow) -> None:
    flow.product.get(flow.upstream)
    reads = eventually(lambda: [line for line in flow.product.audit() if "credential_read" in str(line)])
    assert any("key" in str(line) and "acme" in str(line) for line in reads)


def test_an_upstreams_error_is_its_providers_to_answer_for(flow: Flow) -> None:
    flow.upstream.forget(answering(b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"))
    line = flow.product.audited(flow.product.get(flow.upstream, method="POST").call_id)
    assert (line["status"], line["outcome"], line["blame"]) == (500, "error", "provider")


def test_a_denial_names_the_stage_and_the_policy(flow: Flow) -> None:
    line = flow.product.audited(flow.product.get(flow.upstream, method="DELETE").call_id)
    assert (line["outcome"], line["kind"], line["code"], line["blame"], line["stage"]) == (
        "denied", "permission", "policy_denied", "policy", "policy",
    )  # fmt: skip
    assert line["attempts"] == 0


def test_a_malformed_request_leaves_a_line(flow: Flow) -> None:
    with flow.product.client() as client:
        client.send(b"GET / HTTP/1.1\r\n\r\n")
        call = client.reply().call_id
    line = flow.product.audited(call)
    assert (line["code"], line["blame"]) == ("malformed_request", "caller")


def test_a_connect_that_is_denied_leaves_a_line(flow: Flow) -> None:
    with flow.product.client() as client:
        call = client.connect("denied.test:443").call_id
    line = flow.product.audited(call)
    assert (line["outcome"], line["method"], line["host"].split(":")[0]) == ("denied", "CONNECT", "denied.test")


def test_nothing_but_audit_lines_is_written_to_standard_output(new_folder: NewFolder) -> None:
    with Upstream() as upstream, Product(new_folder(), [rule("up", upstream)], audit={"sink": "stdout"}) as product:
        call = product.get(upstream).call_id
        out = product.folder / "out.log"
        lines = eventually(lambda: [line for line in out.read_text().splitlines() if call in line])
        assert lines
        for line in out.read_text().splitlines():
            json.loads(line)
