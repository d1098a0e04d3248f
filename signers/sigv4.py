"""AWS Signature Version 4: canonical request, string to sign, signature (pure).

Source: "Create a signed AWS API request" in the IAM user guide, proven against the aws-c-auth vectors. Two rules that
the guide leaves open are decided in docs/signers.md: how a raw `+` in a query reads, and what S3's path is.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Final, NamedTuple
from urllib.parse import quote_from_bytes, unquote_to_bytes

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC

from signers.secret import Secret

ALGORITHM: Final = b"AWS4-HMAC-SHA256"
EMPTY_SHA256: Final = hashlib.sha256().hexdigest().encode("ascii")
UNSIGNED: Final = b"UNSIGNED-PAYLOAD"
_MAX_DERIVED: Final = 64
"""Derived keys of one credential: one for each day, region and service."""
_BLANKS: Final = re.compile(rb"[ \t\r\n]+")
_UNRESERVED: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
"""RFC 3986 section 2.3. A text of which something is left without these (`bytes.translate`) needs work."""
_IN_PATH: Final = _UNRESERVED + b"/"
# Header values that are not canonical as they stand: runs of blanks, other white space, blanks at either end.
_UNTIDY: Final = re.compile(rb"  |\t|\r|: | \n|\n ")
_DOTS_OR_EMPTY: Final = re.compile(rb"//|/\.\.?(?:/|$)")
# A path as it stands on the wire keeps everything that may stand there; only what may not is escaped.
_WIRE_SAFE: Final = "/%!$&'()*+,;=:@~"

Lines = Sequence[tuple[bytes, bytes]]
"""(lower-case name, value) of the headers to sign; the order matters only between lines of one name."""


class Scope(NamedTuple):
    """What a signature is good for."""

    region: bytes
    service: bytes


class Stamp(NamedTuple):
    """A moment as the protocol writes it."""

    date: bytes
    """YYYYMMDD"""
    time: bytes
    """YYYYMMDD'T'HHMMSS'Z'"""


@lru_cache(maxsize=16)
def _stamp(second: int) -> Stamp:
    text = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(second)).encode("ascii")
    return Stamp(text[:8], text)


def stamp(now: float) -> Stamp:
    """The stamp of `now`, epoch seconds."""
    return _stamp(int(now))


class Derived(NamedTuple):
    """What a day, region and service make of an access key."""

    scope: bytes
    """The credential scope, YYYYMMDD/region/service/aws4_request."""
    credential: bytes
    """The same behind the access key's id."""
    text: bytes
    """The string to sign, as a template over the time and the hash of the canonical request."""
    keyed: HMAC
    """HMAC-SHA256 with the signing key taken in: copying it costs a third of keying a new one."""

    def __repr__(self) -> str:
        return f"Derived({self.credential.decode('ascii')}, •••)"


class Keys:
    """An access key with its derived keys: deriving one costs four HMACs, and it holds for a day."""

    __slots__ = ("_derived", "_secret", "access_key_id", "session_token")

    def __init__(self, access_key_id: str, secret_access_key: Secret, session_token: Secret | None = None) -> None:
        self.access_key_id = access_key_id.encode("ascii")
        self.session_token = session_token
        self._secret = secret_access_key
        self._derived: dict[tuple[bytes, Scope], Derived] = {}

    def __repr__(self) -> str:
        return f"Keys({self.access_key_id.decode('ascii')}, •••)"

    def derived(self, when: Stamp, scope: Scope) -> Derived:
        known = self._derived.get((when.date, scope))
        if known is None:
            if len(self._derived) >= _MAX_DERIVED:
                self._derived.clear()
            known = self._derived[when.date, scope] = self._derive(when.date, scope)
        return known

    def _derive(self, date: bytes, scope: Scope) -> Derived:
        key = b"AWS4" + self._secret.reveal().encode()
        parts = (date, scope.region, scope.service, b"aws4_request")
        for part in parts:
            key = hmac.digest(key, part, "sha256")
        scope_text = b"/".join(parts)
        text = b"\n".join([ALGORITHM, b"%b", scope_text, b"%b"])
        return Derived(scope_text, self.access_key_id + b"/" + scope_text, text, HMAC(key, SHA256()))


def canonical_path(path: bytes, *, normalise: bool = True, encode: bool = True) -> bytes:
    """The canonical URI of a path as it stands on the wire.

    `normalise` removes dot segments and empty segments; `encode` escapes the wire form once more. S3 wants neither: its
    canonical path is the wire's, in which only bytes that may not stand in a URL are escaped.
    """
    plain = not path.translate(None, _IN_PATH)
    if plain and (not normalise or (b"/." not in path and b"//" not in path)):
        return path or b"/"
    if normalise and _DOTS_OR_EMPTY.search(path):
        path = _normalised(path)
    return quote_from_bytes(path, safe="/~" if encode else _WIRE_SAFE).encode("ascii") or b"/"


