"""What resolving a credential asks of the parts beside it: a rule's use of it, a provider, and how it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple, Protocol, cast

from proxy.credentials.cache import Entry
from proxy.credentials.record import Record, Value
from proxy.credentials.refusals import subject
from proxy.errors import GatewayError
from proxy.model import Caller, Material
from signers.hmac_template import HmacTemplate
from signers.placeholders import Placeholders, Position
from signers.placement import Injection, Placement
from signers.signing import Signing


class Impersonation(Protocol):
    """Whom a service account may act for."""

    def user(self, actor: str, /) -> str:
        """The account of an actor. Raises ValueError saying why there is none."""


class CredentialUse(Protocol):
    """What a rule says of its credential. `placement` is (kind, name, format), or the positions of placeholders, each
    (kind, name, format, field, text), or None for the provider's own."""

    @property
    def name(self) -> str: ...
    @property
    def per(self) -> Literal["tenant", "actor"]: ...
    @property
    def placement(self) -> tuple[str, str, str] | tuple[tuple[str, str, str, str, str], ...] | None: ...
    @property
    def impersonate(self) -> Impersonation | None: ...


class Provider(Protocol):
    """What is needed of a catalogue entry."""

    @property
    def name(self) -> str: ...
    @property
    def positions(self) -> Iterable[Placement]: ...
    def placement_for(self, kind: str, /) -> Placement | HmacTemplate | None: ...
    def hosts_for(self, vars: Mapping[str, str], /) -> frozenset[str]: ...
    def headers_for(self, vars: Mapping[str, str], /) -> Mapping[str, str]: ...


class Prepare(Protocol):
    """Makes the wire form of a record; ValueError, without the value, when that cannot be done."""

    def __call__(
        self, kind: str, fields: Mapping[str, Value], placement: Placement | None, positions: Iterable[Placement], /
    ) -> Injection: ...


How = Placement | Placeholders | HmacTemplate | None
Signer = Callable[[Mapping[str, Value], Any], Signing]
"""Makes what signs, of a record's fields and a How."""


class Prepared(NamedTuple):
    """Material made for one provider object: a reloaded catalogue brings a new object, and so new material."""

    provider: Provider | None
    material: Material


def placement_of(use: CredentialUse, provider: Provider | None, kind: str) -> How:
    if use.placement is not None:
        if isinstance(use.placement[0], tuple):
            return Placeholders(tuple([Position(*stand) for stand in use.placement]))
        where, name, shape = use.placement
        return Placement(cast('Literal["header", "query", "cookie"]', where), name, shape)
    return provider.placement_for(kind) if provider is not None else None


def acting_for(entry: Entry, caller: Caller, use: CredentialUse) -> str | None:
    """Whom the credential acts for on this call, None for itself."""
    if use.impersonate is None:
        return None
    try:
        return use.impersonate.user(caller.actor)
    except ValueError as error:
        raise GatewayError("policy_denied", f"{subject(entry.key)} cannot act for this caller: {error}.") from None


def check_use(entry: Entry, record: Record, use: CredentialUse) -> None:
    """Raises where the record may not be used as the rule wants it."""
    if record.disabled:
        raise GatewayError("credential_disabled", f"{subject(entry.key)} is switched off.")
    if use.impersonate is not None:
        raise GatewayError("credential_missing", f"{subject(entry.key)} is no service account, and acts for nobody.")
