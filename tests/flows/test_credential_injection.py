"""The tenant's credential leaves, once, where the rule places it; nothing the client sent in its place does."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.flows.product import Product, record, rule
from tests.flows.upstreams import Upstream
from tests.flows.ways import PLAIN_WAYS, enter

SECRET = "sk-live-0123456789abcdef"
ODD_SECRET = "a&b+c/d%e=f g#0123456789"
PLACEHOLDER = "placeholder-from-the-sdk"
HOSTS = {
    "header": "127.0.0.1",
    "query": "127.0.0.2",
    "cookie": "127.0.0.3",
    "basic": "127.0.0.4",
    "several": "127.0.0.5",
    "bearer": "127.0.0.6",
    "open": "127.0.0.7",
    "odd": "127.0.0.8",
}
CREDENTIALS = {
    "header": {"name": "header", "header": "X-API-KEY"},
    "query": {"name": "query", "query": "key"},
    "cookie": {"name": "cookie", "cookie": "session"},
    "basic": {"name": "basic"},
    "several": {"name": "several"},
    "bearer": {"name": "bearer"},
    "odd": {"name": "odd", "query": "key"},
}
RECORDS = {
    "header": record("api_key", HOSTS["header"], value=SECRET),
    "query": record("api_key", HOSTS["query"], value=SECRET),
    "cookie": record("api_key", HOSTS["cookie"], value=SECRET),
    "basic": record("basic", HOSTS["basic"], username="robot", password=SECRET),
    "several": record("headers", HOSTS["several"], headers={"X-Key-Id": "key-id-0123456789", "X-Key-Secret": SECRET}),
    "bearer": record("bearer", HOSTS["bearer"], token=SECRET),
    "odd": record("api_key", HOSTS["odd"], value=ODD_SECRET),
}


class Flow:
    def __init__(self, product: Product, upstreams: dict[str, Upstream]) -> None:
        self.product = product
        self.upstreams = upstreams


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Flow]:
    with ExitStack() as stack:
        upstreams = {name: stack.enter_context(Upstream(host=host)) for name, host in HOSTS.items()}
        rules = [
            rule(name, upstream, **({"credential": CREDENTIALS[name]} if name in CREDENTIALS else {}))
            for name, upstream in upstreams.items()
        ]
        yield Flow(stack.enter_context(Product(folder, rules, RECORDS)), upstreams)


@pytest.fixture
def flow(running: Flow) -> Flow:
    for upstream in running.upstreams.values():
        upstream.forget()
    return running


@pytest.mark.parametrize("way", PLAIN_WAYS)
def test_a_header_credential_is_injected_once_on_every_listener(flow: Flow, way: str) -> None:
    upstream = flow.upstreams["header"]
    with enter(flow.product, way, upstream, "header") as session:
        assert session.ask("GET", "/v1/things").status == 200
    (request,) = upstream.requests
    assert request.all("X-API-KEY") == [SECRET]
    assert b"X-API-KEY: " in request.head
    assert request.target == b"/v1/things"
    assert request.all("Host") == [upstream.authority]


@pytest.mark.parametrize("way", PLAIN_WAYS)
def test_every_client_copy_of_an_injected_header_is_removed_in_any_case(flow: Flow, way: str) -> None:
    """B91."""
    upstream = flow.upstreams["header"]
    copies = [name + b": " + PLACEHOLDER.encode() for name in (b"x-api-key", b"X-API-KEY", b"X-Api-Key", b"x-ApI-kEy")]
    with enter(flow.product, way, upstream, "header") as session:
        assert session.ask("GET", "/", *copies).status == 200
    (request,) = upstream.requests
    assert request.all("X-API-KEY") == [SECRET]
    assert PLACEHOLDER.encode() not in upstream.received


@pytest.mark.parametrize("way", PLAIN_WAYS)
def test_a_client_cannot_strip_the_injected_header_by_naming_it_in_connection(flow: Flow, way: str) -> None:
    """B10."""
    upstream = flow.upstreams["header"]
    with enter(flow.product, way, upstream, "header") as session:
        reply = session.ask("GET", "/", b"Connection: close, X-Api-Key", b"X-Api-Key: " + PLACEHOLDER.encode())
    assert reply.status == 200
    assert upstream.requests[0].all("X-Api-Key") == [SECRET]


@pytest.mark.parametrize(
    "authorization",
    [b"Bearer " + PLACEHOLDER.encode(), b"Basic " + base64.b64encode(b"x:placeholder"), b"", b"bearer  y"],
)
def test_the_clients_own_authorization_gives_way_to_the_bearer_credential(flow: Flow, authorization: bytes) -> None:
    """B15, B43."""
    upstream = flow.upstreams["bearer"]
    assert flow.product.get(upstream, "/", b"AuthoriZation: " + authorization).status == 200
    assert upstream.requests[0].all("Authorization") == [f"Bearer {SECRET}"]


def test_two_authorization_lines_are_refused_or_both_dropped(flow: Flow) -> None:
    """B15."""
    upstream = flow.upstreams["bearer"]
    reply = flow.product.get(upstream, "/", b"Authorization: first", b"AUTHORIZATION: second")
    assert reply.status in (200, 400)
    assert b"first" not in upstream.received
    assert b"second" not in upstream.received


@pytest.mark.parametrize("way", PLAIN_WAYS)
@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("/s", b""),
        ("/s?", b""),
        ("/s?a=1&b=%2F+x", b"a=1&b=%2F+x"),
        (f"/s?a=1&key={PLACEHOLDER}&b=2", b"a=1&b=2"),
        (f"/s?k%65y={PLACEHOLDER}&key=&a=1&key=x", b"a=1"),
    ],
)
def test_a_query_credential_replaces_every_client_copy_and_keeps_the_rest(
    flow: Flow, way: str, path: str, kept: bytes
) -> None:
    upstream = flow.upstreams["query"]
    with enter(flow.product, way, upstream, "query") as session:
        assert session.ask("GET", path).status == 200
    target = upstream.requests[0].target
    assert target.count(b"key=") == 1
    assert target == b"/s?" + (kept + b"&" if kept else b"") + b"key=" + SECRET.encode()


def test_a_query_credential_is_percent_encoded(flow: Flow) -> None:
    """B43."""
    upstream = flow.upstreams["odd"]
    assert flow.product.get(upstream, "/s?x=1").status == 200
    query = upstream.requests[0].target.partition(b"?")[2].split(b"&")
    assert query[0] == b"x=1"
    assert query[1].upper() == b"KEY=A%26B%2BC%2FD%25E%3DF%20G%230123456789"


def test_a_cookie_credential_joins_the_clients_other_cookies(flow: Flow) -> None:
    upstream = flow.upstreams["cookie"]
    reply = flow.product.get(upstream, "/", b"Cookie: a=1; session=placeholder; b=2", b"cookie: session=again; c=3")
    assert reply.status == 200
    pairs = "; ".join(upstream.requests[0].all("Cookie")).split("; ")
    assert sorted(pairs) == sorted(["a=1", "b=2", "c=3", f"session={SECRET}"])


def test_a_cookie_credential_is_sent_when_the_client_has_no_cookie(flow: Flow) -> None:
    upstream = flow.upstreams["cookie"]
    assert flow.product.get(upstream).status == 200
    assert upstream.requests[0].all("Cookie") == [f"session={SECRET}"]


def test_a_user_name_and_password_become_basic(flow: Flow) -> None:
    upstream = flow.upstreams["basic"]
    assert flow.product.get(upstream, "/", b"Authorization: Basic Zm9vOmJhcg==").status == 200
    assert upstream.requests[0].all("Authorization") == [
        "Basic " + base64.b64encode(f"robot:{SECRET}".encode()).decode()
    ]


def test_several_headers_are_injected_at_once(flow: Flow) -> None:
    upstream = flow.upstreams["several"]
    assert flow.product.get(upstream, "/", b"x-key-id: mine", b"x-key-secret: mine").status == 200
    request = upstream.requests[0]
    assert request.all("X-Key-Id") == ["key-id-0123456789"]
    assert request.all("X-Key-Secret") == [SECRET]


def test_a_rule_without_a_credential_passes_the_callers_own_headers(flow: Flow) -> None:
    upstream = flow.upstreams["open"]
    assert flow.product.get(upstream, "/", b"Authorization: Bearer mine", b"Cookie: a=1").status == 200
    request = upstream.requests[0]
    assert request.all("Authorization") == ["Bearer mine"]
    assert request.all("Cookie") == ["a=1"]


@pytest.mark.parametrize("size", [0, 1, 65536, 1024 * 1024 + 1])
def test_injection_happens_at_any_body_size(flow: Flow, size: int) -> None:
    """B42."""
    upstream = flow.upstreams["bearer"]
    body = b"x" * size
    reply = flow.product.get(upstream, "/", b"Authorization: Bearer placeholder", method="POST", body=body)
    assert reply.status == 200
    (request,) = upstream.requests
    assert request.all("Authorization") == [f"Bearer {SECRET}"]
    assert request.body == body


def test_injection_happens_on_a_chunked_upload(flow: Flow) -> None:
    """B42, B44: the body is streamed untouched, a placeholder in it included."""
    upstream = flow.upstreams["bearer"]
    piece = PLACEHOLDER.encode() * 1000
    with flow.product.client() as client:
        client.send(
            b"POST %s/up HTTP/1.1\r\nHost: %s\r\nTransfer-Encoding: chunked\r\n\r\n"
            % (upstream.url.encode(), upstream.authority.encode())
        )
        for _ in range(50):
            client.send(b"%x\r\n" % len(piece) + piece + b"\r\n")
        client.send(b"0\r\n\r\n")
        assert client.reply().status == 200
    (request,) = upstream.requests
    assert request.all("Authorization") == [f"Bearer {SECRET}"]
    assert request.all("Transfer-Encoding") == ["chunked"]
    assert request.body == piece * 50


def test_the_audit_line_names_the_credential_that_was_injected(flow: Flow) -> None:
    """B42: the log says injected only if it was."""
    injected = flow.product.audited(flow.product.get(flow.upstreams["header"]).call_id)
    assert injected["credential"] == "header@1"
    passed = flow.product.audited(flow.product.get(flow.upstreams["open"]).call_id)
    assert not passed["credential"]