def _normalised(path: bytes) -> bytes:
    kept: list[bytes] = []
    for segment in path.split(b"/"):
        if segment == b"..":
            if kept:
                kept.pop()
        elif segment not in (b"", b"."):
            kept.append(segment)
    ends = b"/" if kept and path.endswith(b"/") else b""  # unlike RFC 3986: `/a/.` is `/a` to AWS
    return b"/" + b"/".join(kept) + ends


def canonical_query(query: bytes) -> bytes:
    """Parameters decoded, encoded strictly, sorted by name and then by value."""
    if not query or query.translate(None, _UNRESERVED) == b"=":
        return query
    pairs = [_pair(parameter) for parameter in query.split(b"&") if parameter]
    pairs.sort()
    return b"&".join([b"%b=%b" % pair for pair in pairs])


def _pair(parameter: bytes) -> tuple[bytes, bytes]:
    name, _, value = parameter.partition(b"=")
    return _recoded(name), _recoded(value)


def _recoded(text: bytes) -> bytes:
    if not text.translate(None, _UNRESERVED):
        return text
    return encoded(unquote_to_bytes(text.replace(b"+", b" ")))


def encoded(text: bytes) -> bytes:
    """Every byte but the unreserved ones percent-encoded (RFC 3986 section 2.3)."""
    return quote_from_bytes(text, safe="~").encode("ascii")


def canonical_headers(lines: Iterable[tuple[bytes, bytes]]) -> tuple[bytes, bytes]:
    """(canonical lines, names of the signed headers). Repeats are joined by commas in their order."""
    ordered = sorted(lines, key=_name)
    names = [name for name, _ in ordered]
    block = b"".join([b"%b:%b\n" % line for line in ordered])
    if len(set(names)) < len(names) or _UNTIDY.search(block):
        return _tidied(ordered)
    return block, b";".join(names)


_name = itemgetter(0)


def _tidied(ordered: Lines) -> tuple[bytes, bytes]:
    values: dict[bytes, bytes] = {}
    for name, value in ordered:
        tidy = _BLANKS.sub(b" ", value).strip(b" ")
        values[name] = values[name] + b"," + tidy if name in values else tidy
    return b"".join([b"%b:%b\n" % line for line in values.items()]), b";".join(values)


def canonical_request(method: bytes, path: bytes, query: bytes, headers: tuple[bytes, bytes], payload: bytes) -> bytes:
    """`path` and `query` in canonical form, `headers` from canonical_headers, `payload` a hash or its stand-in."""
    return b"%b\n%b\n%b\n%b\n%b\n%b" % (method, path, query, headers[0], headers[1], payload)


def string_to_sign(when: Stamp, derived: Derived, canonical: bytes) -> bytes:
    """What the signature is made of, from a canonical request."""
    return derived.text % (when.time, hashlib.sha256(canonical).hexdigest().encode("ascii"))


def signature(derived: Derived, text: bytes) -> bytes:
    """The signature of a string to sign, in hexadecimal."""
    keyed = derived.keyed.copy()
    keyed.update(text)
    return keyed.finalize().hex().encode("ascii")


class Signature(NamedTuple):
    """What a signed request carries. `signature` is also the seed of a body that is signed chunk by chunk."""

    authorization: bytes
    signature: bytes


def sign_header(
    keys: Keys, scope: Scope, when: Stamp, method: bytes, path: bytes, query: bytes, lines: Lines, payload: bytes
) -> Signature:
    """The Authorization value of a request whose `lines` already hold host, x-amz-date and the token.

    `path` is in canonical form, `query` as it stands on the wire.
    """
    headers, derived = canonical_headers(lines), keys.derived(when, scope)
    canonical = canonical_request(method, path, canonical_query(query), headers, payload)
    signed = signature(derived, string_to_sign(when, derived, canonical))
    return Signature(
        b"%b Credential=%b, SignedHeaders=%b, Signature=%b" % (ALGORITHM, derived.credential, headers[1], signed),
        signed,
    )


def query_parameters(
    keys: Keys, scope: Scope, when: Stamp, expires: int, lines: Lines, *, token_signed: bool = True
) -> bytes:
    """The parameters that a signature in the query covers; the signature itself follows them.

    `expires` is in seconds. Some services take the token only after signing: then it is left to the caller.
    """
    pairs = [
        (b"X-Amz-Algorithm", ALGORITHM),
        (b"X-Amz-Credential", keys.derived(when, scope).credential),
        (b"X-Amz-Date", when.time),
        (b"X-Amz-SignedHeaders", canonical_headers(lines)[1]),
        (b"X-Amz-Expires", b"%d" % expires),
    ]
    if keys.session_token is not None and token_signed:
        pairs.append((b"X-Amz-Security-Token", keys.session_token.reveal().encode("ascii")))
    return b"&".join([b"%b=%b" % (name, encoded(value)) for name, value in pairs])


def sign_query(
    keys: Keys, scope: Scope, when: Stamp, method: bytes, path: bytes, query: bytes, lines: Lines, payload: bytes
) -> bytes:
    """The signature over a query that already holds `query_parameters`."""
    canonical = canonical_request(method, path, canonical_query(query), canonical_headers(lines), payload)
    derived = keys.derived(when, scope)
    return signature(derived, string_to_sign(when, derived, canonical))
