"""Placeholders: texts that the client writes where a rule puts its credential, replaced there by fields of the record.

Only the positions that the rule names are looked at, and each must hold its placeholder whole or be absent: whatever
else stands there is refused, since it would leave as a credential. What stands anywhere else passes untouched.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from signers.edit import parameter_name
from signers.json_pointer import NotJson, found_at, written_at
from signers.masks import renderings
from signers.placement import Field
from signers.secret import Secret
from signers.signing import Need, Outgoing, Signed, Unsignable

BODY_LIMIT: Final = 1 << 20
"""Bytes of a body that is held so that a placeholder in it can be replaced."""

_FORM: Final = b"application/x-www-form-urlencoded"
_JSON: Final = re.compile(rb"application/(?:[!-.0-9:-~]+\+)?json")
_BASIC: Final = re.compile(rb"(?i)basic[ \t]+([A-Za-z0-9+/_-]+=*)[ \t]*")
_DEFAULT_FIELDS: Final = ("token", "value", "password")


class Position(NamedTuple):
    """One place of a request, and the text that stands there for a field of the record.

    kind    header, basic, query, form, json or path
    name    of the header, parameter or field; "username" or "password"; a JSON pointer; a segment's number, from 1
    format  what stands around the placeholder, such as "Bearer {value}"
    field   of the record; empty for its only value
    text    the placeholder
    """

    kind: str
    name: str
    format: str
    field: str
    text: str

    def __str__(self) -> str:
        return _PLACES[self.kind].format(self.name)


_PLACES: Final[Mapping[str, str]] = {
    "header": "header {}",
    "basic": "{} of Basic",
    "query": "query parameter {}",
    "form": "form field {}",
    "json": "JSON member {}",
    "path": "path segment {}",
}


class Placeholders(NamedTuple):
    """The positions of a rule: takes the place of a placement."""

    positions: tuple[Position, ...]

    @property
    def headers(self) -> frozenset[bytes]:
        """Names of the headers in them, lower-case with hyphens: no trailer may carry them."""
        named = [position.name for position in self.positions if position.kind == "header"]
        named += ["authorization" for position in self.positions if position.kind == "basic"]
        return frozenset(name.lower().replace("_", "-").encode("ascii") for name in named)


class _Slot:
    """A position with the value that goes there."""

    def __init__(self, position: Position, value: Secret) -> None:
        self.position = position
        self.name = position.name.lower().replace("_", "-").encode("ascii") if position.kind == "header" else b""
        self._value = value
        before, _, after = position.format.partition("{value}")
        lead = r"[ \t]+".join(map(re.escape, before.split(" ")))
        self._shape = re.compile(f"(?i:{lead}){re.escape(position.text)}{re.escape(after)}", re.DOTALL)

    def replaced(self, text: str) -> str:
        """What leaves instead of `text`, which must be the placeholder and nothing else."""
        if not self._shape.fullmatch(text):
            raise Unsignable(
                f"The rule puts a credential into {self.position}: write the placeholder {self.position.text!r} there "
                "and nothing else, or leave it out."
            )
        return self.position.format.replace("{value}", self._value.reveal())


class PlaceholderSigning:
    """Replaces placeholders in the positions of one rule by the values of one record."""

    def __init__(self, slots: tuple[_Slot, ...], masks: tuple[bytes, ...]) -> None:
        self._slots = slots
        self._in_body = any(slot.position.kind in ("form", "json") for slot in slots)
        self.clears: frozenset[bytes] = frozenset()
        self.masks = masks

    def __repr__(self) -> str:
        return "PlaceholderSigning(•••)"

    def need(self, request: Outgoing) -> Need:
        self._target(request.target)
        self._lines(request)
        if not self._in_body or request.length == 0:
            return Need()
        self._check_body(request)
        return Need(BODY_LIMIT)

    def sign(self, request: Outgoing, body: bytes | None, now: float) -> Signed:
        lines, drops = self._lines(request)
        payload = self._body(body) if self._in_body and body else None
        return Signed(self._target(request.target), lines, drops, body=payload, timed=False)

    def _of(self, kind: str) -> list[_Slot]:
        return [slot for slot in self._slots if slot.position.kind == kind]

    # The target.

    def _target(self, target: bytes) -> bytes:
        path, mark, query = target.partition(b"?")
        segments = path.split(b"/")
        for slot in self._of("path"):
            at = int(slot.position.name)
            if at < len(segments):
                segments[at] = _quoted(slot.replaced(_text(unquote_to_bytes(segments[at]))))
        return b"/".join(segments) + mark + self._parameters(query, "query")

    def _parameters(self, encoded: bytes, kind: str) -> bytes:
        slots = {slot.position.name: slot for slot in self._of(kind)}
        return b"&".join([_parameter(one, slots) for one in encoded.split(b"&")]) if slots else encoded

    # Headers.

    def _lines(self, request: Outgoing) -> tuple[bytes, frozenset[bytes]]:
        """The header lines that hold values, and the names of the client's lines that they replace."""
        lines, drops = b"", set()
        for slot in self._of("header"):
            given = _only(request, slot.name)
            if given is not None:
                lines += slot.position.name.encode("ascii") + b": " + slot.replaced(_text(given[1])).encode() + b"\r\n"
                drops.add(given[0])
        login = _only(request, b"authorization") if self._of("basic") else None
        if login is not None:
            lines += b"Authorization: " + self._basic(login[1]) + b"\r\n"
            drops.add(login[0])
        return lines, frozenset(drops)

    def _basic(self, value: bytes) -> bytes:
        """RFC 7617, with or without the padding of its base64."""
        given = _BASIC.fullmatch(value)
        user, colon, password = _decoded(given[1]).partition(b":") if given else (b"", b"", b"")
        if not colon:
            raise Unsignable("The rule puts a credential into Authorization: send Basic with its placeholder there.")
        pair = {"username": user, "password": password}
        for slot in self._of("basic"):
            pair[slot.position.name] = slot.replaced(_text(pair[slot.position.name])).encode()
        return b"Basic " + base64.b64encode(pair["username"] + b":" + pair["password"])

    # The body.

    def _check_body(self, request: Outgoing) -> None:
        wanted = _FORM if self._of("form") else b"application/json"
        kinds = [value.partition(b";")[0].strip().lower() for value in _all(request, b"content-type")] or [wanted]
        if len(kinds) > 1 or not (kinds == [_FORM] if wanted == _FORM else _JSON.fullmatch(kinds[0])):
            raise Unsignable(f"The rule puts a credential into the body, and reads only {wanted.decode()} there.")
        if any(value.strip().lower() != b"identity" for value in _all(request, b"content-encoding")):
            raise Unsignable("The rule puts a credential into the body: send it without Content-Encoding.")
        if request.length is not None and request.length > BODY_LIMIT:
            raise Unsignable(
                f"The rule puts a credential into the body, of which at most {BODY_LIMIT} bytes are held.",
                too_large=True,
            )

    def _body(self, body: bytes) -> bytes:
        if self._of("form"):
            return self._parameters(body, "form")
        try:
            text = body.decode("utf-8")
            for slot in self._of("json"):
                span = found_at(text, slot.position.name)
                if span is not None:
                    text = written_at(text, span, slot.replaced(span.value if isinstance(span.value, str) else ""))
            return text.encode("utf-8")
        except (UnicodeDecodeError, NotJson) as why:
            said = str(why) if isinstance(why, NotJson) else "it is not UTF-8"
            raise Unsignable(
                f"The rule puts a credential into a JSON body, and this one cannot be read: {said}."
            ) from None


