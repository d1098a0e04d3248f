"""The record kind `aws`: requests signed with Signature Version 4.

Of the client's headers only those that AWS wants covered are signed (host, content-type, content-md5, x-amz-*), so that
no hop between can break the signature. What an SDK signed with its dummy keys is removed first.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from signers.aws_chunks import ChunkSigner
from signers.aws_endpoints import endpoint
from signers.masks import renderings
from signers.placement import Field, Placement
from signers.secret import Secret
from signers.signing import Need, Outgoing, Signed, Unsignable
from signers.sigv4 import (
    EMPTY_SHA256,
    UNSIGNED,
    Derived,
    Keys,
    Lines,
    Scope,
    Stamp,
    canonical_path,
    query_parameters,
    sign_query,
    stamp,
)
from signers.sigv4_shape import Shape, shape_of, sign_shaped

SMALL: Final = 65_536
"""Bytes of a body that S3 gets hashed; a longer one goes out as UNSIGNED-PAYLOAD, which TLS protects."""
HOLD: Final = 32 * 1024 * 1024
"""Bytes of a body that is held to be hashed, for services that take no unsigned one: more than any of them accepts."""
MAX_PLACES: Final = 1_024
"""Hosts whose service and region one credential remembers."""
MAX_SHAPES: Final = 64
"""Shapes of requests that are remembered of one place."""
QUERY_LIFE: Final = 300
"""Seconds that a signature in the query holds."""

_CLEARS: Final = frozenset({b"authorization", b"x-amz-date", b"x-amz-security-token", b"x-amz-region-set"})
_PAYLOAD: Final = b"x-amz-content-sha256"
_REPLACES_PAYLOAD: Final = frozenset({_PAYLOAD})
_NOTHING: Final[frozenset[bytes]] = frozenset()
_SIGNED: Final = frozenset({b"host", b"content-type", b"content-md5"})
_COMMON: Final = _SIGNED | {b"x-amz-target", b"x-amz-user-agent", b"x-amz-acl", b"x-amz-request-payer"}
_HASH: Final = re.compile(rb"[0-9a-f]{64}")
KEY_ID: Final = re.compile(r"[A-Za-z0-9_]{4,128}")
NAME: Final = re.compile(r"[A-Za-z0-9-]{1,63}")
_S3: Final = frozenset({"s3", "s3express", "s3-outposts", "s3-object-lambda"})
_TRAILER: Final = b"STREAMING-UNSIGNED-PAYLOAD-TRAILER"
_CHUNKED: Final = {
    b"STREAMING-AWS4-HMAC-SHA256-PAYLOAD": False,
    b"STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER": True,
}
_ASYMMETRIC: Final = (".s3-global.amazonaws.com", ".endpoint.events.amazonaws.com")


class _Place:
    """A service in a region, with what is remembered of requests to it."""

    __slots__ = ("_derived", "_keys", "_of", "_shapes", "s3", "scope")

    def __init__(self, keys: Keys, scope: Scope) -> None:
        self.scope = scope
        self.s3 = scope.service.decode("ascii") in _S3
        """S3's rules hold: paths as they are, the payload's hash in a header."""
        self._keys = keys
        self._of = b""
        self._derived: Derived | None = None
        self._shapes: dict[tuple[tuple[bytes, bytes], ...], Shape] = {}

    def derived(self, when: Stamp) -> Derived:
        if self._derived is None or self._of != when.date:
            self._derived, self._of = self._keys.derived(when, self.scope), when.date
        return self._derived

    def shape(self, request: Outgoing) -> Shape:
        """What the request has in common with others whose covered headers are alike.

        Remembered only for headers that are the same for many calls and hold nothing of anybody's.
        """
        covered = tuple([line for line in request.lines if line[0] in _SIGNED or line[0][:6] == b"x-amz-"])
        known = self._shapes.get(covered)
        if known is None:
            known = self._shaped(covered)
            if _COMMON.issuperset([name for name, _ in covered]):
                if len(self._shapes) >= MAX_SHAPES:
                    self._shapes.clear()
                self._shapes[covered] = known
        return known

    def _shaped(self, covered: tuple[tuple[bytes, bytes], ...]) -> Shape:
        declared = tuple([value for name, value in covered if name == _PAYLOAD])
        return shape_of(self._keys, covered, declared, writes_payload=self.s3 and not declared)


class _Payload(NamedTuple):
    """What stands for the body in the signature. `value` is None while the body has to be hashed."""

    value: bytes | None
    declared: bool = False
    """The client's own header says so already."""
    need: Need = Need()


