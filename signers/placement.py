"""Where a credential stands in a request, and the prepared form that puts it there.

`prepare` runs once for each record version; a call then only joins the bytes of its `Injection` (see `signers.edit`).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple
from urllib.parse import quote

from signers.masks import renderings
from signers.secret import Secret

Field = Secret | str | Mapping[str, Secret | str]
"""A record's field: one value, or for the kind `headers` a mapping of header name to value."""


@dataclass(frozen=True, slots=True)
class Placement:
    """One position of a request: a header, a query parameter, a cookie or a segment of the path.

    `name` is the header, parameter or cookie name, for a path what the segment begins with; `format` holds `{value}`
    once, e.g. "Bearer {value}". A format that starts with "Basic " and has a colon after it is the user-pass of
    RFC 7617 and is base64-encoded: with
    "Basic x-access-token:{value}" the value is the password, with "Basic {value}:" it is the user name.
    """

    kind: Literal["header", "query", "cookie", "path"]
    name: str
    format: str = "{value}"


@dataclass(frozen=True, slots=True, repr=False)
class Injection:
    """A credential prepared for the wire, kept with its record's version so that a call only joins bytes.

    lines          complete header lines, each ending in CRLF, to append to the request head
    clears         names of headers dropped from the client's request first: lower-case, hyphens for underscores
    query          (name, value) pairs, percent-encoded, appended to the query
    query_clears   decoded names of query parameters dropped first
    path           (what the segment begins with, the segment to put there), percent-encoded; None without
    cookies        b"name=value" pairs added to the Cookie header
    cookie_clears  names of cookies dropped first
    masks          renderings of the secret looked for in replies, longest first
    """

    lines: bytes = b""
    clears: frozenset[bytes] = frozenset()
    query: tuple[tuple[bytes, bytes], ...] = ()
    query_clears: frozenset[str] = frozenset()
    path: tuple[str, bytes] | None = None
    cookies: tuple[bytes, ...] = ()
    cookie_clears: frozenset[bytes] = frozenset()
    masks: tuple[bytes, ...] = ()

    def __repr__(self) -> str:
        return "Injection(•••)"


BEARER: Final = Placement("header", "Authorization", "Bearer {value}")
BASIC: Final = Placement("header", "Authorization", "Basic {value}")
_BARE_AUTHORIZATION: Final = ("header", "authorization", "{value}")

