"""Next pages by every convention: the walk through cursors equals the direct one, and nothing leads astray."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialect import Answer, Condition, Pagination, place
from proxy.errors import GatewayError
from proxy.responses.cursors import Bound, Cursors, Next, Trail
from proxy.responses.pages import Sent, applied_to_target, following, relations

ORIGIN = "https://api.test"
PAGES = 1_000
BOUND = Bound("acme", "", "bot", "rule", "GET", ORIGIN, "digest")
LINKS = Path(os.environ.get("SLUICEGATE_VECTORS", Path(__file__).parents[3] / "shared" / "vectors")) / "link-header"

Serve = Callable[[dict[str, str]], tuple[list[tuple[bytes, bytes]], object]]


def items(number: int) -> list[int]:
    """Every seventh page is empty, which ends nothing."""
    return [] if number % 7 == 3 else [number]


def by_cursor(query: dict[str, str]) -> tuple[list[tuple[bytes, bytes]], object]:
    number = int(query.get("cursor", "c0")[1:])
    return [], {"items": items(number), "next": f"c{number + 1}" if number + 1 < PAGES else ""}


def by_last_id(query: dict[str, str]) -> tuple[list[tuple[bytes, bytes]], object]:
    number = int(query.get("after", "-1")) + 1
    return [], {"data": [{"id": number}], "has_more": number + 1 < PAGES}


def by_link(query: dict[str, str]) -> tuple[list[tuple[bytes, bytes]], object]:
    number = int(query.get("page", "0"))
    link = f'<{ORIGIN}/list?a=%2F&page={number + 1}>; rel="next", <{ORIGIN}/list?page=999>; rel="last"'
    return [(b"Link", link.encode())] if number + 1 < PAGES else [], items(number)


def by_url(query: dict[str, str]) -> tuple[list[tuple[bytes, bytes]], object]:
    number = int(query.get("page", "0"))
    return [], {"items": items(number), "next": f"/list?page={number + 1}" if number + 1 < PAGES else None}


def by_page(query: dict[str, str]) -> tuple[list[tuple[bytes, bytes]], object]:
    number = int(query.get("page", "1"))
    return [], {"items": items(number), "more": number < PAGES}


def by_offset(query: dict[str, str]) -> tuple[list[tuple[bytes, bytes]], object]:
    offset = int(query.get("offset", "0"))
    return [], {"items": list(range(offset, min(offset + 3, 3 * PAGES)))}


CONVENTIONS: dict[str, tuple[Pagination, Serve]] = {
    "cursor": (Pagination("cursor", "cursor", place("$.next")), by_cursor),
    "last id": (
        Pagination("last_id", "after", more=Condition(place("$.has_more"), True), items=place("$.data[-1].id")),
        by_last_id,
    ),
    "link": (Pagination("link"), by_link),
    "url": (Pagination("url", next=place("$.next")), by_url),
    "page": (Pagination("page", "page", more=Condition(place("$.more"), True)), by_page),
    "offset": (Pagination("offset", "offset", items=place("$.items")), by_offset),
}


DIRECT: dict[str, list[dict[str, str]]] = {
    "cursor": [{"cursor": f"c{n}"} for n in range(PAGES)],
    "last id": [{}, *({"after": str(n)} for n in range(PAGES - 1))],
    "link": [{"page": str(n)} for n in range(PAGES)],
    "url": [{"page": str(n)} for n in range(PAGES)],
    "page": [{"page": str(n)} for n in range(1, PAGES + 1)],
    "offset": [{"offset": str(3 * n)} for n in range(PAGES + 1)],
}
"""What a client that knows the convention would ask for, page after page."""


def carried(found: Next, bound: Bound) -> Next:
    """The next page as it comes back from the caller."""
    cursors = Cursors(b"k" * 32)
    found.expires = 10.0
    cursor = cursors.sealed(found, bound)
    assert cursor is not None
    return cursors.opened(cursor.encode(), bound, 1.0)


@pytest.mark.parametrize("name", CONVENTIONS)
def test_a_walk_of_a_thousand_pages_meets_each_page_once(name: str) -> None:
    paging, serve = CONVENTIONS[name]
    original, target, trail = b"/list?a=%2F", b"/list?a=%2F", Trail()
    walked = []
    for _ in range(PAGES + 5):
        query = dict(parse_qsl(urlsplit(target.decode()).query))
        assert query.get("a", "/") == "/"
        headers, body = serve(query)
        walked.append(body)
        answer = Answer(200, headers, json.dumps(body).encode())
        found = following(answer, paging, Sent(ORIGIN + target.decode(), trail))
        if found is None:
            break
        opened = carried(found, BOUND)
        target, trail = applied_to_target(original, opened), opened.trail
    assert walked == [serve(query)[1] for query in DIRECT[name]]


@pytest.mark.parametrize(
    "link",
    [
        "https://evil.test/list?page=2", "//evil.test/list", "http://api.test/list?page=2", "https://api.test:8443/list",
        "https://api.test@evil.test/list", "https://user:pw@api.test/list", "javascript:alert(1)", "file:///etc/passwd",
        "/list\r\nX-Injected: 1", "/li st", "/lïst", "", "https://[", "https://api.test.evil.test/list", "x" * 10_000,
    ],
)  # fmt: skip
def test_a_hostile_next_link_is_no_next_page(link: str) -> None:
    answer = Answer(200, [], json.dumps({"next": link}).encode())
    assert following(answer, CONVENTIONS["url"][0], Sent(f"{ORIGIN}/list")) is None


def test_a_cursor_that_leads_to_itself_ends_the_walk() -> None:
    paging = CONVENTIONS["cursor"][0]
    answer = Answer(200, [], b'{"next":"same"}')
    first = following(answer, paging, Sent(f"{ORIGIN}/list"))
    assert first is not None
    assert following(answer, paging, Sent(f"{ORIGIN}/list?cursor=same", first.trail)) is None


@pytest.mark.parametrize(("lead", "circle"), [(0, 2), (0, 7), (5, 3), (40, 11)])
def test_a_circle_of_any_length_ends_the_walk(lead: int, circle: int) -> None:
    paging, trail = CONVENTIONS["cursor"][0], Trail()
    for number in range(4 * (lead + circle) + 8):
        name = number if number < lead else lead + (number - lead) % circle
        found = following(Answer(200, [], f'{{"next":"c{name}"}}'.encode()), paging, Sent(f"{ORIGIN}/list", trail))
        if found is None:
            return
        trail = found.trail
    raise AssertionError("it would have gone round for ever")


@pytest.mark.parametrize("value", ["null", '""', "true", "{}", "[]"])
def test_an_absent_cursor_ends_the_walk(value: str) -> None:
    answer = Answer(200, [], f'{{"next":{value}}}'.encode())
    assert following(answer, CONVENTIONS["cursor"][0], Sent(f"{ORIGIN}/list")) is None


@pytest.mark.parametrize("field", Bound.__struct_fields__)
def test_a_cursor_belongs_to_one_caller_rule_and_call(field: str) -> None:
    cursors = Cursors(b"k" * 32)
    cursor = cursors.sealed(Next({"a": "b"}, expires=10.0), BOUND)
    assert cursor is not None
    other = Bound(**{name: getattr(BOUND, name) for name in Bound.__struct_fields__} | {field: "other"})
    with pytest.raises(GatewayError, match="malformed_request"):
        cursors.opened(cursor.encode(), other, 1.0)


def test_a_cursor_expires() -> None:
    cursors = Cursors(b"k" * 32)
    cursor = cursors.sealed(Next({}, expires=10.0), BOUND)
    assert cursor is not None
    with pytest.raises(GatewayError, match="expired"):
        cursors.opened(cursor.encode(), BOUND, 11.0)


def test_what_a_cursor_holds_cannot_be_read() -> None:
    cursor = Cursors(b"k" * 32).sealed(Next({"cursor": "provider-secret"}, expires=1.0), BOUND)
    assert cursor is not None
    assert "provider" not in cursor


@given(st.binary(max_size=80))
def test_any_bytes_as_a_cursor_are_refused(cursor: bytes) -> None:
    with pytest.raises(GatewayError):
        Cursors(b"k" * 32).opened(cursor, BOUND, 1.0)


@given(st.text(max_size=80), st.sampled_from(sorted(CONVENTIONS)))
def test_any_text_as_a_link_or_cursor_is_followed_at_home_or_not_at_all(text: str, name: str) -> None:
    headers = [(b"Link", f"<{text}>; rel=next".encode("utf-8", "replace"))]
    answer = Answer(200, headers, json.dumps({"next": text, "items": [text]}).encode())
    found = following(answer, CONVENTIONS[name][0], Sent(f"{ORIGIN}/list"))
    if found is not None:
        target = applied_to_target(b"/list", found)
        assert target.startswith(b"/")
        assert not set(target) & set(range(0x21))


def cases() -> list[dict[str, object]]:
    file = LINKS / "cases.json"
    return json.loads(file.read_text("utf-8")) if file.exists() else []


@pytest.mark.skipif(not cases(), reason="published vectors of Link headers are not here")
@pytest.mark.parametrize("case", cases(), ids=lambda case: str(case["value"])[:40])
def test_published_link_headers_are_read_without_harm(case: dict[str, object]) -> None:
    value = str(case["value"])
    found = following(
        Answer(200, [(b"Link", value.encode())], b""), Pagination("link"), Sent("https://api.github.com/a")
    )
    if 'rel="next"' in value or "rel=next" in value:
        assert (found is not None) is ("<https://api.github.com/" in value)


def test_only_the_first_rel_of_a_link_counts() -> None:
    assert relations('; rel="prev"; rel=next') == ["prev"]
    assert relations('; title="rel=next"; REL="Next last"') == ["next", "last"]