def _only(request: Outgoing, name: bytes) -> tuple[bytes, bytes] | None:
    """(name as it came, value) of the one header of this name; servers may take an underscore for a hyphen."""
    given = [line for line in request.lines if line[0].replace(b"_", b"-") == name]
    if len(given) > 1:
        raise Unsignable(f"The rule puts a credential into header {name.decode()}, which stands here more than once.")
    return given[0] if given else None


def _all(request: Outgoing, name: bytes) -> list[bytes]:
    return [value for given, value in request.lines if given.replace(b"_", b"-") == name]


def _parameter(parameter: bytes, slots: Mapping[str, _Slot]) -> bytes:
    slot = slots.get(parameter_name(parameter))
    if slot is None:
        return parameter
    name, _, value = parameter.partition(b"=")
    return name + b"=" + _quoted(slot.replaced(_text(unquote_to_bytes(value.replace(b"+", b" ")))))


def _decoded(text: bytes) -> bytes:
    bare = text.rstrip(b"=").translate(bytes.maketrans(b"-_", b"+/"))
    try:
        return base64.b64decode(bare + b"=" * (-len(bare) % 4))
    except binascii.Error:
        return b""


def _text(octets: bytes) -> str:
    return octets.decode("utf-8", "replace")


def _quoted(text: str) -> bytes:
    return quote(text, safe="").encode("ascii")


def prepare_placeholders(fields: Mapping[str, Field], how: object) -> PlaceholderSigning:
    """A record's fields at the positions `how`, a Placeholders. Raises ValueError naming the field, never its value."""
    if not isinstance(how, Placeholders):
        raise ValueError("placeholders need their positions")
    slots, values = [], []
    for position in how.positions:
        secret = _secret(fields, position)
        slots.append(_Slot(position, secret))
        values.append(secret.reveal())
    return PlaceholderSigning(tuple(slots), renderings(values))


def _secret(fields: Mapping[str, Field], position: Position) -> Secret:
    name = position.field or next((name for name in _DEFAULT_FIELDS if name in fields), "")
    found = fields.get(name)
    if not isinstance(found, Secret):
        raise ValueError(f"{position} wants field {name!r}, which a record of this kind has not")
    value = found.reveal()
    if not value.isprintable() or (position.kind == "header" and not value.isascii()):
        raise ValueError(f"field {name!r} holds characters that cannot stand in {position}")
    if position.kind == "path" and position.format.replace("{value}", value) in ("", ".", ".."):
        raise ValueError(f"field {name!r} cannot be a path segment")
    if position.kind == "basic" and position.name == "username" and ":" in value:
        raise ValueError(f"field {name!r} holds a colon, which ends a user name (RFC 7617 section 2)")
    return found
