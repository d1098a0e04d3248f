"""An Idempotency-Key that a provider takes in the body or the query: what leaves, repeated where that is safe."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.product import Product, absolute, record, rule
from tests.flows.upstreams import Connection, Upstream, answering
from tests.flows.wire import Reply

CREATED = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 8\r\n\r\n{"id":7}'
BUSY = b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"
BEARER = {"name": "key", "header": "Authorization", "format": "Bearer {value}"}


class Flow:
    def __init__(self, product: Product, square: Upstream, drive: Upstream) -> None:
        self.product = product
        self.square = square
        self.drive = drive

    def post(self, upstream: Upstream, path: str, key: str, body: bytes, *lines: bytes) -> Reply:
        given = (f"Idempotency-Key: {key}".encode(), *(lines or (b"Content-Type: application/json",)))
        with self.product.client() as client:
            return client.ask(absolute(upstream, path, *given, method="POST", body=body))

    def pay(self, key: str, body: bytes, *lines: bytes) -> Reply:
        return self.post(self.square, "/v2/payments", key, body, *lines)


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Flow]:
    with Upstream(host="127.0.0.43") as square, Upstream(host="127.0.0.44") as drive:
        rules = [
            rule("square", square, provider="square", credential=BEARER),
            rule("drive", drive, provider="google-drive", credential=BEARER),
        ]
        records = {"key": record("api_key", square.host, drive.host, value="sk-live-0123456789abcdef")}
        with Product(folder, rules, records) as product:
            yield Flow(product, square, drive)


@pytest.fixture
def flow(running: Flow) -> Flow:
    running.square.forget(answering(CREATED))
    running.drive.forget(answering(CREATED))
    return running


def busy_once(connection: Connection) -> None:
    connection.request()
    connection.send(BUSY)
    connection.request()
    connection.send(CREATED)


def test_a_body_holds_the_key_and_is_repeated_with_it(flow: Flow) -> None:
    flow.square.forget(busy_once)
    got = flow.pay("one", b'{"amount": 1.10}')
    assert (got.status, got.header("Sluicegate-Attempts")) == (200, "2")
    assert [request.body for request in flow.square.requests] == [b'{"idempotency_key":"one","amount": 1.10}'] * 2
    assert [request.all("Content-Length") for request in flow.square.requests] == [["40"]] * 2
    assert flow.square.requests[0].all("Idempotency-Key") == []


def test_a_chunked_body_holds_the_key(flow: Flow) -> None:
    lines = (b"Idempotency-Key: two", b"Content-Type: application/json", b"Transfer-Encoding: chunked")
    head = absolute(flow.square, "/v2/payments", *lines, method="POST").replace(b"Content-Length: 0\r\n", b"")
    with flow.product.client() as client:
        assert client.ask(head + b'8\r\n{"a": 1}\r\n0\r\n\r\n').status == 200
    assert json.loads(flow.square.requests[0].body) == {"idempotency_key": "two", "a": 1}


def test_the_callers_own_field_wins(flow: Flow) -> None:
    own = b'{"idempotency_key": "mine"}'
    assert flow.pay("three", own).status == 200
    assert [request.body for request in flow.square.requests] == [own]


@pytest.mark.parametrize("body", [b"[1]", b'{"a":1,"a":2}', b'{"idempotency_key":null}'])
def test_a_body_without_a_place_is_left_alone_and_kept_in_the_ledger(flow: Flow, body: bytes) -> None:
    key = f"ledger-{len(body)}"
    assert flow.pay(key, body).header("Sluicegate-Replayed") is None
    assert flow.pay(key, body).header("Sluicegate-Replayed") == "true"
    assert [request.body for request in flow.square.requests] == [body]


def test_an_operation_without_the_form_is_kept_in_the_ledger(flow: Flow) -> None:
    assert flow.post(flow.square, "/v2/other", "five", b"{}").status == 200
    assert flow.post(flow.square, "/v2/other", "five", b"{}").header("Sluicegate-Replayed") == "true"
    assert [request.body for request in flow.square.requests] == [b"{}"]


def test_a_target_holds_the_key_and_is_repeated_with_it(flow: Flow) -> None:
    flow.drive.forget(busy_once)
    got = flow.post(flow.drive, "/drive/v3/drives?fields=id", "six", b'{"name":"d"}')
    assert (got.status, got.header("Sluicegate-Attempts")) == (200, "2")
    targets = [request.target for request in flow.drive.requests]
    assert targets == [b"/drive/v3/drives?fields=id&requestId=six"] * 2
    assert [request.body for request in flow.drive.requests] == [b'{"name":"d"}'] * 2


def test_the_callers_own_parameter_wins(flow: Flow) -> None:
    assert flow.post(flow.drive, "/drive/v3/drives?requestId=mine", "seven", b"{}").status == 200
    assert [request.target for request in flow.drive.requests] == [b"/drive/v3/drives?requestId=mine"]
