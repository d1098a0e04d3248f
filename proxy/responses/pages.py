"""Which page follows a reply, by the conventions that the catalogue declares (pure)."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urljoin, urlsplit

from proxy.dialect import Answer, Pagination, Place
from proxy.responses.cursors import Next, Trail, digest

_LINK: Final = re.compile(r'<([^<>\s]*)>((?:\s*;\s*[\w!#$&+\-.^`|~*]+\s*(?:=\s*(?:"(?:[^"\\]|\\.)*"|[^\s",;]+))?)*)')
_PARAMETER: Final = re.compile(r';\s*([\w!#$&+\-.^`|~*]+)\s*(?:=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",;]+)))?')
_FIRST_PAGE: Final = Trail()


class Sent(NamedTuple):
    """The request that a reply is to.

    url         as it was sent, this page's cursor included
    trail       where the walk has been
    parameters  what its body said, of a form or of JSON; None where the body does not count
    connection  where its GraphQL document goes on: the keys that lead to it, and the variable that takes the cursor
    """

    url: str
    trail: Trail = _FIRST_PAGE
    parameters: dict[str, Any] | None = None
    connection: tuple[tuple[str, ...], str] | None = None


def following(answer: Answer, paging: Pagination, sent: Sent) -> Next | None:
    """The next page after `answer`; None when there is none.

    An empty page does not end the walk, an absent cursor does; one that leads in a circle ends it too. A next URL
    counts only on the request's own origin.
    """
    if paging.more is not None and not paging.more.holds(answer):
        return None
    if paging.style == "link":
        return _to(sent, _linked(answer))
    if paging.style == "url":
        found = paging.next.first(answer) if paging.next is not None else None
        return _to(sent, found if isinstance(found, str) else "")
    if paging.style == "graphql":
        return _connected(answer, sent)
    in_body = paging.into == "body" or (paging.into == "either" and bool(sent.parameters))
    value = _value(answer, paging, sent, in_body)
    if value is None:
        return None
    changes = {paging.parameter: value}
    return _after(sent.trail, Next({}, body=changes) if in_body else Next(changes), str(value))


def _after(trail: Trail, following: Next, mark: str) -> Next | None:
    """The next page with the trail that leads to it; None when it has been there before."""
    later = trail.after(digest(mark))
    if later is None:
        return None
    following.trail = later
    return following


def _value(answer: Answer, paging: Pagination, sent: Sent, in_body: bool) -> Any:
    if paging.style in ("cursor", "last_id"):
        at = paging.next if paging.style == "cursor" else paging.items
        found = at.first(answer) if at is not None else None
        plain = isinstance(found, str | int) and not isinstance(found, bool) and str(found)
        # Keys of a table and sort values of a search are objects and arrays: they fit into a JSON body only.
        return found if plain or (in_body and isinstance(found, dict | list) and found) else None
    current = _number(_sent_value(paging.parameter, sent, in_body), paging.first if paging.style == "page" else 0)
    if paging.style == "page":
        return current + 1
    items = paging.items.first(answer) if paging.items is not None else None
    return current + len(items) if isinstance(items, list) and items else None


def _sent_value(parameter: str, sent: Sent, in_body: bool) -> Any:
    if in_body:
        value: Any = sent.parameters
        for step in parameter.split("."):
            value = value.get(step) if isinstance(value, dict) else None
        return value
    return dict(parse_qsl(urlsplit(sent.url).query, keep_blank_values=True)).get(parameter)


def _number(value: Any, default: int) -> int:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else default


def _connected(answer: Answer, sent: Sent) -> Next | None:
    """The end cursor of the one connection that the document pages through (Relay's cursor connections)."""
    if sent.connection is None:
        return None
    keys, variable = sent.connection
    info = Place("body", ("data", *keys, "pageInfo")).first(answer)
    if not isinstance(info, dict) or info.get("hasNextPage") is not True:
        return None
    cursor = info.get("endCursor")
    if not isinstance(cursor, str) or not cursor:
        return None
    return _after(sent.trail, Next({}, body={f"variables.{variable}": cursor}), cursor)


def _to(sent: Sent, link: str) -> Next | None:
    """A link that stays on the request's own origin; any other is no next page."""
    if not link or len(link) > 8_192:
        return None
    try:
        there, here = urlsplit(urljoin(sent.url, link)), urlsplit(sent.url)
        same = (there.scheme, there.hostname, there.port) == (here.scheme, here.hostname, here.port)
    except ValueError:
        return None
    if not same or "@" in there.netloc or not there.path.startswith("/"):
        return None
    target = there.path + (f"?{there.query}" if there.query else "")
    if not target.isascii() or re.search(r"[\x00-\x20\x7f]", target) or target == _target(here):
        return None
    return _after(sent.trail, Next({}, target=target), target)


def _target(parts: Any) -> str:
    return str(parts.path) + (f"?{parts.query}" if parts.query else "")


def _linked(answer: Answer) -> str:
    """The first `rel=next` of the Link headers (RFC 8288): only the first `rel` of a link counts."""
    for value in answer.header("Link"):
        for target, parameters in _LINK.findall(value[:16_384]):
            if "next" in relations(parameters):
                return str(target)
    return ""


def relations(parameters: str) -> list[str]:
    """The relation types of a link's parameters, lower-case."""
    for name, quoted, token in _PARAMETER.findall(parameters):
        if name.lower() == "rel":
            return re.sub(r"\\(.)", r"\1", quoted or token).lower().split()
    return []


def applied_to_target(target: bytes, following: Next) -> bytes:
    """The request target of the next page."""
    if following.target:
        return following.target.encode("ascii")
    if not following.changes:
        return target
    path, _, query = target.partition(b"?")
    kept = [part for part in query.split(b"&") if part and _name(part) not in following.changes]
    added = urlencode({name: str(value) for name, value in following.changes.items()}, quote_via=quote).encode()
    return path + b"?" + b"&".join([*kept, added])


def _name(part: bytes) -> str:
    pairs = parse_qsl(part.decode("latin-1"), keep_blank_values=True)
    return pairs[0][0] if pairs else ""
