"""An upstream that gives the credential back does not give it to the agent, in any rendering, split anywhere."""

from __future__ import annotations

import base64
import gzip
import html
import json
import threading
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.flows.product import Product, absolute, eventually, record, rule
from tests.flows.upstreams import Connection, Upstream, answering
from tests.flows.ways import PLAIN_WAYS, enter

SECRET = 'sk-live/"quoted"+&=0123456789abcdef'
USER = "robot"


def inside_base64(before: bytes, raw: bytes) -> bytes:
    """The characters that `raw` alone decides when it is encoded after other bytes and before more."""
    first, last = -(-8 * len(before) // 6), 8 * (len(before) + len(raw)) // 6
    return base64.b64encode(before + raw + b"zzz")[first:last]


def renderings(secret: str, user: str = USER) -> dict[str, bytes]:
    raw = secret.encode()
    return {
        "raw": raw,
        "base64": base64.b64encode(raw),
        "base64 after one byte": inside_base64(b"x", raw),
        "base64 after two bytes": inside_base64(b"xy", raw),
        "base64url": base64.urlsafe_b64encode(raw).rstrip(b"="),
        "basic": base64.b64encode(user.encode() + b":" + raw),
        "percent": quote(secret, safe="").encode(),
        "json": json.dumps(secret)[1:-1].encode(),
        "html": html.escape(secret).encode(),
        "hex": raw.hex().encode(),
        "upper hex": raw.hex().upper().encode(),
    }


class Flow:
    def __init__(
        self, product: Product, header: Upstream, basic: Upstream, unmasked: Upstream, plain: Upstream
    ) -> None:
        self.product = product
        self.header = header
        self.basic = basic
        self.unmasked = unmasked
        self.plain = plain


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Flow]:
    credential = {"name": "key", "header": "X-Api-Key"}
    with ExitStack() as stack:
        header = stack.enter_context(Upstream())
        basic = stack.enter_context(Upstream(host="127.0.0.2"))
        unmasked = stack.enter_context(Upstream(host="127.0.0.3"))
        plain = stack.enter_context(Upstream(host="127.0.0.4"))
        rules = [
            rule("header", header, credential=credential),
            rule("basic", basic, credential={"name": "login"}),
            rule("unmasked", unmasked, credential=credential, mask=False),
            rule("plain", plain, credential=credential, compressed="identity"),
        ]
        records = {
            "key": record("api_key", "127.0.0.1", "127.0.0.3", "127.0.0.4", value=SECRET),
            "login": record("basic", "127.0.0.2", username=USER, password=SECRET),
        }
        yield Flow(stack.enter_context(Product(folder, rules, records)), header, basic, unmasked, plain)


@pytest.fixture
def flow(running: Flow) -> Flow:
    for upstream in (running.header, running.basic, running.unmasked, running.plain):
        upstream.forget()
    return running


def assert_absent(data: bytes, secret: str = SECRET) -> None:
    for name, form in renderings(secret).items():
        assert form not in data, (name, data[:500])


def body_reply(body: bytes, *lines: bytes) -> bytes:
    return b"\r\n".join([b"HTTP/1.1 200 OK", *lines, b"Content-Length: %d" % len(body)]) + b"\r\n\r\n" + body


@pytest.mark.parametrize("way", PLAIN_WAYS)
@pytest.mark.parametrize("form", list(renderings(SECRET)))
def test_every_rendering_in_a_body_is_masked(flow: Flow, way: str, form: str) -> None:
    """B41, C03."""
    flow.header.forget(answering(body_reply(b"before " + renderings(SECRET)[form] + b" after")))
    with enter(flow.product, way, flow.header, "header") as session:
        reply = session.ask("GET", "/")
    assert reply.complete
    assert reply.body.startswith(b"before ")
    assert reply.body.endswith(b" after")
    assert_absent(reply.body)


@pytest.mark.parametrize("form", list(renderings(SECRET)))
@pytest.mark.parametrize("name", ["X-Echo", "Location", "Set-Cookie", "WWW-Authenticate", "Link"])
def test_every_rendering_in_a_reply_header_is_masked(flow: Flow, form: str, name: str) -> None:
    """B41, C03."""
    value = b"https://up.test/?k=" + renderings(SECRET)[form] + b"&z=1"
    for status in (b"200 OK", b"302 Found", b"401 No", b"500 Oops"):
        flow.header.forget(
            answering(
                b"HTTP/1.1 " + status + b"\r\n" + name.encode() + b": " + value + b"\r\nContent-Length: 0\r\n\r\n"
            )
        )
        assert_absent(flow.product.get(flow.header).head)


