"""Which page follows a reply, by the conventions that the catalogue declares (pure)."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode, urljoin, urlsplit

from proxy.dialect import Answer, Pagination
from proxy.responses.cursors import Next, digest

_LINK: Final = re.compile(r'<([^<>\s]*)>((?:\s*;\s*[\w!#$&+\-.^`|~*]+\s*(?:=\s*(?:"(?:[^"\\]|\\.)*"|[^\s",;]+))?)*)')
_PARAMETER: Final = re.compile(r';\s*([\w!#$&+\-.^`|~*]+)\s*(?:=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",;]+)))?')


def following(answer: Answer, paging: Pagination, url: str, seen: str) -> Next | None:
    """The next page after `answer` to a request of `url`; None when there is none.

    An empty page does not end the walk, an absent cursor does; a cursor that is the one used last would lead in a
    circle and ends it too (`seen` is its digest). A next URL counts only on the request's own origin.
    """
    if paging.more is not None and not paging.more.holds(answer):
        return None
    if paging.style == "link":
        return _to(url, _linked(answer), seen)
    if paging.style == "url":
        found = paging.next.first(answer) if paging.next is not None else None
        return _to(url, found if isinstance(found, str) else "", seen)
    value = _value(answer, paging, url)
    if value is None:
        return None
    mark = digest(str(value))
    return None if mark == seen else Next({paging.parameter: value}, seen=mark)


def _value(answer: Answer, paging: Pagination, url: str) -> str | int | None:
    if paging.style in ("cursor", "last_id"):
        at = paging.next if paging.style == "cursor" else paging.items
        found = at.first(answer) if at is not None else None
        return found if isinstance(found, str | int) and not isinstance(found, bool) and str(found) else None
    sent = dict(parse_qsl(urlsplit(url).query, keep_blank_values=True)).get(paging.parameter)
    current = _number(sent, paging.first if paging.style == "page" else 0)
    if paging.style == "page":
        return current + 1
    items = paging.items.first(answer) if paging.items is not None else None
    return current + len(items) if isinstance(items, list) and items else None


def _number(value: Any, default: int) -> int:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else default


def _to(url: str, link: str, seen: str) -> Next | None:
    """A link that stays on the request's own origin; any other is no next page."""
    if not link or len(link) > 8_192:
        return None
    try:
        there, here = urlsplit(urljoin(url, link)), urlsplit(url)
        same = (there.scheme, there.hostname, there.port) == (here.scheme, here.hostname, here.port)
    except ValueError:
        return None
    if not same or "@" in there.netloc or not there.path.startswith("/"):
        return None
    target = there.path + (f"?{there.query}" if there.query else "")
    if not target.isascii() or re.search(r"[\x00-\x20\x7f]", target):
        return None
    mark = digest(target)
    return None if mark == seen or target == _target(here) else Next({}, target=target, seen=mark)


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
    path, _, query = target.partition(b"?")
    kept = [part for part in query.split(b"&") if part and _name(part) not in following.changes]
    added = urlencode({name: str(value) for name, value in following.changes.items()}, quote_via=quote).encode()
    return path + b"?" + b"&".join([*kept, added])


def _name(part: bytes) -> str:
    pairs = parse_qsl(part.decode("latin-1"), keep_blank_values=True)
    return pairs[0][0] if pairs else ""
