"""What a request holds, as conditions see it: its query, the headers they may look at, its body (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import parse_qsl

from policies.bodies import read_body
from policies.conditions import UNREAD, Content
from policies.expressions import HEADERS

_NAMES = {name.encode(): name for name in HEADERS}
Line = tuple[bytes, bytes]


def content(
    query: bytes, lines: Iterable[Line], body: bytes | None, size: int | None, *, reads_body: bool = True
) -> Content:
    """Conditions' view of a request.

    `query` is the raw query; `lines` are (name, value); `body` is None where it is not here or too large; `size` is in
    bytes, None where it is not known; `reads_body` says whether a condition asks for the body.
    """
    headers = _headers(lines)
    media_type, _, parameters = headers.get("content-type", "").partition(";")
    kind = media_type.strip().lower()
    found = read_body(_readable(kind, parameters, headers), body) if reads_body else UNREAD
    return Content(_query(query), headers, kind, size, found)


def _readable(kind: str, parameters: str, headers: dict[str, str]) -> str:
    """The media type; "" where the body cannot be read as it stands."""
    charset = parameters.lower().partition("charset=")[2].partition(";")[0].strip(" \"'")
    return "" if headers.get("content-encoding") or charset not in ("", "utf-8", "utf8") else kind


def _query(raw: bytes) -> dict[str, list[str]]:
    """Values by name. A semicolon is read both ways, as servers do: a deny is not got round so."""
    text = raw.decode("latin-1")
    found: dict[str, list[str]] = {}
    for reading in (text, text.replace(";", "&")) if ";" in text else (text,):
        for name, value in parse_qsl(reading, keep_blank_values=True):
            found.setdefault(name, []).append(value)
    return found


def _headers(lines: Iterable[Line]) -> dict[str, str]:
    """Those that conditions may look at; repeated ones as one list (RFC 9110 section 5.3)."""
    found: dict[str, str] = {}
    for raw, value in lines:
        name = _NAMES.get(raw.lower().replace(b"_", b"-"))
        if name is not None:
            text = value.decode("latin-1")
            found[name] = f"{found[name]}, {text}" if name in found else text
    return found
