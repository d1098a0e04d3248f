"""The ledger's rows and what is decided from them (pure)."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from proxy.errors import GatewayError, Kind
from proxy.model import Headers

State = Literal["pending", "done", "unknown"]
RETENTION: Final = 86_400.0
"""Seconds for which a key is remembered."""
IN_FLIGHT_WAIT: Final = 1


class Scope(NamedTuple):
    """To whom a key belongs: the same key of anybody else, or under another rule, is another key."""

    tenant: str
    actor: str
    agent: str
    rule: str


class Reply(NamedTuple):
    """A stored reply: its body is empty and `whole` False when it was too large to keep."""

    status: int
    headers: Headers
    body: bytes
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Row:
    """One key. `instance` is the process that sent the call; times are epoch seconds."""

    id: str
    tenant: str
    fingerprint: str
    state: State
    instance: str
    call_id: str
    created: float
    expires: float
    reply: Reply | None = None
    alive: bool = False
    """Another process is still about it."""

    @property
    def columns(self) -> tuple[str, str, str, str, str, str, float, float]:
        """What is stored of a call that begins."""
        return (
            *(self.id, self.tenant, self.fingerprint, self.state),
            *(self.instance, self.call_id, self.created, self.expires),
        )


def row_id(secret: bytes, scope: Scope, key: bytes) -> str:
    """The row of a key. Keyed, so that the file does not show which keys callers use."""
    named = "\0".join(scope).encode() + b"\0" + key
    return hmac.new(secret, named, hashlib.sha256).hexdigest()[:32]


def fingerprint(method: str, origin: str, target: bytes, *rest: bytes) -> str:
    """What has to be equal for a call to be the same call; `rest` is its body and headers that say what it does."""
    digest = hashlib.sha256()
    for part in (method.encode(), origin.encode(), target, *rest):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def verdict(row: Row, print_: str, instance: str, now: float) -> Reply | None:
    """What an earlier row means for a call: its stored reply, None when the row is over and may be taken.

    Raises GatewayError idempotency_mismatch, idempotency_in_flight or outcome_unknown.
    """
    if row.expires <= now:
        return None
    if row.fingerprint != print_:
        raise GatewayError("idempotency_mismatch", "This Idempotency-Key was used for a call that differs.")
    if row.state == "done" and row.reply is not None and row.reply.whole:
        return row.reply
    if row.state == "done":
        raise GatewayError(
            "outcome_unknown", "The call with this Idempotency-Key was done, but its reply was too large to keep."
        )
    if row.state == "pending" and (row.alive or row.instance == instance):
        raise GatewayError(
            "idempotency_in_flight",
            "The first call with this Idempotency-Key is still running.",
            retry_after=IN_FLIGHT_WAIT,
        )
    raise GatewayError(
        "outcome_unknown",
        "A call with this Idempotency-Key was sent before, and its outcome is not known. "
        f"The operator can settle it: sluicegate ledger resolve {row.id}.",
    )


def after_failure(kind: Kind, sent: bool) -> State | None:
    """What a failure leaves: None when nothing was done, so that the key may be used again."""
    return "unknown" if sent and kind == "unavailable" else None