_NO_BODY: Final = _Payload(EMPTY_SHA256)


class AwsSigning:
    """Signs with one access key. `region` and `service` are the record's, empty to take the host's."""

    def __init__(self, keys: Keys, region: str, service: str, masks: tuple[bytes, ...], *, in_query: bool) -> None:
        self._keys = keys
        self._region = region
        self._service = service
        self._in_query = in_query
        self._places: dict[tuple[str, str, str], _Place] = {}
        self.clears = _CLEARS
        self.masks = masks

    def __repr__(self) -> str:
        return f"AwsSigning({self._keys!r})"

    def need(self, request: Outgoing) -> Need:
        place = self._place(request)
        return _payload(request, place, place.shape(request).declared).need

    def sign(self, request: Outgoing, body: bytes | None, now: float) -> Signed:
        place, when = self._place(request), stamp(now)
        shape = place.shape(request)
        payload = _payload(request, place, shape.declared)
        value = payload.value
        if value is None:
            value = UNSIGNED if body is None else hashlib.sha256(body).hexdigest().encode("ascii")
        if self._in_query:
            return self._query_signed(request, place, when, value)
        if shape.declared and not payload.declared:  # the client's word does not hold, and gives way to ours
            lines = tuple([line for line in request.lines if line[0] != _PAYLOAD])
            shape = place.shape(request._replace(lines=lines))
        return self._header_signed(request, place, when, shape, value)

    # Where and for what.

    def _place(self, request: Outgoing) -> _Place:
        key = (request.host, request.region, request.service)
        known = self._places.get(key)
        if known is None:
            if len(self._places) >= MAX_PLACES:
                self._places.clear()
            known = self._places[key] = _Place(self._keys, self._found_scope(request))
        return known

    def _found_scope(self, request: Outgoing) -> Scope:
        if request.host.endswith(_ASYMMETRIC):
            raise Unsignable(f"{request.host} wants SigV4A, which is not supported: use the endpoint of one region.")
        named = endpoint(request.host)
        region = request.region or self._region or named.region
        service = request.service or self._service or named.service
        for what, value in (("region", region), ("service", service)):
            if not value:
                raise Unsignable(
                    f"The AWS {what} of {request.host} cannot be told from its name: "
                    f"the rule's credential or the record has to say {what}."
                )
        return Scope(region.encode("ascii"), service.encode("ascii"))

    # How it is written.

    def _header_signed(self, request: Outgoing, place: _Place, when: Stamp, shape: Shape, payload: bytes) -> Signed:
        path, _, query = request.target.partition(b"?")
        plain = not place.s3
        canonical = canonical_path(path, normalise=plain, encode=plain)
        derived = place.derived(when)
        lines, signed = sign_shaped(shape, derived, when, request.method.encode("ascii"), canonical, query, payload)
        trailer = _CHUNKED.get(payload)
        coder = None if trailer is None else ChunkSigner(derived, when, signed, trailer=trailer)
        return Signed(request.target, lines, _NOTHING if shape.declared else _REPLACES_PAYLOAD, coder)

    def _query_signed(self, request: Outgoing, place: _Place, when: Stamp, payload: bytes) -> Signed:
        scope, s3 = place.scope, place.s3
        lines: Lines = [line for line in request.lines if line[0] == b"host"]
        path, _, query = request.target.partition(b"?")
        added = query_parameters(self._keys, scope, when, QUERY_LIFE, lines)
        query = query + b"&" + added if query else added
        canonical = canonical_path(path, normalise=not s3, encode=not s3)
        covered = UNSIGNED if s3 else payload
        signed = sign_query(self._keys, scope, when, request.method.encode("ascii"), canonical, query, lines, covered)
        return Signed(b"%b?%b&X-Amz-Signature=%b" % (path, query, signed), b"", _REPLACES_PAYLOAD)