def test_an_echo_of_the_whole_request_is_masked(flow: Flow) -> None:
    """B41: headers in JSON."""

    def echo(connection: Connection) -> None:
        request = connection.request()
        body = json.dumps({name.decode(): value.decode() for name, value in request.headers}).encode()
        connection.send(body_reply(body + request.head, b"Content-Type: application/json"))

    for upstream in (flow.header, flow.basic):
        upstream.forget(echo)
        reply = flow.product.get(upstream, "/", b"X-Mine: kept")
        assert b"kept" in reply.body
        assert_absent(reply.body)


def test_basic_credentials_are_masked_in_both_forms(flow: Flow) -> None:
    """C03: base64 of user:secret, and the secret."""
    forms = renderings(SECRET)
    flow.basic.forget(answering(body_reply(forms["basic"] + b"|" + forms["raw"] + b"|" + USER.encode())))
    reply = flow.product.get(flow.basic)
    assert_absent(reply.body)
    assert reply.body.endswith(b"|" + USER.encode())


@pytest.mark.parametrize("form", list(renderings(SECRET)))
def test_a_secret_split_at_every_offset_of_a_chunk_is_masked_without_delay(flow: Flow, form: str) -> None:
    """C03, B41: what stands before the split arrives before the rest is sent."""
    secret = renderings(SECRET)[form]
    state: dict[str, object] = {}

    def script(connection: Connection) -> None:
        connection.request()
        offset: int = state["offset"]  # type: ignore[assignment]
        seen: threading.Event = state["seen"]  # type: ignore[assignment]
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        first, second = b"data: head " + secret[:offset], secret[offset:] + b" tail\n\n"
        connection.send(b"%x\r\n" % len(first) + first + b"\r\n")
        seen.wait(5)
        connection.send(b"%x\r\n" % len(second) + second + b"\r\n0\r\n\r\n")

    flow.header.forget(script)
    with flow.product.client() as client:
        for offset in range(1, len(secret)):
            state.update(offset=offset, seen=threading.Event())
            client.send(absolute(flow.header, "/"))
            client.reply_head()
            got = b""
            while not got.startswith(b"data: head "):
                got += client.chunk()
            state["seen"].set()  # type: ignore[attr-defined]
            while piece := client.chunk():
                got += piece
            assert got.endswith(b" tail\n\n")
            assert_absent(got)


def test_a_tail_that_turns_out_harmless_is_delivered(flow: Flow) -> None:
    half = SECRET.encode()[:12]
    flow.header.forget(
        answering(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(half), half))
    )
    assert flow.product.get(flow.header).body == half
    flow.header.forget(answering(body_reply(half)))
    assert flow.product.get(flow.header).body == half


