"""Session tokens: JWTs that say for which tenant, agent and actor a call is made."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from policies.traits import Traits
from proxy.identity.bearer import BearerIdentifier
from proxy.identity.compact import TokenFault
from proxy.identity.identifier import misconfigured
from proxy.identity.names import TenantList, is_actor, is_name
from proxy.identity.traits import traits_of
from proxy.identity.verification import Verified, Verifier
from proxy.model import Caller
from signers.secret import Secret


class ClaimNames(NamedTuple):
    """In which claims an issuer names whom."""

    tenant: str = "tenant"
    agent: str = "agent"
    actor: str = "actor"
    namespace: str = "namespace"
    labels: str = "labels"


class SessionIssuer:
    """An issuer of session tokens and the tenants that it may speak for."""

    def __init__(self, verifier: Verifier, tenants: Collection[str], names: ClaimNames | None = None) -> None:
        """`tenants` may be ["*"]. Raises ConfigurationError when it is empty or holds what is no tenant's name."""
        self.verifier = verifier
        self._tenants = TenantList(tenants)
        self._names = names or ClaimNames()
        faults = self._tenants.faults(f"issuer {verifier.issuer!r}: tenants")
        if faults:
            raise misconfigured(*faults)

    def caller(self, verified: Verified, token: Secret) -> Caller:
        """The caller that the signed claims name. Raises TokenFault; there is no default for tenant or agent."""
        tenant, agent, actor = self._named(verified.claims)
        if tenant not in self._tenants:
            raise TokenFault("The session token's issuer may not speak for the tenant that it names.")
        return Caller(
            tenant=tenant,
            agent=agent,
            actor=actor,
            expires=verified.expires,
            source="session_token",
            token_id=verified.digest,
            jti=verified.token_id,
            subject_token=token,
            traits=self._traits(verified.claims),
        )

    def _traits(self, claims: Mapping[str, Any]) -> Traits:
        try:
            return traits_of(claims.get(self._names.namespace), claims.get(self._names.labels))
        except ValueError as fault:
            raise TokenFault(f"The session token's {fault}.") from None

    def _named(self, claims: Mapping[str, Any]) -> tuple[str, str, str]:
        tenant, agent = claims.get(self._names.tenant), claims.get(self._names.agent)
        actor = claims.get(self._names.actor, "")
        if not is_name(tenant) or not is_name(agent):
            raise TokenFault("The session token names no tenant or no agent in the claims where they should stand.")
        if actor != "" and not is_actor(actor):
            raise TokenFault("The session token's actor is not a name.")
        return str(tenant), str(agent), str(actor)


class SessionToken(BearerIdentifier):
    """The `session_token` member of a chain: several issuers, each with its own keys, audience and tenants."""