def _payload(request: Outgoing, place: _Place, declared: tuple[bytes, ...]) -> _Payload:
    if len(declared) > 1:
        raise Unsignable("The request has more than one x-amz-content-sha256 header.")
    if declared:
        return _declared(declared[0], request)
    if request.length == 0:
        return _NO_BODY
    return _s3_payload(request) if place.s3 else _held(request)


def _declared(value: bytes, request: Outgoing) -> _Payload:
    """The client says what stands for the body. A hash is the server's to check; what is unsigned needs TLS."""
    if _HASH.fullmatch(value) or value in _CHUNKED:
        return _Payload(value, declared=True)
    if value == UNSIGNED and not request.secure:
        return _Payload(EMPTY_SHA256) if request.length == 0 else _held(request)
    if value in (UNSIGNED, _TRAILER):
        if not request.secure:
            raise Unsignable("An unsigned body needs TLS: call the https endpoint, or let the client sign its payload.")
        return _Payload(value, declared=True)
    raise Unsignable(
        "That x-amz-content-sha256 cannot be signed here: send a SHA-256 hash, UNSIGNED-PAYLOAD or a STREAMING-… form "
        "of AWS4-HMAC-SHA256."
    )


def _s3_payload(request: Outgoing) -> _Payload:
    if request.length is None:
        return _Payload(None, need=Need(HOLD, streams=request.secure))
    if request.length <= SMALL:
        return _Payload(None, need=Need(SMALL))
    return _Payload(UNSIGNED) if request.secure else _held(request)


def _held(request: Outgoing) -> _Payload:
    if request.length is not None and request.length > HOLD:
        raise Unsignable(
            f"A body of {request.length} bytes is too large to be hashed before it is sent: the limit is {HOLD} bytes; "
            "a client that sends its own x-amz-content-sha256 has none.",
            too_large=True,
        )
    return _Payload(None, need=Need(HOLD))


def prepare_aws(fields: Mapping[str, Field], placement: Placement | None) -> AwsSigning:
    """A record's `access_key_id`, `secret_access_key`, and, where it has them, `session_token`, `region`, `service`.

    A placement in the query signs there instead of in a header. Raises ValueError naming the field, never its value.
    """
    identifier, secret = _text(fields, "access_key_id"), _text(fields, "secret_access_key")
    if not KEY_ID.fullmatch(identifier):
        raise ValueError("field 'access_key_id' is not the id of an access key")
    token = _text(fields, "session_token") if "session_token" in fields else ""
    if not token.isascii() or not secret.isascii() or not token.isprintable():
        raise ValueError("fields 'secret_access_key' and 'session_token' must be visible ASCII")
    region, service = (_text(fields, name) if name in fields else "" for name in ("region", "service"))
    for name, value in (("region", region), ("service", service)):
        if value and not NAME.fullmatch(value):
            raise ValueError(f"field {name!r} must be letters, digits and hyphens")
    if placement is not None and placement.kind == "cookie":
        raise ValueError("an aws credential signs in a header or in the query, not in a cookie")
    keys = Keys(identifier, Secret(secret), Secret(token) if token else None)
    masks = renderings([secret, token] if token else [secret])
    return AwsSigning(keys, region, service, masks, in_query=placement is not None and placement.kind == "query")


def _text(fields: Mapping[str, Field], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, Secret | str):
        raise ValueError(f"field {name!r} is missing or not text")
    text = value.reveal() if isinstance(value, Secret) else value
    if not text:
        raise ValueError(f"field {name!r} is empty")
    return text
