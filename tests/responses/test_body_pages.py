"""Cursors that travel in request bodies: forms, JSON, objects, arrays, and connections of GraphQL documents."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.catalog.graphql import asked
from proxy.dialect import Answer, Condition, Pagination, place
from proxy.responses.bodies import parameters_of, with_changes
from proxy.responses.cursors import Bound, Trail
from proxy.responses.pages import Sent, following
from tests.responses.test_pages import carried

PAGES = 1_000
JSON, FORM = "application/json", "application/x-www-form-urlencoded"
BOUND = Bound("acme", "", "bot", "rule", "POST", "https://api.test", "digest")
DOCUMENT = "query($c: String, $n: Int) { team { mine: issues(first: $n, after: $c) { nodes pageInfo { endCursor } } } }"


class Convention(NamedTuple):
    paging: Pagination
    kind: str
    first: dict[str, Any]
    serve: Callable[[dict[str, Any]], Any]


def items(number: int) -> list[int]:
    """Every seventh page is empty, which ends nothing."""
    return [] if number % 7 == 3 else [number]


def notion(sent: dict[str, Any]) -> Any:
    number = int(sent.get("start_cursor", "c0")[1:])
    more = number + 1 < PAGES
    return {"results": items(number), "has_more": more, "next_cursor": f"c{number + 1}" if more else None}


def dynamodb(sent: dict[str, Any]) -> Any:
    number = int(sent.get("ExclusiveStartKey", {"id": {"N": "0"}})["id"]["N"])
    return {"Items": items(number)} | (
        {"LastEvaluatedKey": {"id": {"N": str(number + 1)}}} if number + 1 < PAGES else {}
    )


def search(sent: dict[str, Any]) -> Any:
    number = sent.get("search_after", [0, "x"])[0]
    return {"hits": [{"sort": [number + 1, "é"]}] if number < PAGES else []}


def nested(sent: dict[str, Any]) -> Any:
    number = int(sent.get("page", {}).get("cursor", "0"))
    return {"data": items(number), "meta": {"page": {"after": str(number + 1)} if number + 1 < PAGES else {}}}


def offset(sent: dict[str, Any]) -> Any:
    start = int(sent.get("page", {}).get("from", 0))
    return {"rows": list(range(start, min(start + 3, 3 * PAGES)))}


def numbered(sent: dict[str, Any]) -> Any:
    number = int(sent.get("page", 1))
    return {"rows": items(number), "more": number < PAGES}


def form(sent: dict[str, Any]) -> Any:
    number = int(sent.get("cursor", "c0")[1:])
    return {"members": items(number), "next": f"c{number + 1}" if number + 1 < PAGES else ""}


def graphql(sent: dict[str, Any]) -> Any:
    assert sent["query"] == DOCUMENT
    number = int(sent["variables"].get("c", "0"))
    info = {"hasNextPage": number + 1 < PAGES, "endCursor": str(number + 1)}
    return {"data": {"team": {"mine": {"nodes": items(number), "pageInfo": info}}}}


CONVENTIONS = {
    "cursor": Convention(
        Pagination("cursor", "start_cursor", place("$.next_cursor"), Condition(place("$.has_more"), True), into="body"),
        JSON, {"filter": {"a": 1.5}}, notion,
    ),
    "object": Convention(
        Pagination("cursor", "ExclusiveStartKey", place("$.LastEvaluatedKey"), into="body"),
        "application/x-amz-json-1.0", {"TableName": "t"}, dynamodb,
    ),
    "array": Convention(
        Pagination(
            "last_id", "search_after", items=place("$.hits[-1].sort"), more=Condition(place("$.hits[0]")), into="body"
        ),
        JSON, {"size": 1}, search,
    ),
    "inner": Convention(Pagination("cursor", "page.cursor", place("$.meta.page.after"), into="body"), JSON, {}, nested),
    "offset": Convention(
        Pagination("offset", "page.from", items=place("$.rows"), into="body"), JSON, {"page": {"size": 3}}, offset
    ),
    "page": Convention(
        Pagination("page", "page", more=Condition(place("$.more"), True), into="body"), JSON, {"q": "x"}, numbered
    ),
    "form": Convention(Pagination("cursor", "cursor", place("$.next"), into="either"), FORM, {"channel": "C 1"}, form),
    "graphql": Convention(Pagination("graphql"), JSON, {"query": DOCUMENT, "variables": {"n": 5}}, graphql),
}  # fmt: skip


DIRECT: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "cursor": lambda: [{}, *({"start_cursor": f"c{n}"} for n in range(1, PAGES))],
    "object": lambda: [{}, *({"ExclusiveStartKey": {"id": {"N": str(n)}}} for n in range(1, PAGES))],
    "array": lambda: [{}, *({"search_after": [n, "é"]} for n in range(1, PAGES + 1))],
    "inner": lambda: [{"page": {"cursor": str(n)}} for n in range(PAGES)],
    "offset": lambda: [{"page": {"from": 3 * n}} for n in range(PAGES + 1)],
    "page": lambda: [{"page": n} for n in range(1, PAGES + 1)],
    "form": lambda: [{"cursor": f"c{n}"} for n in range(PAGES)],
    "graphql": lambda: [{"query": DOCUMENT, "variables": {"c": str(n)}} for n in range(PAGES)],
}
"""What a client that knows the convention would ask for, page after page."""


def encoded(parameters: dict[str, Any], kind: str) -> bytes:
    return with_changes(b"", kind, parameters) if kind == FORM else json.dumps(parameters).encode()


@pytest.mark.parametrize("name", CONVENTIONS)
def test_a_walk_of_a_thousand_pages_is_the_direct_walk(name: str) -> None:
    paging, kind, first, serve = CONVENTIONS[name]
    trail = Trail()
    original = body = encoded(first, kind)
    connection = asked(DOCUMENT).connection if name == "graphql" else None
    walked = []
    for _ in range(PAGES + 5):
        sent = parameters_of(body, kind)
        assert sent is not None
        walked.append(serve(sent))
        answer = Answer(200, [], json.dumps(walked[-1]).encode())
        found = following(answer, paging, Sent("https://api.test/search", trail, sent, connection))
        if found is None:
            break
        opened = carried(found, BOUND)
        body, trail = with_changes(original, kind, opened.body), opened.trail
        if kind == FORM:
            assert parse_qs(body.decode())["channel"] == ["C 1"]
    assert walked == [serve(parameters) for parameters in DIRECT[name]()]


def test_a_parameter_goes_where_the_others_stand() -> None:
    paging, answer = CONVENTIONS["form"].paging, Answer(200, [], b'{"next":"n"}')
    in_query = following(answer, paging, Sent("https://api.test/x", parameters={}))
    in_body = following(answer, paging, Sent("https://api.test/x", parameters={"a": "b"}))
    assert in_query is not None
    assert in_body is not None
    assert (in_query.changes, in_query.body) == ({"cursor": "n"}, {})
    assert (in_body.changes, in_body.body) == ({}, {"cursor": "n"})


@pytest.mark.parametrize(
    "reply",
    [
        {"data": {"team": {"mine": {"pageInfo": {"hasNextPage": False, "endCursor": "x"}}}}},
        {"data": {"team": {"mine": {"pageInfo": {"hasNextPage": True, "endCursor": None}}}}},
        {"data": {"team": [{"mine": {"pageInfo": {"hasNextPage": True, "endCursor": "x"}}}]}},
        {"data": {"team": None}}, {"data": None}, {}, [],
    ],
)  # fmt: skip
def test_a_connection_without_a_next_page_has_none(reply: Any) -> None:
    sent = Sent("https://api.test/", connection=(("team", "mine"), "c"))
    assert following(Answer(200, [], json.dumps(reply).encode()), Pagination("graphql"), sent) is None


@pytest.mark.parametrize(
    ("body", "kind", "changes"),
    [
        (b"[1]", JSON, {"a": 1}),
        (b"{", JSON, {"a": 1}),
        (b'{"page": 3}', JSON, {"page.from": 1}),
        (b"\xff", FORM, {"a": "b"}),
    ],
)
def test_a_body_without_room_for_the_cursor_is_said_so(body: bytes, kind: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        with_changes(body, kind, changes)


@settings(deadline=None)
@given(st.binary(max_size=60), st.sampled_from([JSON, FORM, "text/plain", ""]))
def test_any_bytes_as_a_body_are_parameters_or_none(body: bytes, kind: str) -> None:
    found = parameters_of(body, kind)
    assert found is None or isinstance(found, dict)
