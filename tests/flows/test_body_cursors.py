"""Pages that are asked for in a body: the caller repeats its call with the cursor, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.flows.product import Product, absolute, record, rule
from tests.flows.upstreams import Connection, Upstream
from tests.flows.wire import Reply

SECRET = "sk-live-0123456789abcdef"
DOCUMENT = (
    "query Issues($c: String) { issues(first: 1, after: $c) { nodes { id } pageInfo { hasNextPage endCursor } } }"
)


def notion(sent: dict[str, Any]) -> Any:
    number = int(sent.get("start_cursor", "p0")[1:])
    more = number < 2
    return {"results": [number], "has_more": more, "next_cursor": f"p{number + 1}" if more else None}


def dynamodb(sent: dict[str, Any]) -> Any:
    number = int(sent.get("ExclusiveStartKey", {"id": {"S": "0"}})["id"]["S"])
    return {"Items": [number]} | ({"LastEvaluatedKey": {"id": {"S": str(number + 1)}}} if number < 2 else {})


def linear(sent: dict[str, Any]) -> Any:
    number = int(sent.get("variables", {}).get("c", "0"))
    info = {"hasNextPage": number < 2, "endCursor": str(number + 1)}
    return {"data": {"issues": {"nodes": [number], "pageInfo": info}}}


SCAN = (b"X-Amz-Target: DynamoDB_20120810.Scan",)
PAGES = {
    "notion": (notion, "/v1/search", {"filter": {"value": "page"}}, "application/json", ()),
    "aws-dynamodb": (dynamodb, "/", {"TableName": "t"}, "application/x-amz-json-1.0", SCAN),
    "linear": (linear, "/graphql", {"query": DOCUMENT}, "application/json", ()),
}  # fmt: skip


class Flow:
    def __init__(self, product: Product, upstreams: dict[str, Upstream]) -> None:
        self.product = product
        self.upstreams = upstreams

    def ask(self, name: str, cursor: str | None = None, **changes: Any) -> Reply:
        _, path, document, kind, lines = PAGES[name]
        given = (
            *lines,
            f"Content-Type: {kind}".encode(),
            *((f"Sluicegate-Cursor: {cursor}".encode(),) if cursor else ()),
        )
        body = json.dumps({**document, **changes}).encode()
        with self.product.client() as client:
            return client.ask(absolute(self.upstreams[name], path, *given, method="POST", body=body), "POST")


def answering(name: str) -> Any:
    def script(connection: Connection) -> None:
        content = json.dumps(PAGES[name][0](json.loads(connection.request().body))).encode()
        connection.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (len(content), content)
        )

    return script


@pytest.fixture(scope="module")
def flow(folder: Path) -> Iterator[Flow]:
    upstreams = {name: Upstream(answering(name), host=f"127.0.0.{number}") for number, name in enumerate(PAGES, 91)}
    for upstream in upstreams.values():
        upstream.__enter__()
    try:
        credential = {"name": "key", "header": "X-Api-Key"}
        rules = [
            rule(f"r{n}", up, provider=name, credential=credential) for n, (name, up) in enumerate(upstreams.items())
        ]
        records = {"key": record("api_key", *(upstream.host for upstream in upstreams.values()), value=SECRET)}
        with Product(folder, rules, records) as product:
            yield Flow(product, upstreams)
    finally:
        for upstream in upstreams.values():
            upstream.__exit__(None, None, None)


@pytest.mark.parametrize("name", PAGES)
def test_the_pages_are_walked_with_the_same_body(flow: Flow, name: str) -> None:
    upstream = flow.upstreams[name]
    upstream.requests.clear()
    cursor, seen = None, []
    for _ in range(5):
        reply = flow.ask(name, cursor)
        assert reply.status == 200
        seen.append(reply.json())
        cursor = reply.header("Sluicegate-Next-Cursor")
        if cursor is None:
            break
    assert seen == [PAGES[name][0](sent) for sent in (json.loads(request.body) for request in upstream.requests)]
    assert len(seen) == 3
    for request in upstream.requests:
        assert request.all("Content-Length") == [str(len(request.body))]
        assert request.all("Sluicegate-Cursor") == []
        assert PAGES[name][2].items() <= json.loads(request.body).items()


@pytest.mark.parametrize("name", PAGES)
def test_a_cursor_belongs_to_the_body_it_came_with(flow: Flow, name: str) -> None:
    cursor = flow.ask(name).header("Sluicegate-Next-Cursor")
    before = len(flow.upstreams[name].requests)
    refused = flow.ask(name, cursor, variables={"other": 1})
    assert (refused.status, refused.code) == (400, "malformed_request")
    assert len(flow.upstreams[name].requests) == before


def test_a_body_without_room_for_a_cursor_is_refused(flow: Flow) -> None:
    cursor = flow.ask("notion").header("Sluicegate-Next-Cursor")
    upstream = flow.upstreams["notion"]
    lines = (b"Content-Type: text/plain", f"Sluicegate-Cursor: {cursor}".encode())
    with flow.product.client() as client:
        refused = client.ask(absolute(upstream, "/v1/search", *lines, method="POST", body=b"x"), "POST")
    assert (refused.status, refused.code) == (400, "malformed_request")
