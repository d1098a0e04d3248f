"""One cursor for every provider: offered on the reply, taken on the next request, bound to the call."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.flows.product import Product, absolute, record, rule
from tests.flows.upstreams import Connection, Upstream
from tests.flows.wire import Reply

SECRET = "sk-live-0123456789abcdef"
PATH = "/api/conversations.list?limit=1"


def pages(connection: Connection) -> None:
    query = parse_qs(urlsplit(connection.request().target.decode()).query)
    number = int(query.get("cursor", ["page:0"])[0][5:])
    body = {
        "ok": True,
        "channels": [number],
        "response_metadata": {"next_cursor": f"page:{number + 1}" if number < 2 else ""},
    }
    content = json.dumps(body).encode()
    connection.send(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(content) + content
    )


class Flow:
    def __init__(self, product: Product, upstream: Upstream) -> None:
        self.product = product
        self.upstream = upstream

    def get(self, cursor: str | None = None, path: str = PATH) -> Reply:
        lines = (f"Sluicegate-Cursor: {cursor}".encode(),) if cursor else ()
        with self.product.client() as client:
            return client.ask(absolute(self.upstream, path, *lines))


@pytest.fixture(scope="module")
def flow(folder: Path) -> Iterator[Flow]:
    with Upstream(pages, host="127.0.0.51") as upstream:
        rules = [rule("up", upstream, provider="slack", credential={"name": "key", "header": "X-Api-Key"})]
        with Product(folder, rules, {"key": record("api_key", upstream.host, value=SECRET)}) as product:
            yield Flow(product, upstream)


def test_the_pages_are_walked(flow: Flow) -> None:
    seen, cursor = [], None
    for _ in range(5):
        reply = flow.get(cursor)
        seen += reply.json()["channels"]
        cursor = reply.header("Sluicegate-Next-Cursor")
        if cursor is None:
            break
        assert "page:" not in cursor
    assert seen == [0, 1, 2]
    assert all(request.all("Sluicegate-Cursor") == [] for request in flow.upstream.requests)
    assert flow.upstream.requests[-1].target == b"/api/conversations.list?limit=1&cursor=page%3A2"


def test_a_cursor_of_another_query_is_refused(flow: Flow) -> None:
    cursor = flow.get().header("Sluicegate-Next-Cursor")
    for path in ("/api/conversations.list?limit=2", "/api/users.list?limit=1"):
        refused = flow.get(cursor, path)
        assert (refused.status, refused.code) == (400, "malformed_request")


def test_a_call_without_pages_takes_no_cursor(flow: Flow) -> None:
    assert flow.get("abc", "/api/auth.test").code == "malformed_request"
