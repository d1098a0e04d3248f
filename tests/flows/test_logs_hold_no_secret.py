"""Nothing that is written down holds a secret: logs at debug, audit, metrics, standard output."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.product import Product, eventually, record, rule
from tests.flows.upstreams import Connection, Upstream

SECRET = "sk-live-canary-0123456789abcdef"
CALLERS = "callers-own-canary-0123456789"


class Flow:
    def __init__(self, product: Product, alive: Upstream, dead: Upstream, folder: Path) -> None:
        self.product = product
        self.alive = alive
        self.dead = dead
        self.folder = folder

    def written(self) -> str:
        files = [self.folder / name for name in ("diagnostics.log", "out.log", "audit.jsonl")]
        return "".join(file.read_text() for file in files if file.exists()) + self.product.ops_get("/metrics")[1]


@pytest.fixture(scope="module")
def flow(folder: Path) -> Iterator[Flow]:
    credential = {"name": "key", "header": "Authorization", "format": "Bearer {value}"}
    with Upstream() as alive:
        with Upstream(host="127.0.0.2") as dead:
            pass
        rules = [rule("alive", alive, credential=credential), rule("dead", dead, credential=credential)]
        records = {"key": record("api_key", "127.0.0.1", "127.0.0.2", value=SECRET)}
        with Product(folder, rules, records, log={"level": "debug", "format": "auto"}) as product:
            yield Flow(product, alive, dead, folder)


CALLS = {
    "header": ("/", [b"Authorization: Bearer " + CALLERS.encode(), b"X-Key: " + CALLERS.encode()]),
    "query": (f"/?key={CALLERS}&a=1", []),
    "cookie": ("/", [b"Cookie: session=" + CALLERS.encode()]),
    "path": (f"/hooks/T0/{CALLERS}/x", []),
    "basic": ("/", [b"Authorization: Basic " + base64.b64encode(b"x:" + CALLERS.encode())]),
    "proxy": ("/", [b"Proxy-Authorization: Basic " + base64.b64encode(b"x:" + CALLERS.encode())]),
    "session": ("/", [b"Sluicegate-Session: " + CALLERS.encode()]),
}


def assert_clean(flow: Flow) -> None:
    written = flow.written()
    for value in (SECRET, CALLERS):
        for form in (
            value,
            base64.b64encode(value.encode()).decode(),
            base64.b64encode(b"x:" + value.encode()).decode(),
        ):
            assert form not in written, written[max(0, written.index(form) - 400) : written.index(form) + 100]


@pytest.mark.parametrize("place", CALLS)
@pytest.mark.parametrize("name", ["alive", "dead"])
def test_a_secret_in_a_request_is_written_nowhere(flow: Flow, place: str, name: str) -> None:
    """B40: with an upstream that answers and one that is dead."""
    path, lines = CALLS[place]
    reply = flow.product.get(getattr(flow, name), path, *lines, method="POST", body=CALLERS.encode())
    flow.product.audited(reply.call_id)
    assert_clean(flow)


def test_a_secret_in_the_userinfo_of_a_target_is_written_nowhere(flow: Flow) -> None:
    """B40, and it is not sent."""
    flow.alive.forget()
    with flow.product.client() as client:
        target = f"http://user:{CALLERS}@{flow.alive.authority}/"
        client.send(f"GET {target} HTTP/1.1\r\nHost: {flow.alive.authority}\r\n\r\n".encode())
        reply = client.reply()
    assert reply.status in (200, 400)
    assert CALLERS.encode() not in flow.alive.received
    assert_clean(flow)


@pytest.mark.parametrize(
    "broken",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nContent-Length: 8\r\nX: %s\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%s",
        b"not http %s\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-Echo: %s\x01\r\n\r\n",
        b"HTTP/1.1 500 %s\r\nContent-Length: 10\r\n\r\n%s",
    ],
)
def test_a_secret_in_a_broken_reply_is_written_nowhere(flow: Flow, broken: bytes) -> None:
    """B40: error paths of the parser."""

    def script(connection: Connection) -> None:
        connection.request()
        connection.send(broken.replace(b"%s", SECRET.encode()))
        connection.end()

    flow.alive.forget(script)
    with flow.product.client() as client:
        target = b"%s/?k=%s" % (flow.alive.url.encode(), CALLERS.encode())
        client.send(
            b"GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % (target, flow.alive.authority.encode())
        )
        assert SECRET.encode() not in client.rest()
    flow.alive.forget()
    eventually(lambda: flow.product.get(flow.alive).status == 200)
    assert_clean(flow)


def test_a_malformed_request_with_a_secret_is_written_nowhere(flow: Flow) -> None:
    for bytes_ in (
        b"GET / HTTP/1.1\r\nX-Key: " + CALLERS.encode() + b"\x00\r\n\r\n",
        CALLERS.encode() + b" / HTTP/1.1\r\n\r\n",
    ):
        with flow.product.client() as client:
            client.send(bytes_)
            client.half_close()
            assert CALLERS.encode() not in client.rest()
    assert_clean(flow)


def test_no_secret_stands_in_the_folder_in_the_clear(flow: Flow) -> None:
    for file in flow.folder.rglob("*"):
        if file.is_file():
            assert SECRET.encode() not in file.read_bytes(), file
