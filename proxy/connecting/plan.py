"""What is asked for, where, and what the stored record will say. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from proxy.credentials.app_record import App, TokenFacts
from signers.grants.model import Client, Issued


class ConsentFacts(TokenFacts, Protocol):
    """What the catalogue says of asking for consent."""

    @property
    def authorization_template(self) -> str: ...
    @property
    def authorization_parameters(self) -> Mapping[str, str]: ...
    @property
    def device_template(self) -> str: ...
    @property
    def identity_template(self) -> str: ...
    @property
    def identity_field(self) -> str: ...
    @property
    def redirect_learns(self) -> Mapping[str, str]: ...
    def filled(self, template: str, variables: Mapping[str, str], /) -> str:
        """A template with its variables. Raises ValueError."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One consent to be asked for. Endpoints are empty where neither the app nor the catalogue names one."""

    client: Client
    app: App
    authorization_endpoint: str
    authorization_parameters: Mapping[str, str]
    device_endpoint: str
    identity_endpoint: str
    identity_field: str
    scopes: tuple[str, ...]
    variant: str = ""
    redirect_learns: Mapping[str, str] = field(default_factory=dict)


def plan(
    app: App, facts: ConsentFacts | None, variables: Mapping[str, str], scopes: Sequence[str], variant: str
) -> Plan:
    """What the app's record and the catalogue make of a consent. Raises ValueError naming what is missing."""
    values = {**variables, **app.vars}
    templates = (
        (facts.authorization_template, facts.device_template, facts.identity_template) if facts else ("", "", "")
    )
    own = (app.authorization_endpoint, app.device_endpoint, app.identity_endpoint)
    authorization, device, identity = (
        mine or (facts.filled(template, values) if facts and template else "")
        for mine, template in zip(own, templates, strict=True)
    )
    if not app.client_id:
        raise ValueError(f"apps/{app.name} has no client_id")
    return Plan(
        client=app.client(facts, variables),
        app=app,
        authorization_endpoint=authorization,
        authorization_parameters={**(facts.authorization_parameters if facts else {}), **app.authorization_parameters},
        device_endpoint=device,
        identity_endpoint=identity,
        identity_field=facts.identity_field if facts else "sub",
        scopes=tuple(scopes) or app.scopes,
        variant=variant,
        redirect_learns=facts.redirect_learns if facts else {},
    )


def record_of(
    before: Mapping[str, Any], wanted: Plan, issued: Issued, changes: Mapping[str, Any], account: str
) -> dict[str, Any]:
    """The record to store: what its owner had set in it stays, what belongs to the old consent goes.

    `changes` are the fields that renewals write too.
    """
    kept = {name: value for name, value in before.items() if name not in _OF_A_CONSENT}
    found = {"kind": "oauth2", "app": wanted.app.name, **kept, **changes}
    if wanted.scopes:
        found["scopes"] = list(wanted.scopes)
    if wanted.variant:
        found["token_of"] = wanted.variant
    if account:
        found["account"] = account
    if issued.learned:
        found["vars"] = {**_mapping(before.get("vars")), **issued.learned}
    return {name: value for name, value in found.items() if value is not None}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


_OF_A_CONSENT = frozenset(
    [
        "kind",
        "app",
        "access_token",
        "refresh_token",
        "issued_at",
        "expires_at",
        "granted_scopes",
        "account",
        "refresh",
        "rejected",
    ]
)


def missing_scopes(wanted: Plan, issued: Issued) -> tuple[str, ...]:
    """The scopes that were asked for and not granted; none where the reply names none (RFC 6749 section 5.1)."""
    if issued.scopes is None:
        return ()
    return tuple(scope for scope in wanted.scopes if scope not in issued.scopes)
