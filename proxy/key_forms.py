"""A caller's idempotency key in the form that a provider takes: its value, in a request target, in a body (pure)."""

from __future__ import annotations

import hashlib
import json
import uuid
from typing import Final
from urllib.parse import quote, unquote_plus

from proxy.dialect import IdempotencyForm

_BLANKS: Final = b" \t\r\n"


def value_of(form: IdempotencyForm, key: bytes) -> bytes:
    """The key as the provider gets it: one that is too long for it becomes a UUID (RFC 9562, version 8) derived from
    nothing but the key, so that the same key is the same value on every replica and after every restart."""
    if not form.longest or len(key) <= form.longest:
        return key
    digest = hashlib.sha256(b"idempotency key\0" + key).digest()
    return str(uuid.UUID(int=_marked(int.from_bytes(digest[:16], "big")))).encode("ascii")


def in_target(target: bytes, name: str, value: bytes) -> bytes | None:
    """The request target with the parameter. As it was where the caller gave one; None where that one is empty."""
    path, _, query = target.partition(b"?")
    given = [part for part in query.split(b"&") if _decoded(part.partition(b"=")[0]) == name]
    if given:
        return target if len(given) == 1 and given[0].partition(b"=")[2] else None
    added = f"{quote(name, safe='')}={quote(value, safe='')}".encode("ascii")
    return path + b"?" + (query + b"&" if query else b"") + added


def in_object(body: bytes | None, name: str, value: bytes) -> bytes | None:
    """The JSON object with the member in front, and not a byte of the rest changed. As it was where the caller gave a
    text of its own; None where that is no text, where a member stands twice, and where the body is no object."""
    members = _members(body)
    if body is None or members is None or len({member for member, _ in members}) != len(members):
        return None
    for member, own in members:
        if member == name:
            return body if isinstance(own, str) and own else None
    start = body.index(b"{") + 1
    added = f"{json.dumps(name)}:{json.dumps(value.decode('ascii'))}".encode("ascii")
    return body[:start] + added + (b"," if members else b"") + body[start:]


def _members(body: bytes | None) -> tuple[tuple[str, object], ...] | None:
    """The members of a JSON object in order. The hook makes tuples of objects, which nothing else of JSON becomes."""
    if body is None or not body.lstrip(_BLANKS).startswith(b"{"):
        return None
    try:
        found = json.loads(body.decode(), object_pairs_hook=tuple)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, tuple) else None


def _decoded(part: bytes) -> str:
    return unquote_plus(part.decode("latin-1"))


def _marked(number: int) -> int:
    """With the bits of version 8 and of the variant set (RFC 9562 section 5.8)."""
    return number & ~(0xF << 76) & ~(0x3 << 62) | (0x8 << 76) | (0x2 << 62)
