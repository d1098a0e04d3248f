"""What a caller asks of us besides the call: an idempotency key, the next page."""

from __future__ import annotations

from copy import copy
from typing import Final, NamedTuple

from proxy.errors import SAFE_METHODS, GatewayError
from proxy.model import Call, Caller, Route
from proxy.upstream.ledger.entry import Entry
from proxy.upstream.ledger.keeping import Keeping
from proxy.upstream.ledger.rows import Scope

_KEY: Final = b"idempotency-key"
_CHOOSING: Final = (b"x-amz-target", b"soapaction")
"""Headers that say what a call does where its method, URL and body do not."""


class KeyUse(NamedTuple):
    """What becomes of a caller's key: `entry` is set where our ledger keeps it, `keyed` where the provider does."""

    entry: Entry | None = None
    keyed: bool = False


def use_key(call: Call, caller: Caller, route: Route, rule: str, keeping: Keeping | None) -> KeyUse:
    """Puts the key into the form that the provider takes, or into the ledger (design section 9).

    Reads, and what the catalogue declares idempotent, need neither. Raises GatewayError where a key was given and
    nobody can honour it: a caller that gives one relies on it.
    """
    wishes, provider, operation = call.section.wishes, route.provider, route.operation
    if wishes is None or not wishes.key:
        return KeyUse()
    form = provider.dialect.idempotency if provider is not None else None
    name = operation.name if operation is not None else None
    if provider is not None:
        taken = form is not None and form.takes(call.method, name)
        _forward(call, form.header.encode() if form is not None and taken else b"", wishes.key)
        if taken:
            return KeyUse(keyed=True)
    if call.method in SAFE_METHODS or (operation is not None and operation.idempotent):
        return KeyUse()
    return KeyUse(_entry(call, caller, rule, keeping, wishes.key))


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
