"""A placeholder where the rule puts its credential is replaced on the way out; nothing unknown leaves there."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.flows.product import LOOPBACK, Product, record, rule
from tests.flows.upstreams import Connection, Upstream
from tests.flows.ways import PLAIN_WAYS, Session, enter
from tests.flows.wire import Reply

SECRET = 'the&secret+of/"acme"%=value'
PH = "sluicegate:shop"
FORM, JSON = b"Content-Type: application/x-www-form-urlencoded", b"Content-Type: application/json"
LIMIT = 1 << 20


class Flow:
    def __init__(self, product: Product, upstream: Upstream) -> None:
        self.product = product
        self.upstream = upstream

    def ask(self, path: str, *lines: bytes, body: bytes = b"", way: str = "base-url") -> Reply:
        with self.session(way) as session:
            return session.ask("POST", path, *lines, body=body)

    def session(self, way: str = "base-url") -> Session:
        return enter(self.product, way, self.upstream, "shop")

    def sent(self, path: str, *lines: bytes, body: bytes = b"", way: str = "base-url") -> Any:
        assert self.ask(path, *lines, body=body, way=way).status == 200
        (request,) = self.upstream.requests
        return request

    def refused(self, path: str, *lines: bytes, body: bytes = b"", status: int = 400) -> None:
        """A clear 4xx, and no byte upstream."""
        reply = self.ask(path, *lines, body=body)
        assert reply.status == status, reply.body
        assert json.loads(reply.body)["kind"] in ("bad_input", "permission")
        assert SECRET.encode() not in reply.body
        assert self.upstream.requests == []


def positions(*given: dict[str, Any], name: str = "shop") -> dict[str, Any]:
    return {"name": name, "placeholders": list(given)}


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Flow]:
    with ExitStack() as stack:
        upstream = stack.enter_context(Upstream())
        everywhere = (
            {"header": "X-Api-Key"}, {"basic": "password"}, {"query": "key"}, {"path": 3, "format": "bot{value}"},
        )  # fmt: skip
        plain = {"host": upstream.host, "port": upstream.port, "networks": LOOPBACK, "plaintext": True}
        allow = [
            rule("shop", upstream, paths=["/head/**"], credential=positions(*everywhere)),
            {"name": "json", **plain, "paths": ["/json/**"], "credential": positions({"json": "/login/secret"})},
            {"name": "form", **plain, "paths": ["/form/**"], "credential": positions({"form": "client_secret"})},
            {"name": "unbound", **plain, "paths": ["/unbound/**"],
             "credential": positions({"query": "key", "placeholder": "SK-DUMMY-0001"}, name="elsewhere")},
        ]  # fmt: skip
        records = {
            "shop": record("api_key", upstream.host, value=SECRET),
            "elsewhere": record("bearer", "other.example", token="another-secret-of-acme"),
        }
        with Product(folder, allow, records) as product:
            yield Flow(product, upstream)


@pytest.fixture
def flow(running: Flow) -> Flow:
    running.upstream.forget()
    return running


@pytest.mark.parametrize("way", PLAIN_WAYS)
def test_it_is_replaced_in_every_position_of_the_head_by_every_way(flow: Flow, way: str) -> None:
    login = b"Authorization: Basic " + base64.b64encode(b"user:" + PH.encode())
    request = flow.sent(f"/head/x/bot{PH}?a=%20&key={PH}", b"x-api-key: " + PH.encode(), login, way=way)
    assert request.target == b"/head/x/bot" + PERCENT + b"?a=%20&key=" + PERCENT
    assert request.all("X-Api-Key") == [SECRET]
    assert base64.b64decode(request.all("Authorization")[0].split()[1]).decode() == f"user:{SECRET}"


PERCENT = b"the%26secret%2Bof%2F%22acme%22%25%3Dvalue"


@pytest.mark.parametrize("size", [LIMIT + 1, 3 * LIMIT])
def test_a_header_is_replaced_before_the_first_byte_of_a_body_of_any_size(flow: Flow, size: int) -> None:
    request = flow.sent("/head/x", b"X-Api-Key: " + PH.encode(), body=b"x" * size)
    assert (request.all("X-Api-Key"), len(request.body)) == ([SECRET], size)


@pytest.mark.parametrize(
    ("path", "lines"),
    [
        ("/head/x", [b"X-Api-Key: sluicegate:globex"]),
        ("/head/x", [b"X_Api_Key: sluicegate:globex"]),
        ("/head/x", [b"X-Api-Key: my own key"]),
        ("/head/x?key=%73luicegate:other", []),
        ("/head/x?key=sluicegate:shop&key=sluicegate:other", []),
        ("/head/x?k%65y=my-own", []),
        ("/head/x/botsluicegate:other", []),
        ("/head/x", [b"Authorization: Basic " + base64.b64encode(b"u:sluicegate:other")]),
        ("/head/x", [b"Authorization: Bearer sluicegate:shop"]),
    ],
)
def test_an_unknown_placeholder_in_a_named_position_never_leaves(flow: Flow, path: str, lines: list[bytes]) -> None:
    flow.refused(path, *lines)


def test_a_mere_mention_passes_untouched(flow: Flow) -> None:
    body = f"what is {PH}, or sluicegate:other?".encode()
    request = flow.sent(f"/head/{PH}?q={PH}", b"X-Note: " + PH.encode(), body=body)
    assert (request.target, request.body) == (f"/head/{PH}?q={PH}".encode(), body)
    assert request.all("X-Note") == [PH]
    assert request.all("X-Api-Key") == request.all("Authorization") == []


def document(secret: str = PH) -> bytes:
    return json.dumps({"note": PH, "login": {"secret": secret}}).encode()


def test_a_json_body_leaves_with_the_value_and_its_own_length(flow: Flow) -> None:
    request = flow.sent("/json/login", JSON, body=document())
    assert json.loads(request.body) == {"note": PH, "login": {"secret": SECRET}}
    assert request.all("Content-Length") == [str(len(request.body))]


def test_a_chunked_json_body_leaves_with_a_length(flow: Flow) -> None:
    whole = document()
    at = whole.index(b"gate:shop")  # the placeholder is cut in two by a chunk
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (whole[:at], whole[at:])) + b"0\r\n\r\n"
    with flow.session() as session:
        head = session.request("PUT", "/json/login", JSON, b"Transfer-Encoding: chunked").partition(b"\r\nContent-Le")[
            0
        ]
        reply = session.client.ask(head + b"\r\n\r\n" + chunks, "PUT")
    assert reply.status == 200
    (request,) = flow.upstream.requests
    assert json.loads(request.body)["login"]["secret"] == SECRET
    assert request.all("Transfer-Encoding") == []
    assert request.all("Content-Length") == [str(len(request.body))]


def test_a_refusal_by_another_clock_is_no_reason_to_send_it_twice(flow: Flow) -> None:
    """C05: nothing in the request is for a moment, and nothing newer is stored."""

    def script(connection: Connection) -> None:
        connection.request()
        connection.send(b"HTTP/1.1 401 No\r\nDate: Mon, 30 Nov 2026 00:00:00 GMT\r\nContent-Length: 0\r\n\r\n")

    flow.upstream.script, before = script, flow.upstream.script
    try:
        assert flow.ask("/head/x", b"X-Api-Key: " + PH.encode()).status == 401
    finally:
        flow.upstream.script = before
    assert len(flow.upstream.requests) == 1


def test_a_websocket_s_handshake_leaves_with_the_value(flow: Flow) -> None:
    upgrade = (b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
               b"Sec-WebSocket-Version: 13", b"X-Api-Key: " + PH.encode())  # fmt: skip

    def script(connection: Connection) -> None:
        connection.request()
        connection.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello")
        connection.wait_for_end()

    flow.upstream.script, before = script, flow.upstream.script
    try:
        with flow.session() as session:
            session.client.send(session.request("GET", "/head/x", *upgrade))
            assert session.client.reply_head().status == 101
    finally:
        flow.upstream.script = before
    (request,) = flow.upstream.requests
    assert (request.all("X-Api-Key"), request.all("Upgrade")) == ([SECRET], ["websocket"])


def test_no_trailer_carries_what_a_placeholder_s_header_would(flow: Flow) -> None:
    with flow.session() as session:
        asked = session.request("PUT", "/head/x", b"Transfer-Encoding: chunked").partition(b"\r\nContent-Le")[0]
        trailers = b"X_Api-Key: mine\r\nAuthorization: Basic eDp5\r\nX-Other: kept\r\n"
        assert session.client.ask(asked + b"\r\n\r\n2\r\nhi\r\n0\r\n" + trailers + b"\r\n", "PUT").status == 200
    (request,) = flow.upstream.requests
    assert request.trailers == [(b"X-Other", b"kept")]


def test_a_form_leaves_with_the_value_and_its_own_length(flow: Flow) -> None:
    request = flow.sent("/form/token", FORM, body=b"grant=x&client_secret=" + PH.encode() + b"&z=%20")
    assert request.body == b"grant=x&client_secret=" + PERCENT + b"&z=%20"
    assert request.all("Content-Length") == [str(len(request.body))]


@pytest.mark.parametrize(
    ("lines", "body"),
    [
        ([JSON], document("sluicegate:other")),
        ([JSON], document("my-own")),
        ([JSON], b'{"login": {"secret": "sluicegate:shop", "secret": "x"}}'),
        ([JSON], b'{"login": '),
        ([FORM], b"login=sluicegate:shop"),
        ([JSON, b"Content-Encoding: gzip"], gzip.compress(document(), mtime=0)),
    ],
)
def test_a_body_with_something_else_in_the_position_never_leaves(flow: Flow, lines: list[bytes], body: bytes) -> None:
    flow.refused("/json/login", *lines, body=body)


def test_a_body_that_is_too_large_to_be_held_is_refused_as_such(flow: Flow) -> None:
    flow.refused("/json/login", JSON, body=b'{"a": "' + b"x" * LIMIT + b'"}', status=413)


def test_a_record_of_other_hosts_is_never_written_into_a_request(flow: Flow) -> None:
    reply = flow.ask("/unbound/x?key=SK-DUMMY-0001")
    assert (reply.status, json.loads(reply.body)["code"]) == (403, "credential_unbound")
    assert flow.upstream.requests == []


def test_an_echo_of_the_value_is_masked(flow: Flow) -> None:
    def echo(connection: Connection) -> None:
        request = connection.request()
        body = request.head + request.body
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    flow.upstream.script, before = echo, flow.upstream.script
    try:
        login = b"Authorization: Basic " + base64.b64encode(b"user:" + PH.encode())
        heard = flow.ask(f"/head/x?key={PH}", b"X-Api-Key: " + PH.encode(), login).body
        heard += flow.ask("/json/login", JSON, body=document()).body
    finally:
        flow.upstream.script = before
    for form in (SECRET.encode(), PERCENT, base64.b64encode(f"user:{SECRET}".encode()), json.dumps(SECRET).encode()):
        assert form.strip(b'"') not in heard


def test_nothing_of_it_is_in_audit_or_log(flow: Flow) -> None:
    flow.sent(f"/head/x/bot{PH}?key={PH}", b"X-Api-Key: " + PH.encode())
    shown = flow.product.diagnostics() + (flow.product.folder / "audit.jsonl").read_text()
    assert SECRET not in shown
    assert PERCENT.decode() not in shown