# RFC 9110 section 5.6.2. A cookie's name is a token too (RFC 6265 section 4.1.1).
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
# RFC 9110 section 5.5, without the C1 controls that obs-text would let through.
_FIELD_VALUE: Final = re.compile(r"[!-~\xa1-\xff](?:[\t -~\xa0-\xff]*[!-~\xa1-\xff])?")
_QUERY_NAME: Final = re.compile(r"[!-~]+")
# RFC 6265 section 4.1.1: no controls, whitespace, quotes, comma, semicolon, backslash.
_COOKIE_OCTETS: Final = re.compile(r"[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]+")
# Controls, and the lone surrogates that stand for bytes which were not UTF-8.
_UNSENDABLE: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]*[ =](\S.*)")
# A credential written over one of these would change where the message ends or whom it is for.
_NOT_CREDENTIALS: Final = frozenset(
    {"connection", "content-length", "expect", "host", "keep-alive"}
    | {"proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}
)


class _Prepared(NamedTuple):
    """What a kind makes of its fields: values and where they go, and what has to be masked in replies."""

    values: list[tuple[Placement, str, str]]
    """(placement, value, name of the field it came from)"""
    secrets: list[str]
    pairs: list[str]
    """user-pass texts whose whole Basic form is masked"""


def check_placement(placement: Placement) -> None:
    """Raise ValueError, saying what is wrong, unless a credential can be put at this placement."""
    if not (_QUERY_NAME if placement.kind == "query" else _TOKEN).fullmatch(placement.name):
        raise ValueError(f"{placement.name!r} is not a {placement.kind} name")
    if placement.kind == "header":
        _check_header_name(placement.name)
    if placement.format.count("{value}") != 1:
        raise ValueError("format must hold {value} once")
    if placement.kind == "path" and not placement.format.startswith(placement.name):
        raise ValueError("format of a path must begin with the placement's name")
    if not _FIELD_VALUE.fullmatch(placement.format) or not placement.format.isascii():
        raise ValueError("format must be visible ASCII")


def prepare(
    kind: str, fields: Mapping[str, Field], placement: Placement | None, positions: Iterable[Placement]
) -> Injection:
    """Make a record's value ready for the wire.

    `kind` is bearer, api_key, basic or headers, `fields` the record's (token · value · username, password · headers);
    `placement` is the rule's or provider's, None for the kind's default; `positions` are all the places in which the
    provider accepts a credential: they are cleared with the injected one, so that the caller's cannot win.
    Raises ValueError naming the field or placement, never its value.
    """
    make = KINDS.get(kind)
    if make is None:
        raise ValueError(f"kind {kind!r} cannot be injected; known: {', '.join(KINDS)}")
    if placement is not None:
        check_placement(placement)
    prepared = make(fields, placement)
    cleared = [used for used, _, _ in prepared.values] + list(positions)
    lines, query, cookies, path = _rendered(prepared)
    return Injection(
        lines=lines,
        clears=frozenset(name.lower().replace("_", "-").encode("ascii") for name in _names(cleared, "header")),
        query=query,
        query_clears=frozenset(_names(cleared, "query")),
        path=path,
        cookies=cookies,
        cookie_clears=frozenset(name.encode("ascii") for name in _names(cleared, "cookie")),
        masks=renderings(prepared.secrets, prepared.pairs),
    )


def with_headers(injection: Injection, headers: Mapping[str, str]) -> Injection:
    """The same with further headers, the caller's own of those names cleared. Raises ValueError naming the header."""
    for name in headers:
        check_placement(Placement("header", name))
    lines = b"".join(_header_line(name, value, name) for name, value in headers.items())
    clears = injection.clears | {name.lower().replace("_", "-").encode("ascii") for name in headers}
    return replace(injection, lines=injection.lines + lines, clears=clears)


def _names(placements: Iterable[Placement], kind: str) -> Iterable[str]:
    return (placement.name for placement in placements if placement.kind == kind)


def _rendered(
    prepared: _Prepared,
) -> tuple[bytes, tuple[tuple[bytes, bytes], ...], tuple[bytes, ...], tuple[str, bytes] | None]:
    lines: list[bytes] = []
    query: list[tuple[bytes, bytes]] = []
    cookies: list[bytes] = []
    path = None
    for placement, value, field in prepared.values:
        text = _formatted(placement, value)
        if placement.kind == "header":
            lines.append(_header_line(placement.name, text, field))
        elif placement.kind == "query":
            query.append((quote(placement.name, safe="").encode(), quote(text, safe="").encode()))
        elif placement.kind == "path":
            path = (placement.name, quote(text, safe=":").encode())
        else:
            cookies.append(_cookie_pair(placement.name, text, field))
    return b"".join(lines), tuple(query), tuple(cookies), path


def _formatted(placement: Placement, value: str) -> str:
    pair = _user_pass(placement, value)
    return placement.format.replace("{value}", value) if pair is None else f"Basic {_base64(pair)}"


def _user_pass(placement: Placement, value: str) -> str | None:
    """The text that a Basic format encodes, None for every other format."""
    scheme, _, pair = placement.format.partition(" ")
    return pair.replace("{value}", value) if scheme.lower() == "basic" and ":" in pair else None


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode("ascii")


def _header_line(name: str, value: str, field: str) -> bytes:
    if not _FIELD_VALUE.fullmatch(value):
        raise ValueError(f"field {field!r} holds characters that a header value may not hold")
    return b"%s: %s\r\n" % (name.encode("ascii"), value.encode("latin-1"))


def _cookie_pair(name: str, value: str, field: str) -> bytes:
    if not _COOKIE_OCTETS.fullmatch(value):
        raise ValueError(f"field {field!r} holds characters that a cookie value may not hold")
    return f"{name}={value}".encode("ascii")


def _check_header_name(name: str) -> None:
    if name.lower() in _NOT_CREDENTIALS or name.lower().startswith("sluicegate-"):
        raise ValueError(f"header {name!r} cannot carry a credential")


def _text(value: Field | None, field: str, *, empty: bool = False) -> str:
    """One field's value; raises ValueError naming the field when it is absent, empty or holds control characters."""
    if not isinstance(value, Secret | str):
        raise ValueError(f"field {field!r} is missing" if value is None else f"field {field!r} is not text")
    text = value.reveal() if isinstance(value, Secret) else value
    if not text and not empty:
        raise ValueError(f"field {field!r} is empty")
    if _UNSENDABLE.search(text):
        raise ValueError(f"field {field!r} holds a control character")
    return text


def _token(value: Field | None, field: str) -> str:
    """A token or key: ASCII, because servers disagree on how other characters are written in a header or URL."""
    text = _text(value, field)
    if not text.isascii() or text != text.strip():
        raise ValueError(f"field {field!r} must be visible ASCII without spaces around it")
    return text


def _single(placement: Placement, value: str, field: str) -> _Prepared:
    pair = _user_pass(placement, value)
    return _Prepared([(placement, value, field)], [value], [] if pair is None else [pair])


def _bearer(fields: Mapping[str, Field], placement: Placement | None) -> _Prepared:
    """RFC 6750 section 2.1 unless placed elsewhere; a value that stands bare in Authorization is an api_key."""
    if placement is None or (placement.kind, placement.name.lower(), placement.format) == _BARE_AUTHORIZATION:
        placement = BEARER
    return _single(placement, _token(fields.get("token"), "token"), "token")


def _api_key(fields: Mapping[str, Field], placement: Placement | None) -> _Prepared:
    if placement is None:
        raise ValueError("an api_key needs a placement: let the rule's credential say header, query or cookie")
    return _single(placement, _token(fields.get("value"), "value"), "value")


def _basic(fields: Mapping[str, Field], placement: Placement | None) -> _Prepared:
    """RFC 7617. The password may be empty: some providers take their key as the user name."""
    username = _text(fields.get("username"), "username", empty=True)
    password = _text(fields.get("password"), "password", empty=True)
    if ":" in username:
        raise ValueError("field 'username' holds a colon, which ends it (RFC 7617 section 2)")
    if not username and not password:
        raise ValueError("fields 'username' and 'password' are empty")
    pair = f"{username}:{password}"
    return _Prepared([(_basic_placement(placement), _base64(pair), "password")], [password or username], [pair])


def _basic_placement(placement: Placement | None) -> Placement:
    if placement is None:
        return BASIC
    if placement.kind != "header":
        raise ValueError("a basic credential goes into a header")
    if placement.format == "{value}" or _user_pass(placement, ""):
        return Placement("header", placement.name, BASIC.format)
    return placement


def _headers(fields: Mapping[str, Field], placement: Placement | None) -> _Prepared:
    if placement is not None:
        raise ValueError("a headers credential names its own headers: the rule cannot place it")
    headers = fields.get("headers")
    if not isinstance(headers, Mapping) or not headers:
        raise ValueError("field 'headers' must map header names to values")
    if len({name.lower() for name in headers}) != len(headers):
        raise ValueError("field 'headers' names a header twice")
    values = [_named_header(name, value) for name, value in headers.items()]
    return _Prepared(values, [secret for _, value, _ in values for secret in _with_and_without_scheme(value)], [])


def _named_header(name: str, value: Secret | str) -> tuple[Placement, str, str]:
    placement, field = Placement("header", name), f"headers.{name}"
    check_placement(placement)
    return placement, _text(value, field), field


def _with_and_without_scheme(value: str) -> list[str]:
    """A reply that echoes "Bearer abc" may as well echo only abc."""
    scheme = _SCHEME.fullmatch(value)
    return [value, scheme[1]] if scheme else [value]


KINDS: Final[dict[str, Callable[[Mapping[str, Field], Placement | None], _Prepared]]] = {
    "bearer": _bearer,
    "api_key": _api_key,
    "basic": _basic,
    "headers": _headers,
}
