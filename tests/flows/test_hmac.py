"""Requests leave signed by their provider's template, whatever the client sent in its place, each attempt anew."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from email.utils import formatdate
from pathlib import Path

import pytest

from tests.flows.product import LOOPBACK, Product, as_yaml, record
from tests.flows.upstreams import OK, Connection, Request, Upstream
from tests.flows.ways import PLAIN_WAYS, enter

SECRET = base64.b64encode(b"a-key-of-thirty-two-octets-00000").decode()
KEY_ID = "the-id-of-the-key-of-acme"
LIMIT = 100_000
PROVIDER = {
    "name": "exchange",
    "title": "An exchange like Coinbase's",
    "verified": "2026-12-01",
    "source": ["https://docs.cdp.coinbase.com/exchange/docs/rest-auth"],
    "hosts": ["127.0.0.1"],
    "auth": {
        "hmac": {
            "algorithm": "sha256",
            "message": "{timestamp}{method}{target}{body}",
            "key": "base64",
            "encoding": "base64",
            "timestamp": "microseconds",
            "headers": {"ACCESS-KEY": "{key_id}", "ACCESS-TIME": "{timestamp}", "ACCESS-SIGN": "{signature}"},
            "body_limit": LIMIT,
        }
    },
    "operations": [{"name": "orders", "method": ["GET", "POST"], "path": "/orders", "idempotent": True}],
}


class Flow:
    def __init__(self, product: Product, upstream: Upstream) -> None:
        self.product = product
        self.upstream = upstream


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Flow]:
    with ExitStack() as stack:
        upstream = stack.enter_context(Upstream())
        (folder / "providers").mkdir()
        (folder / "providers" / "exchange.yaml").write_text(as_yaml(PROVIDER).replace("'2026-12-01'", "2026-12-01"))
        allow = [
            {"name": "orders", "provider": "exchange", "host": upstream.host, "port": upstream.port, "plaintext": True,
             "networks": LOOPBACK},
        ]  # fmt: skip
        records = {"exchange": record("hmac", upstream.host, key_id=KEY_ID, secret=SECRET)}
        with Product(folder, allow, records, providers=["./providers"]) as product:
            yield Flow(product, upstream)


@pytest.fixture
def flow(running: Flow) -> Flow:
    running.upstream.forget()
    running.upstream.script = lambda connection: (connection.request(), connection.send(OK))[0] and None
    return running


def verified(request: Request) -> str:
    """The time that the request was signed for; the signature is right."""
    (time,), (key,), (sign,) = (request.all(f"ACCESS-{name}") for name in ("TIME", "KEY", "SIGN"))
    covered = time.encode() + request.method.encode() + request.target + request.body
    assert sign == base64.b64encode(hmac.digest(base64.b64decode(SECRET), covered, "sha256")).decode()
    assert key == KEY_ID
    return time


@pytest.mark.parametrize("way", PLAIN_WAYS)
@pytest.mark.parametrize("body", [b"", b'{"size": 1}', b"x" * 80_000])
def test_it_verifies_where_it_arrives_by_every_way(flow: Flow, way: str, body: bytes) -> None:
    copies = (b"access-key: mine", b"ACCESS_SIGN: forged", b"Access-Time: 0")
    with enter(flow.product, way, flow.upstream, "orders") as session:
        assert session.ask("POST", "/orders?b=2&a=%20", *copies, body=body).status == 200
    (request,) = flow.upstream.requests
    verified(request)
    assert (request.target, request.body) == (b"/orders?b=2&a=%20", body)
    assert request.all("ACCESS_SIGN") == []


def test_a_chunked_body_is_held_and_signed(flow: Flow) -> None:
    with flow.product.client() as client:
        head = f"POST {flow.upstream.url}/orders HTTP/1.1\r\nHost: {flow.upstream.authority}\r\n".encode()
        reply = client.ask(head + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", "POST")
    assert reply.status == 200
    (request,) = flow.upstream.requests
    verified(request)
    assert (request.body, request.all("Content-Length")) == (b"hello", ["5"])


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_over_the_limit_is_refused_as_such_and_nothing_is_sent(flow: Flow, chunked: bool) -> None:
    body = b"x" * (LIMIT + 1)
    framing = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % len(body)
    sent = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if chunked else body
    head = f"POST {flow.upstream.url}/orders HTTP/1.1\r\nHost: {flow.upstream.authority}\r\n".encode()
    with flow.product.client() as client:
        reply = client.ask(head + framing + b"\r\n\r\n" + sent, "POST")
    problem = json.loads(reply.body)
    assert (reply.status, problem["kind"]) == (413, "bad_input")
    assert str(LIMIT) in problem["detail"]
    assert flow.upstream.requests == []


def test_every_attempt_is_signed_for_its_own_time(flow: Flow) -> None:
    replies = iter([b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nRetry-After: 0\r\n\r\n", OK])

    def script(connection: Connection) -> None:
        connection.request()
        connection.send(next(replies))

    flow.upstream.script = script
    assert flow.product.get(flow.upstream, "/orders", method="POST", body=b"once").status == 200
    first, second = (verified(request) for request in flow.upstream.requests)
    assert int(second) > int(first)


def test_a_refusal_by_another_clock_is_signed_once_more_by_that_clock(flow: Flow) -> None:
    theirs = time.time() - 1800
    answers = iter([401, 401, 200])

    def script(connection: Connection) -> None:
        connection.request()
        date = formatdate(theirs, usegmt=True).encode()
        connection.send(b"HTTP/1.1 %d X\r\nDate: %b\r\nContent-Length: 0\r\n\r\n" % (next(answers), date))

    flow.upstream.script = script
    assert flow.product.get(flow.upstream, "/orders").status == 401
    assert flow.product.get(flow.upstream, "/orders").status == 200  # the offset is remembered for the host
    ours, corrected, next_call = (int(verified(request)) / 1e6 for request in flow.upstream.requests)
    assert abs(ours - time.time()) < 120
    assert abs(corrected - theirs) < 120
    assert abs(next_call - theirs) < 120


def test_neither_secret_nor_key_is_in_reply_audit_or_log(flow: Flow) -> None:
    def echo(connection: Connection) -> None:
        body = connection.request().head + SECRET.encode() + hashlib.sha256(SECRET.encode()).hexdigest().encode()
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    flow.upstream.script = echo
    heard = flow.product.get(flow.upstream, "/orders").body.decode()
    shown = heard + flow.product.diagnostics() + (flow.product.folder / "audit.jsonl").read_text()
    assert SECRET not in shown
    assert KEY_ID not in shown
