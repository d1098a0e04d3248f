"""The record kind `hmac`: requests signed by the template that their provider's file declares (signers/hmac_template).

What the template adds, the client's own copies make way for; every attempt has its own time and nonce.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote_from_bytes

from signers.edit import parameter_name
from signers.hmac_template import HmacTemplate, added, digested, key_bytes, moment, nonce, signature
from signers.masks import renderings
from signers.placement import Field
from signers.secret import Secret
from signers.signing import Need, Outgoing, Signed, Unsignable

FORM: Final = b"application/x-www-form-urlencoded"
_NO_BODY: Final = frozenset({"GET", "HEAD"})


class HmacSigning:
    """Signs with one key by one template."""

    def __init__(self, template: HmacTemplate, key_id: str, secret: Secret) -> None:
        self._template = template
        self._key_id = key_id.encode("utf-8")
        self._secret = secret
        self._query = frozenset(name for name, _ in template.query)
        self._form = frozenset(name for name, _ in template.form)
        self.clears = frozenset(name.lower().replace("_", "-").encode("ascii") for name, _ in template.headers)
        self.masks = renderings([secret.reveal(), key_id])

    def __repr__(self) -> str:
        return "HmacSigning(•••)"

    def need(self, request: Outgoing) -> Need:
        template = self._template
        if template.form:
            _check_form(request)
        if not template.covers_body or (request.length == 0 and not template.form):
            return Need()
        if request.length is not None and request.length > template.body_limit:
            raise Unsignable(
                f"A body of {request.length} bytes is too large to be signed: the limit is {template.body_limit} "
                "bytes. Send less in one call.",
                too_large=True,
            )
        return Need(template.body_limit)

    def sign(self, request: Outgoing, body: bytes | None, now: float) -> Signed:
        template, key = self._template, key_bytes(self._secret.reveal(), self._template.key)
        values = {
            "key_id": self._key_id,
            "timestamp": moment(now + template.ahead, template.timestamp),
            "nonce": nonce(key, now),
        }
        payload = self._body(body or b"", values)
        target = self._target(request.target, values)
        values |= _parts(request, target, payload)
        if template.digest is not None:
            values["digest"] = digested(template.digest, values)
        values["signature"] = signature(template, key, values)
        lines = [b"%b: %b\r\n" % (name.encode("ascii"), added(text, values)) for name, text in template.headers]
        last = [(name, text) for name, text in template.query if "{signature}" in text]
        if template.form and not any(name == b"content-type" for name, _ in request.lines):
            lines.append(b"Content-Type: %b\r\n" % FORM)
        return Signed(_appended(target, last, values), b"".join(lines), body=payload if template.form else None)

    def _target(self, target: bytes, values: Mapping[str, bytes]) -> bytes:
        """The target that is signed: without the client's copies of what is added, with what is signed itself."""
        if not self._query:
            return target
        path, mark, query = target.partition(b"?")
        kept = [one for one in query.split(b"&") if parameter_name(one) not in self._query] if query else []
        first = [(name, text) for name, text in self._template.query if "{signature}" not in text]
        bare = path + mark + b"&".join(kept) if kept else path
        return _appended(bare, first, values)

    def _body(self, body: bytes, values: Mapping[str, bytes]) -> bytes:
        if not self._form:
            return body
        kept = [one for one in body.split(b"&") if parameter_name(one) not in self._form] if body else []
        return b"&".join([*_pairs(self._template.form, values), *kept])


def _check_form(request: Outgoing) -> None:
    """A form can be added to a form or to nothing."""
    if request.method in _NO_BODY:
        raise Unsignable(f"This provider's signature goes with a form body: {request.method} has none. Use POST.")
    kinds = [value.partition(b";")[0].strip().lower() for name, value in request.lines if name == b"content-type"]
    if (kinds and kinds != [FORM]) or (request.length != 0 and not kinds):
        raise Unsignable(f"This provider's signature goes with a form body: send {FORM.decode()}.")
    if any(name == b"content-encoding" and value.lower() != b"identity" for name, value in request.lines):
        raise Unsignable("This provider's signature goes with a form body: send it without Content-Encoding.")


def _parts(request: Outgoing, target: bytes, body: bytes) -> dict[str, bytes]:
    path, _, query = target.partition(b"?")
    headers = {f"header:{name.decode('latin-1')}": value for name, value in request.lines}
    return headers | {
        "method": request.method.encode("ascii"),
        "host": request.host.encode("ascii"),
        "path": path,
        "query": query,
        "sorted_query": b"&".join(sorted(query.split(b"&"))),
        "target": target,
        "body": body,
    }


def _pairs(formats: tuple[tuple[str, str], ...] | list[tuple[str, str]], values: Mapping[str, bytes]) -> list[bytes]:
    return [
        f"{quote_from_bytes(name.encode(), safe='')}={quote_from_bytes(added(text, values), safe='')}".encode("ascii")
        for name, text in formats
    ]


def _appended(target: bytes, formats: list[tuple[str, str]], values: Mapping[str, bytes]) -> bytes:
    if not formats:
        return target
    more = b"&".join(_pairs(formats, values))
    return target + (b"&" if b"?" in target else b"?") + more


def prepare_hmac(fields: Mapping[str, Field], how: object) -> HmacSigning:
    """A record's `key_id` and `secret`, with the template of its provider. Raises ValueError, never with the secret."""
    if not isinstance(how, HmacTemplate):
        raise ValueError("an hmac credential needs a provider whose file has auth.hmac; a rule cannot place it")
    key_id, secret = fields.get("key_id"), fields.get("secret")
    if not isinstance(key_id, Secret) or not isinstance(secret, Secret):
        raise ValueError("fields 'key_id' and 'secret' must be there as text")
    if not key_id.reveal().isprintable() or not key_id.reveal().isascii() or not secret:
        raise ValueError("field 'key_id' must be visible ASCII, and 'secret' must not be empty")
    key_bytes(secret.reveal(), how.key)
    return HmacSigning(how, key_id.reveal(), secret)
