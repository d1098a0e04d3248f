"""A rule's terms: limits, the caller's headers and credentials, and what of the reply comes back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.product import Product, absolute, record, rule
from tests.flows.upstreams import Upstream, answering

SECRET = "sk-live-0123456789abcdef"


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[tuple[Product, Upstream]]:
    with Upstream() as upstream:
        key = {"credential": {"name": "up", "header": "X-Api-Key"}}
        rules = [
            rule("limited", upstream, paths=["/limited"], limits=[{"requests": 2, "every": 3600}]),
            rule("headers", upstream, paths=["/headers"], headers=["accept", "x-ok-*"], **key),
            rule("refusing", upstream, paths=["/refusing"], agent_credentials="refuse", **key),
            rule(
                "query",
                upstream,
                paths=["/query"],
                agent_credentials="refuse",
                credential={"name": "up", "query": "key"},
            ),
            rule(
                "cookie",
                upstream,
                paths=["/cookie"],
                agent_credentials="refuse",
                credential={"name": "up", "cookie": "sid"},
            ),
            rule("bare", upstream, paths=["/bare"], agent_credentials="strip"),
            rule("small", upstream, paths=["/small"], max_response=10),
            rule("crumbs", upstream, paths=["/crumbs"], set_cookie="drop"),
        ]
        with Product(folder, rules, {"up": record("api_key", "127.0.0.1", value=SECRET)}) as product:
            yield product, upstream


@pytest.fixture
def flow(running: tuple[Product, Upstream]) -> tuple[Product, Upstream]:
    running[1].forget()
    return running


def test_more_than_the_limit_is_told_when_to_come_back_and_not_sent(flow):
    product, upstream = flow
    assert [product.get(upstream, "/limited").status for _ in range(2)] == [200, 200]
    reply = product.get(upstream, "/limited")
    assert (reply.status, reply.code) == (429, "limit_exceeded")
    assert 1 <= int(reply.header("retry-after")) <= 1800
    assert reply.json()["kind"] == "rate_limit"
    assert len(upstream.requests) == 2
    assert product.get(upstream, "/crumbs").status == 200


def test_only_listed_headers_leave_and_what_describes_the_message(flow):
    product, upstream = flow
    lines = (b"Accept: a", b"X-Ok-1: b", b"X-Other: c", b"Cookie: d=e", b"Content-Type: text/plain")
    assert product.get(upstream, "/headers", *lines, method="POST", body=b"x").status == 200
    names = {name.lower() for name in upstream.requests[-1].names}
    assert names == {"host", "accept", "x-ok-1", "content-type", "content-length", "x-api-key"}


def test_the_list_of_headers_holds_for_trailers_too(flow):
    product, upstream = flow
    chunked = b"POST %s/headers HTTP/1.1\r\nHost: %s\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n"
    trailers = b"X-Ok-Sum: 1\r\nX-Other: 2\r\nx_ok_2: 3\r\nX-Okay: 4\r\nX-Api-Key: mine\r\n\r\n"
    with product.client() as client:
        head = chunked % (upstream.url.encode(), upstream.authority.encode())
        assert client.ask(head + trailers, "POST").status == 200
    (request,) = upstream.requests
    assert request.trailers == [(b"X-Ok-Sum", b"1"), (b"x_ok_2", b"3")]
    assert request.body == b"hi"


@pytest.mark.parametrize(
    ("path", "lines"),
    [
        ("/query?key=mine", ()),
        ("/query?a=b&%6bey=mine&key", ()),
        ("/query?key", ()),
        ("/query", (b"Authorization: Bearer mine",)),
        ("/cookie", (b"Cookie: sid=mine",)),
        ("/cookie", (b"Cookie: a=b;sid=mine",)),
        ("/cookie", (b"Cookie: a=b", b"cookie: c=d; sid = mine")),
    ],
)
def test_it_is_refused_in_the_query_and_in_cookies_where_the_rules_own_goes_there(flow, path, lines):
    product, upstream = flow
    reply = product.get(upstream, path, *lines)
    assert (reply.status, reply.code) == (403, "policy_denied")
    assert b"mine" not in reply.body
    assert upstream.received == b""


def test_other_parameters_and_cookies_leave_beside_ours(flow):
    product, upstream = flow
    assert product.get(upstream, "/query?keys=a&Key=b").status == 200
    assert product.get(upstream, "/cookie", b"Cookie: side=a; theme=dark").status == 200
    query, cookie = upstream.requests
    assert query.target == b"/query?keys=a&Key=b&key=" + SECRET.encode()
    assert cookie.all("Cookie") == ["side=a; theme=dark; sid=" + SECRET]


def test_a_credential_of_the_callers_own_is_refused_where_the_rule_says_so(flow):
    product, upstream = flow
    assert product.get(upstream, "/refusing").status == 200
    for line in (b"X-Api-Key: mine", b"x_api_key: mine", b"Authorization: Bearer mine"):
        reply = product.get(upstream, "/refusing", line)
        assert (reply.status, reply.code) == (403, "policy_denied")
        assert b"mine" not in reply.body
    assert len(upstream.requests) == 1


def test_it_is_taken_out_where_the_rule_has_none_of_ours(flow):
    product, upstream = flow
    assert product.get(upstream, "/bare", b"Authorization: Bearer mine", b"X-API-KEY: mine").status == 200
    assert b"mine" not in upstream.received


@pytest.mark.parametrize(
    "framing",
    [
        b"Content-Length: 11\r\n\r\nhello world",
        b"Transfer-Encoding: chunked\r\n\r\nb\r\nhello world\r\n0\r\n\r\n",
    ],
)
def test_a_larger_answer_than_the_rule_allows_does_not_come_back(flow, framing):
    product, upstream = flow
    upstream.forget(answering(b"HTTP/1.1 200 OK\r\n" + framing))
    reply = product.get(upstream, "/small")
    assert (reply.status, reply.code) == (502, "upstream_protocol")
    assert b"hello" not in reply.body
    upstream.forget(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789"))
    assert product.get(upstream, "/small").body == b"0123456789"


def test_cookies_are_not_set_where_the_rule_drops_them(flow):
    product, upstream = flow
    answer = b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nset-cookie: c=d\r\nX-A: 1\r\nContent-Length: 0\r\n\r\n"
    upstream.forget(answering(answer))
    reply = product.get(upstream, "/crumbs")
    assert (reply.all("set-cookie"), reply.all("x-a")) == ([], ["1"])
    assert product.get(upstream, "/bare").all("set-cookie") == ["a=b", "c=d"]


@pytest.mark.parametrize("method", [b"TRACE", b"trace", b"Track"])
def test_a_method_that_echoes_the_request_is_refused_in_any_case(flow, method):
    product, upstream = flow
    with product.client() as client:
        reply = client.ask(absolute(upstream, "/bare").replace(b"GET", method, 1))
    assert reply.status == 400
    assert upstream.received == b""
