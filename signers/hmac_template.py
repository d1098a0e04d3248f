"""HMAC over parts of a request, as a provider's file declares it: what is signed, how, and where it is written.

A message and the formats of what is added are texts with parts in braces:

    key_id timestamp nonce              the record's, and those of this attempt
    method host path query target       of the request as it leaves; `query` without "?", `target` is path and query
    sorted_query                        the query's parameters in byte order
    header:name                         the client's header, in lower case; empty without one
    body digest                         the body as it leaves, and the template's digest
    signature                           in formats only

Nothing is decoded or normalised: what is signed are the bytes that the provider gets.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

Hash = Literal["sha1", "sha256", "sha384", "sha512"]
Encoding = Literal["hex", "base64", "raw"]
Clock = Literal["seconds", "milliseconds", "microseconds", "nanoseconds", "iso8601", "http_date", "rfc2822"]
Values = Mapping[str, bytes]

ADDED: Final = frozenset({"key_id", "timestamp", "nonce"})
"""Parts that are known before anything of the request is."""
OF_REQUEST: Final = frozenset({"method", "host", "path", "query", "sorted_query", "target", "body"})
BODY_LIMIT: Final = 1 << 20
"""Bytes of a body that are held to be signed, where a template says nothing else."""

_PART: Final = re.compile(r"\{([a-z_]+(?::[a-z0-9-]+)?)\}")
_BASIC: Final = re.compile(r"(?i)basic +(?=.*:)")
_UNITS: Final[Mapping[str, int]] = {
    "seconds": 1, "milliseconds": 1_000, "microseconds": 1_000_000, "nanoseconds": 1_000_000_000,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Digest:
    """A hash that stands in the message: of which parts, and how it is written there."""

    hash: Hash
    of: str
    encoding: Encoding = "hex"


@dataclass(frozen=True, slots=True)
class HmacTemplate:
    """How one provider wants its requests signed.

    algorithm  of the HMAC
    message    what is signed
    headers, query, form   (name, format) of what is added to the request; a parameter whose format holds no
               {signature} is part of the query that is signed, and a form's fields are part of the body
    key        how the record's secret is turned into the key: its text, or what that encodes
    encoding   of the signature
    timestamp  the form of {timestamp}; `ahead` are seconds added to it, for providers that want an expiry
    digest     what {digest} is
    body_limit bytes of a body that are held
    """

    algorithm: Hash
    message: str
    headers: tuple[tuple[str, str], ...] = ()
    query: tuple[tuple[str, str], ...] = ()
    form: tuple[tuple[str, str], ...] = ()
    key: Literal["text", "base64", "hex"] = "text"
    encoding: Encoding = "hex"
    timestamp: Clock = "seconds"
    ahead: int = 0
    digest: Digest | None = None
    body_limit: int = BODY_LIMIT

    @property
    def covers_body(self) -> bool:
        """Whether the body has to be there before the request can be signed."""
        texts = (self.message, self.digest.of if self.digest is not None else "")
        return bool(self.form) or any("{body}" in text for text in texts)

    def check(self) -> None:
        """Raises ValueError where the template names a part that is not there to be used."""
        message = ADDED | OF_REQUEST | ({"digest"} if self.digest is not None else set())
        _check_parts("message", self.message, message)
        if self.digest is not None:
            _check_parts("digest", self.digest.of, ADDED | OF_REQUEST)
        for name, text in (*self.headers, *self.query):
            _check_parts(name, text, ADDED | {"signature"})
        for name, text in self.form:
            _check_parts(name, text, ADDED)
        if not any("{signature}" in text for _, text in (*self.headers, *self.query)):
            raise ValueError("no header and no query parameter holds {signature}")


def _check_parts(where: str, text: str, known: frozenset[str] | set[str]) -> None:
    if "{" in _PART.sub("", text) or "}" in _PART.sub("", text):
        raise ValueError(f"{where}: braces stand around the name of a part and nowhere else")
    for name in _PART.findall(text):
        if name not in known and not (name.startswith("header:") and "method" in known):
            raise ValueError(f"{where}: {{{name}}} is no part that can stand here")


def filled(text: str, values: Values) -> bytes:
    """A text with its parts written in. A header that the request does not have is empty."""
    pieces = _PART.split(text)
    return b"".join(values.get(piece, b"") if at % 2 else piece.encode("utf-8") for at, piece in enumerate(pieces))


def added(text: str, values: Values) -> bytes:
    """The same for something that is added; a `Basic` with a pair after it is encoded as RFC 7617 wants it."""
    scheme = _BASIC.match(text)
    if scheme is None:
        return filled(text, values)
    return b"Basic " + base64.b64encode(filled(text[scheme.end() :], values))


def key_bytes(secret: str, form: str) -> bytes:
    """The key that a record's secret stands for. Raises ValueError, without the secret."""
    try:
        if form == "base64":
            return base64.b64decode(secret, validate=True)
        return bytes.fromhex(secret) if form == "hex" else secret.encode("utf-8")
    except (ValueError, binascii.Error):
        raise ValueError(f"field 'secret' is not {form}") from None


def moment(now: float, form: Clock) -> bytes:
    """An epoch time in one of the forms that providers want."""
    if form in _UNITS:
        return b"%d" % (round(now * 1e6) * _UNITS[form] // 1_000_000)
    when = datetime.fromtimestamp(now, UTC)
    if form == "iso8601":
        return (when.strftime("%Y-%m-%dT%H:%M:%S.") + f"{when.microsecond // 1000:03d}Z").encode("ascii")
    from email.utils import format_datetime  # few providers want this form, and its library is large

    text = format_datetime(when, usegmt=True)
    return (text if form == "http_date" else text.replace("GMT", "-0000")).encode("ascii")


def nonce(key: bytes, now: float) -> bytes:
    """A UUID nobody can foretell, another for each time: derived, so that signing stays pure."""
    drawn = hmac.digest(key, b"nonce %d" % int(now * 1e9), "sha256")[:16].hex()
    return f"{drawn[:8]}-{drawn[8:12]}-4{drawn[13:16]}-a{drawn[17:20]}-{drawn[20:]}".encode("ascii")


_ENCODERS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "hex": binascii.hexlify,
    "base64": base64.b64encode,
    "raw": bytes,
}


def digested(digest: Digest, values: Values) -> bytes:
    return _ENCODERS[digest.encoding](hashlib.new(digest.hash, filled(digest.of, values)).digest())


def signature(template: HmacTemplate, key: bytes, values: Values) -> bytes:
    """The HMAC of the template's message over `values`, encoded."""
    made = hmac.digest(key, filled(template.message, values), template.algorithm)
    return _ENCODERS[template.encoding](made)
