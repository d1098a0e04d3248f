"""Where a credential stands in a request, and the prepared form that puts it there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Placement:
    """One position of a request: a header, a query parameter or a cookie.

    `name` is the header, parameter or cookie name; `format` holds `{value}` once, e.g. "Bearer {value}".
    """

    kind: Literal["header", "query", "cookie"]
    name: str
    format: str = "{value}"


@dataclass(frozen=True, slots=True, repr=False)
class Injection:
    """A credential prepared for the wire, kept with its record's version so that a call only joins bytes.

    lines          complete header lines, each ending in CRLF, to append to the request head
    clears         lower-case names of headers dropped from the client's request first
    query          (name, value) pairs, percent-encoded, appended to the query
    query_clears   decoded names of query parameters dropped first
    cookies        b"name=value" pairs added to the Cookie header
    cookie_clears  names of cookies dropped first
    masks          renderings of the secret looked for in replies, longest first
    """

    lines: bytes = b""
    clears: frozenset[bytes] = frozenset()
    query: tuple[tuple[bytes, bytes], ...] = ()
    query_clears: frozenset[str] = frozenset()
    cookies: tuple[bytes, ...] = ()
    cookie_clears: frozenset[bytes] = frozenset()
    masks: tuple[bytes, ...] = ()

    def __repr__(self) -> str:
        return "Injection(•••)"