@pytest.mark.parametrize("framing", ["length", "chunked", "until close"])
@pytest.mark.parametrize("status", [b"200 OK", b"500 Oops", b"404 Not Found"])
def test_a_secret_is_masked_in_every_framing_and_status(flow: Flow, framing: str, status: bytes) -> None:
    body = b"x" * 1000 + SECRET.encode() + b"y" * 1000

    def script(connection: Connection) -> None:
        connection.request()
        head = b"HTTP/1.1 " + status + b"\r\nContent-Type: text/html\r\n"
        if framing == "length":
            connection.send(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        elif framing == "chunked":
            connection.send(head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n")
        else:
            connection.send(head + b"\r\n" + body)
            connection.end()

    flow.header.forget(script)
    reply = flow.product.get(flow.header)
    assert reply.complete
    assert_absent(reply.body)


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_secret_in_a_compressed_reply_is_masked(flow: Flow, coding: str) -> None:
    """C03."""
    plain = b"head " + SECRET.encode() + b" tail " * 100
    packed = gzip.compress(plain) if coding == "gzip" else zlib.compress(plain)
    flow.header.forget(answering(body_reply(packed, b"Content-Encoding: " + coding.encode())))
    reply = flow.product.get(flow.header, "/", b"Accept-Encoding: " + coding.encode())
    if reply.status == 502:
        return
    body = reply.body
    if reply.header("Content-Encoding"):
        body = zlib.decompressobj(47).decompress(body)
    assert body.startswith(b"head ")
    assert_absent(body)


@pytest.mark.parametrize("form", list(renderings(SECRET)))
def test_a_secret_in_trailers_is_masked(flow: Flow, form: str) -> None:
    flow.header.forget(
        answering(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Echo\r\n\r\n2\r\nok\r\n0\r\nX-Echo: "
            + renderings(SECRET)[form]
            + b"\r\n\r\n"
        )
    )
    reply = flow.product.get(flow.header)
    assert reply.body == b"ok"
    assert_absent(b"".join(value for _, value in reply.trailers))


def test_a_secret_in_the_reason_or_an_interim_reply_is_masked(flow: Flow) -> None:
    secret = SECRET.encode()
    flow.header.forget(
        answering(
            b"HTTP/1.1 103 Early\r\nLink: <"
            + secret
            + b">\r\n\r\nHTTP/1.1 200 "
            + secret
            + b"\r\nContent-Length: 2\r\n\r\nok"
        )
    )
    with flow.product.client() as client:
        client.send(absolute(flow.header, "/", b"Connection: close"))
        assert_absent(client.rest())


@pytest.mark.parametrize("way", PLAIN_WAYS)
def test_trace_is_refused(flow: Flow, way: str) -> None:
    """C03."""
    with enter(flow.product, way, flow.header, "header") as session:
        reply = session.ask("TRACE", "/")
    assert 400 <= reply.status < 500
    assert flow.header.received == b""


def test_a_rule_that_wants_identity_asks_for_it_and_gets_a_masked_body(flow: Flow) -> None:
    flow.plain.forget(answering(body_reply(b"<" + SECRET.encode() + b">")))
    reply = flow.product.get(flow.plain, "/", b"Accept-Encoding: br, gzip", b"accept_encoding: zstd")
    assert (reply.status, len(reply.body)) == (200, len(SECRET) + 2)
    assert_absent(reply.body)
    (request,) = flow.plain.requests
    assert [value for name, value in request.headers if name.lower().replace(b"_", b"-") == b"accept-encoding"] == [
        b"identity"
    ]


def test_what_is_masked_is_counted_for_each_reply(flow: Flow) -> None:
    """The same head is remembered; what it gives back counts each time."""
    name = "sluicegate_credentials_masked_total"
    before = flow.product.metric(name, provider="other")
    head = b"HTTP/1.1 200 OK\r\nX-Echo: " + SECRET.encode() + b"\r\nContent-Length: 2\r\n\r\nok"
    flow.header.forget(answering(head))
    for _ in range(3):
        assert flow.product.get(flow.header).status == 200
    packed = gzip.compress(SECRET.encode())
    flow.header.forget(answering(body_reply(packed, b"Content-Encoding: gzip")))
    assert flow.product.get(flow.header).status == 502
    eventually(lambda: flow.product.metric(name, provider="other") == before + 4)


@pytest.mark.parametrize(
    "body",
    [
        SECRET[:-1] + "g",
        SECRET[1:],
        "sk-live-0123456789abcdef AKIAIOSFODNN7EXAMPLE ghp_" + "x" * 36,
        "-----BEGIN PUBLIC KEY-----\n" + base64.b64encode(bytes(range(200))).decode(),
        "integrity=sha512-" + base64.b64encode(bytes(64)).decode() + " " + "deadbeef" * 8,
        "550e8400-e29b-41d4-a716-446655440000 commit da39a3ee5e6b4b0d3255bfef95601890afd80709",
        USER,
    ],
)
def test_what_looks_like_a_secret_and_is_not_that_of_the_call_is_untouched(flow: Flow, body: str) -> None:
    for upstream in (flow.header, flow.basic):
        upstream.forget(answering(body_reply(body.encode())))
        assert flow.product.get(upstream).body == body.encode()


def test_mask_false_turns_it_off(flow: Flow) -> None:
    flow.unmasked.forget(answering(body_reply(SECRET.encode())))
    assert flow.product.get(flow.unmasked).body == SECRET.encode()


def test_a_body_without_the_secret_is_untouched(flow: Flow) -> None:
    body = bytes(range(256)) * 5000
    flow.header.forget(answering(body_reply(body)))
    reply = flow.product.get(flow.header)
    assert reply.body == body
    assert reply.header("Content-Length") == str(len(body))
