"""Rules over what a call holds: the body is here, whole, before anything is sent, and a refused one is never sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.product import Product, absolute, record, rule
from tests.flows.upstreams import Upstream

JSON = b"Content-Type: application/json"
SECRET = "sk-live-0123456789abcdef"


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[tuple[Product, Upstream]]:
    with Upstream() as upstream:
        rules = [
            rule("small", upstream, methods=["POST"], paths=["/pay"], when="body.amount <= 100",
                 credential={"name": "up", "header": "X-Api-Key"}),
            rule("list", upstream, methods=["GET"], paths=["/{owner}/list"], query={"state": ["open"]},
                 when="params.owner == tenant"),
            rule("put", upstream, methods=["PUT"], max_body=5),
        ]  # fmt: skip
        records = {"up": record("api_key", "127.0.0.1", value=SECRET)}
        with Product(folder, rules, records) as product:
            yield product, upstream


@pytest.fixture
def flow(running: tuple[Product, Upstream]) -> tuple[Product, Upstream]:
    running[1].forget()
    return running


def test_a_body_that_the_rule_allows_leaves_as_it_came(flow):
    product, upstream = flow
    body = b'{ "amount": 100 }'
    assert product.get(upstream, "/pay", JSON, method="POST", body=body).status == 200
    assert upstream.requests[-1].body == body
    assert upstream.requests[-1].all("x-api-key") == [SECRET]


@pytest.mark.parametrize("body", [b'{"amount": 101}', b'{"amount": 1, "amount": 101}', b"{", b""])
def test_a_body_that_it_does_not_allow_never_leaves(flow, body):
    product, upstream = flow
    reply = product.get(upstream, "/pay", JSON, method="POST", body=body)
    assert (reply.status, reply.code) == (403, "policy_denied")
    assert upstream.received == b""


def test_nothing_is_sent_before_the_body_is_whole(flow):
    product, upstream = flow
    whole = absolute(upstream, "/pay", JSON, method="POST", body=b'{"amount": 7}')
    with product.client() as client:
        client.send(whole[:-4])
        assert product.get(upstream, "/acme/list?state=open").status == 200
        assert len(upstream.requests) == 1
        assert client.ask(whole[-4:]).status == 200
    assert upstream.requests[-1].body == b'{"amount": 7}'


def test_a_chunked_body_is_judged_too_and_stays_chunked(flow):
    product, upstream = flow
    head = absolute(upstream, "/pay", JSON, b"Transfer-Encoding: chunked", method="POST")
    head = head.replace(b"Content-Length: 0\r\n", b"")
    with product.client() as client:
        assert client.ask(head + b'6\r\n{"amou\r\n6\r\nnt":7}\r\n0\r\n\r\n').status == 200
    assert upstream.requests[-1].body == b'{"amount":7}'
    with product.client() as client:
        put = head.replace(b"POST", b"PUT", 1)
        assert client.ask(put + b"6\r\nabcdef\r\n0\r\n\r\n").status == 403
        assert client.ask(put + b"5\r\nabcde\r\n0\r\n\r\n").status == 200


def test_query_and_named_segments_decide(flow):
    product, upstream = flow
    assert product.get(upstream, "/acme/list?state=open").status == 200
    for path in ("/acme/list", "/acme/list?state=all", "/acme/list?state=open&state=all", "/globex/list?state=open"):
        assert product.get(upstream, path).status == 403
    assert len(upstream.requests) == 1


def test_two_calls_on_one_connection_are_judged_each_by_its_own_body(flow):
    product, upstream = flow
    with product.client() as client:
        statuses = [
            client.ask(absolute(upstream, "/pay", JSON, method="POST", body=b'{"amount": %d}' % amount)).status
            for amount in (5, 500, 50)
        ]
    assert statuses == [200, 403, 200]
