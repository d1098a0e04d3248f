"""A caller's Idempotency-Key: the provider's form where it has one, else our ledger. B71 through the whole process."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.conftest import NewFolder
from tests.flows.product import Product, absolute, record, rule
from tests.flows.upstreams import Connection, Upstream, answering
from tests.flows.wire import Reply

SECRET = "sk-live-0123456789abcdef"
CREATED = b'HTTP/1.1 201 Created\r\nX-Id: 7\r\nContent-Length: 8\r\n\r\n{"id":7}'
HEADER = {"name": "key", "header": "X-Api-Key"}


class Flow:
    def __init__(self, product: Product, plain: Upstream, stripe: Upstream) -> None:
        self.product = product
        self.plain = plain
        self.stripe = stripe

    def post(self, upstream: Upstream, key: str, body: bytes = b"{}", path: str = "/orders") -> Reply:
        with self.product.client() as client:
            line = f"Idempotency-Key: {key}".encode()
            return client.ask(absolute(upstream, path, line, method="POST", body=body))


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Flow]:
    with Upstream(host="127.0.0.41") as plain, Upstream(host="127.0.0.42") as stripe:
        rules = [rule("plain", plain, credential=HEADER), rule("stripe", stripe, provider="stripe", credential=HEADER)]
        records = {"key": record("api_key", plain.host, stripe.host, value=SECRET)}
        with Product(folder, rules, records) as product:
            yield Flow(product, plain, stripe)


@pytest.fixture
def flow(running: Flow) -> Flow:
    running.plain.forget(answering(CREATED))
    running.stripe.forget(answering(CREATED))
    return running


def test_the_second_call_gets_the_first_ones_reply(flow: Flow) -> None:
    first, second = flow.post(flow.plain, "one"), flow.post(flow.plain, "one")
    assert (first.status, first.header("Sluicegate-Replayed")) == (201, None)
    assert (second.status, second.body, second.header("X-Id")) == (201, first.body, "7")
    assert second.header("Sluicegate-Replayed") == "true"
    assert len(flow.plain.requests) == 1
    assert flow.plain.requests[0].all("Idempotency-Key") == ["one"]


def test_another_body_under_the_key_is_refused(flow: Flow) -> None:
    flow.post(flow.plain, "two")
    refused = flow.post(flow.plain, "two", b'{"other":1}')
    assert (refused.status, refused.code) == (422, "idempotency_mismatch")
    assert len(flow.plain.requests) == 1


def test_another_operation_that_a_header_chooses_is_refused_under_the_key(flow: Flow) -> None:
    def aimed(operation: bytes) -> Reply:
        lines = (b"Idempotency-Key: aimed", b"X-Amz-Target: DynamoDB_20120810." + operation)
        with flow.product.client() as client:
            return client.ask(absolute(flow.plain, "/", *lines, method="POST", body=b'{"TableName":"t"}'))

    assert aimed(b"CreateTable").status == 201
    refused = aimed(b"DeleteTable")
    assert (refused.status, refused.code) == (422, "idempotency_mismatch")
    assert aimed(b"CreateTable").header("Sluicegate-Replayed") == "true"
    assert len(flow.plain.requests) == 1


def test_a_call_in_flight_is_not_sent_again(flow: Flow) -> None:
    come, go = threading.Event(), threading.Event()

    def script(connection: Connection) -> None:
        connection.request()
        come.set()
        assert go.wait(10)
        connection.send(CREATED)

    flow.plain.forget(script)
    first: list[Reply] = []
    caller = threading.Thread(target=lambda: first.append(flow.post(flow.plain, "three")))
    caller.start()
    assert come.wait(10)
    second = flow.post(flow.plain, "three")
    go.set()
    caller.join(10)
    assert (second.status, second.code, second.header("Retry-After")) == (409, "idempotency_in_flight", "1")
    assert first[0].status == 201
    assert len(flow.plain.requests) == 1


def test_an_outcome_that_is_not_known_is_said_to_be_so(flow: Flow) -> None:
    def script(connection: Connection) -> None:
        connection.request()
        connection.drop()

    flow.plain.forget(script)
    assert flow.post(flow.plain, "four").code == "outcome_unknown"
    flow.plain.forget(answering(CREATED))
    again = flow.post(flow.plain, "four")
    assert (again.status, again.code) == (502, "outcome_unknown")
    assert "sluicegate ledger resolve" in again.json()["detail"]
    assert flow.plain.requests == []


def test_a_refusal_of_the_provider_frees_the_key(flow: Flow) -> None:
    flow.plain.forget(answering(b"HTTP/1.1 422 No\r\nContent-Length: 0\r\n\r\n"))
    assert flow.post(flow.plain, "five").status == 422
    flow.plain.forget(answering(CREATED))
    assert flow.post(flow.plain, "five").status == 201


def test_a_provider_that_keeps_keys_itself_gets_them_and_is_tried_again(flow: Flow) -> None:
    replies = [b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", CREATED]

    def script(connection: Connection) -> None:
        connection.request()
        connection.send(replies.pop(0))

    flow.stripe.forget(script)
    got = flow.post(flow.stripe, "six", path="/v1/charges")
    assert (got.status, got.header("Sluicegate-Attempts")) == (201, "2")
    assert [request.all("Idempotency-Key") for request in flow.stripe.requests] == [["six"], ["six"]]


@pytest.mark.parametrize("lines", [(b"Transfer-Encoding: chunked",), (b"Content-Length: 100000",)])
def test_a_large_body_is_streamed_under_its_key_and_done_once(flow: Flow, lines: tuple[bytes, ...]) -> None:
    """SDKs of model APIs put a key on every call, long prompts included."""
    flow.plain.forget(answering(CREATED))
    body = b"5\r\nhello\r\n0\r\n\r\n" if b"chunked" in lines[0] else b"x" * 100_000
    key = b"Idempotency-Key: large-%d" % len(body)
    with flow.product.client() as client:
        request = absolute(flow.plain, "/", key, *lines, method="POST").replace(b"Content-Length: 0\r\n", b"") + body
        assert client.ask(request).status == 201
        again = client.ask(request)
    assert len(flow.plain.requests) == 1
    assert (again.status, again.header("Sluicegate-Replayed")) == (201, "true") or again.code == "outcome_unknown"


def test_a_stream_of_events_under_a_key_is_not_held_back(flow: Flow) -> None:
    turn = threading.Event()

    def script(connection: Connection) -> None:
        connection.request()
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        connection.send(b"8\r\ndata: 1\n\r\n")
        assert turn.wait(5)
        connection.send(b"0\r\n\r\n")

    flow.plain.forget(script)
    with flow.product.client() as client:
        client.send(absolute(flow.plain, "/", b"Idempotency-Key: stream", method="POST"))
        assert client.reply_head().status == 200
        assert client.chunk() == b"data: 1\n"
        turn.set()
        assert client.chunk() == b""


def test_a_kill_before_the_answer_leaves_an_unknown_outcome(new_folder: NewFolder) -> None:
    come = threading.Event()

    def script(connection: Connection) -> None:
        connection.request()
        come.set()
        connection.wait_for_end()

    with Upstream(script) as upstream:
        rules = [rule("up", upstream, credential=HEADER)]
        records = {"key": record("api_key", upstream.host, value=SECRET)}
        folder = new_folder()
        with Product(folder, rules, records) as product, product.client() as client:
            request = absolute(upstream, "/", b"Idempotency-Key: k", method="POST", body=b"{}")
            client.send(request)
            assert come.wait(10)
            assert product.process is not None
            product.process.kill()
            product.process.wait(10)
        upstream.forget(answering(CREATED))
        with Product(folder, rules, records) as product, product.client() as client:
            got = client.ask(request)
        assert (got.status, got.code) == (502, "outcome_unknown")
        assert json.loads(got.body)["retryable"] is False
        assert upstream.requests == []
