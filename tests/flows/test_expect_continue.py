"""Expect: 100-continue: the upstream's answer decides, and a refusal of ours invites no body."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.product import Product, record, rule
from tests.flows.upstreams import Connection, Script, Upstream
from tests.flows.ways import PLAIN_WAYS, Session, enter

SECRET = "sk-live-0123456789abcdef"
SIZE = 8 * 1024 * 1024
BODY = b"x" * SIZE


class Flow:
    def __init__(self, product: Product, upstream: Upstream, bare: Upstream) -> None:
        self.product = product
        self.upstream = upstream
        self.bare = bare


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Flow]:
    with Upstream() as upstream, Upstream(host="127.0.0.2") as bare:
        rules = [
            rule("up", upstream, methods=["PUT", "GET"], credential={"name": "up", "header": "X-Api-Key"}),
            rule("bare", bare, credential={"name": "not-there", "header": "X-Api-Key"}),
        ]
        with Product(folder, rules, {"up": record("api_key", "127.0.0.1", value=SECRET)}) as product:
            yield Flow(product, upstream, bare)


@pytest.fixture
def flow(running: Flow) -> Flow:
    running.upstream.forget()
    running.bare.forget()
    return running


def head(session: Session, method: str = "PUT") -> bytes:
    return session.request(method, "/up", b"Expect: 100-continue", b"Content-Length: %d" % SIZE).replace(
        b"Content-Length: 0\r\n", b""
    )


def read_after(*first: bytes) -> Script:
    """A script that sends `first`, then reads the body and answers."""

    def script(connection: Connection) -> None:
        request = connection.head()
        for part in first:
            connection.send(part)
        connection.body(request)
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    return script


INTERIM = {
    "100": [b"HTTP/1.1 100 Continue\r\n\r\n"],
    "100 with a field": [b"HTTP/1.1 100 Continue\r\nConnection: keep-alive\r\n\r\n"],
    "100 that says close": [b"HTTP/1.1 100 Continue\r\nConnection: close\r\n\r\n"],
    "several": [
        b"HTTP/1.1 102 Processing\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n",
    ],
}


@pytest.mark.parametrize("way", PLAIN_WAYS)
@pytest.mark.parametrize("interim", INTERIM)
def test_the_upstreams_invitation_reaches_the_client_once(flow: Flow, way: str, interim: str) -> None:
    """B23 a, e, f."""
    flow.upstream.forget(read_after(*INTERIM[interim]))
    with enter(flow.product, way, flow.upstream, "up") as session:
        session.client.send(head(session))
        invited = b""
        while b"100 Continue" not in invited:
            invited += session.client.until(b"\r\n\r\n")
        assert invited.count(b"HTTP/1.1 100") == 1
        session.client.send(BODY)
        reply = session.client.reply()
    assert (reply.status, reply.body) == (200, b"ok")
    assert not [status for status, _ in reply.interim if status == 100]
    assert flow.upstream.requests[0].body == BODY
    assert flow.upstream.requests[0].all("X-Api-Key") == [SECRET]


@pytest.mark.parametrize("status", [417, 403])
def test_a_final_answer_before_the_body_reaches_the_client_without_an_invitation(flow: Flow, status: int) -> None:
    """B23 b, c."""

    def script(connection: Connection) -> None:
        connection.head()
        connection.send(b"HTTP/1.1 %d No\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno" % status)
        connection.wait_for_end()

    flow.upstream.forget(script)
    with enter(flow.product, "absolute-form", flow.upstream, "up") as session:
        session.client.send(head(session))
        reply = session.client.reply()
    assert reply.status == status
    assert reply.interim == []


def test_a_silent_upstream_gets_the_body_once_the_client_sends_it(flow: Flow) -> None:
    """B23 d: no invitation comes; the client goes on by itself, as RFC 9110 section 10.1.1 allows."""
    flow.upstream.forget(read_after())
    with enter(flow.product, "absolute-form", flow.upstream, "up") as session:
        session.client.send(head(session))
        flow.upstream.wait()
        session.client.send(BODY)
        assert session.client.reply().status == 200
    assert flow.upstream.requests[0].body == BODY


@pytest.mark.parametrize("way", PLAIN_WAYS)
def test_a_denied_upload_is_refused_without_an_invitation(flow: Flow, way: str) -> None:
    """B23: the final 4xx, no 100, nothing upstream."""
    with enter(flow.product, way, flow.upstream, "up") as session:
        session.client.send(head(session, "POST"))
        reply = session.client.reply()
    assert (reply.status, reply.interim) == (403, [])
    assert flow.upstream.received == b""


def test_an_upload_without_a_credential_is_refused_without_an_invitation(flow: Flow) -> None:
    """B23: the body is still unsent when credentials fail."""
    with enter(flow.product, "absolute-form", flow.bare, "bare") as session:
        session.client.send(head(session))
        reply = session.client.reply()
    assert (reply.code, reply.interim) == ("credential_missing", [])
    assert flow.bare.received == b""


def test_a_403_during_the_upload_reaches_a_client_that_is_still_sending(flow: Flow) -> None:
    """B23 c without Expect."""

    def script(connection: Connection) -> None:
        connection.head()
        connection.send(b"HTTP/1.1 403 No\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
        connection.wait_for_end()

    flow.upstream.forget(script)
    with enter(flow.product, "absolute-form", flow.upstream, "up") as session:
        request = session.request("PUT", "/up", b"Content-Length: %d" % SIZE).replace(b"Content-Length: 0\r\n", b"")
        session.client.send(request)
        sender = threading.Thread(target=session.client.send_quietly, args=(BODY,), daemon=True)
        sender.start()
        reply = session.client.reply()
        sender.join(8)
    assert (reply.status, reply.json()["kind"]) == (403, "permission")


def test_an_unknown_expectation_is_passed_or_refused_and_never_hangs(flow: Flow) -> None:
    reply = flow.product.get(flow.upstream, "/", b"Expect: 200-ok")
    assert reply.status in (200, 400, 417)


def test_an_http10_client_gets_no_interim_reply(flow: Flow) -> None:
    flow.upstream.forget(read_after(b"HTTP/1.1 100 Continue\r\n\r\n"))
    with flow.product.client() as client:
        client.send(
            b"PUT %s/ HTTP/1.0\r\nHost: %s\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi"
            % (flow.upstream.url.encode(), flow.upstream.authority.encode())
        )
        reply = client.reply()
    assert (reply.status, reply.interim) == (200, [])
