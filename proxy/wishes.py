"""What a caller asks of us besides the call: an idempotency key, the next page."""

from __future__ import annotations

from copy import copy
from typing import Final, NamedTuple

from proxy.contents import body_in
from proxy.dialect import IdempotencyForm
from proxy.errors import SAFE_METHODS, GatewayError
from proxy.key_forms import in_object, in_target, value_of
from proxy.model import Call, Caller, Route
from proxy.paging import media_type, with_body_of
from proxy.upstream.ledger.entry import Entry
from proxy.upstream.ledger.keeping import Keeping
from proxy.upstream.ledger.rows import Scope
from proxy.wire.server_connection import ServerConnection
from signers.edit import presigned

_KEY: Final = b"idempotency-key"
_CHOOSING: Final = (b"x-amz-target", b"soapaction")
"""Headers that say what a call does where its method, URL and body do not."""


class KeyUse(NamedTuple):
    """What becomes of a caller's key: `entry` is set where our ledger keeps it, `keyed` where the provider does."""

    entry: Entry | None = None
    keyed: bool = False


def key_in_body(call: Call, route: Route) -> bool:
    """Whether the body is waited for, because the caller's key goes into it."""
    wishes = call.section.wishes
    if wishes is None or not wishes.key:
        return False
    form = _form(call, route)
    return form is not None and form.place == "field"


def use_key(
    call: Call, caller: Caller, route: Route, rule: str, keeping: Keeping | None, connection: ServerConnection
) -> KeyUse:
    """Puts the key into the form that the provider takes, or into the ledger (design section 9).

    Reads, and what the catalogue declares idempotent, need neither. Raises GatewayError where a key was given and
    nobody can honour it: a caller that gives one relies on it.
    """
    wishes, operation = call.section.wishes, route.operation
    if wishes is None or not wishes.key:
        return KeyUse()
    form = _form(call, route)
    value = value_of(form, wishes.key) if form is not None else b""
    if route.provider is not None:
        _forward(call, form.name.encode() if form is not None and form.place == "header" else b"", value)
    if form is not None and _placed(call, form, value, connection):
        return KeyUse(keyed=True)
    if call.method in SAFE_METHODS or (operation is not None and operation.idempotent):
        return KeyUse()
    return KeyUse(_entry(call, caller, rule, keeping, wishes.key))


def _form(call: Call, route: Route) -> IdempotencyForm | None:
    """The form in which the provider takes a key with this call."""
    form = route.provider.dialect.idempotency if route.provider is not None else None
    name = route.operation.name if route.operation is not None else None
    return form if form is not None and form.takes(call.method, name) else None


def _placed(call: Call, form: IdempotencyForm, value: bytes, connection: ServerConnection) -> bool:
    """Puts the key where the form says; whether the call now carries one. The caller's own stays."""
    if form.place == "header":
        return True
    if form.place == "query":
        return _put_in_target(call, form.name, value)
    return _put_in_body(call, form.name, value, connection)


def _put_in_target(call: Call, name: str, value: bytes) -> bool:
    # A signature over the URL would not hold for another one.
    target = None if presigned(call.place.target) else in_target(call.place.target, name, value)
    if target is None:
        return False
    call.place = call.place._replace(target=target)
    return True


def _put_in_body(call: Call, name: str, value: bytes, connection: ServerConnection) -> bool:
    before = body_in(connection) if "json" in media_type(call) else None
    body = in_object(before, name, value)
    if body is None:
        return False
    if body is not before:
        with_body_of(call, len(body))
        connection.replace_body(body)
    return True


def _forward(call: Call, header: bytes, key: bytes) -> None:
    """The caller's line goes; the provider's form takes its place, where there is one."""
    section = copy(call.section)
    names = (_KEY, header.lower())
    section.kept = [line for line in section.kept if line[0] not in names]
    if header:
        section.kept.append((header.lower(), header, key))
    section.memo = None
    call.section = section


def _entry(call: Call, caller: Caller, rule: str, keeping: Keeping | None, key: bytes) -> Entry:
    if keeping is None:
        raise GatewayError("malformed_request", "Nobody here keeps an Idempotency-Key: the ledger is turned off.")
    chosen = tuple(value for name, _, value in call.section.kept if name in _CHOOSING)
    return keeping.entry(Scope(caller.tenant, caller.actor, caller.agent, rule), key, call.call_id, chosen)
