"""Kubernetes service accounts, by projected tokens checked offline.

A pod's projected token (serviceAccountToken volume with our audience) is a JWT of the cluster's issuer, whose keys are
the cluster's JWKS. https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from policies.traits import Traits
from proxy.identity.bearer import BearerIdentifier
from proxy.identity.compact import TokenFault
from proxy.identity.identifier import misconfigured
from proxy.identity.mapping import CallerTemplate, Unmapped
from proxy.identity.memory import Memory
from proxy.identity.verification import Verified, Verifier
from proxy.model import Caller
from signers.secret import Secret

_SUBJECT: Final = "system:serviceaccount:"
_OWN_VALUES: Final = frozenset({"namespace", "name", "pod", "node"})


class ServiceAccountRule:
    """Service accounts that are callers, and which.

    `namespace` and `name` are exact, or "*" for any. The template may use {namespace}, {name}, {pod}, {node} and
    {claim.NAME} for a top-level string claim.
    """

    def __init__(self, namespace: str, name: str, caller: CallerTemplate) -> None:
        """Raises ConfigurationError for a placeholder that does not exist."""
        unknown = {key for key in caller.placeholders() - _OWN_VALUES if not key.startswith("claim.")}
        if unknown:
            raise misconfigured(f"service_account: there is no {{{min(unknown)}}} to fill in")
        self._namespace, self._name, self.caller = namespace, name, caller

    def fits(self, namespace: str, name: str) -> bool:
        """True when this rule is about that service account."""
        return self._namespace in ("*", namespace) and self._name in ("*", name)


class _ClusterIssuer:
    """The cluster as an issuer: the first rule that fits names the caller."""

    def __init__(self, verifier: Verifier, rules: Sequence[ServiceAccountRule]) -> None:
        self.verifier = verifier
        self._rules = tuple(rules)

    def caller(self, verified: Verified, token: Secret) -> Caller:
        values = _values(verified.claims)
        tenant, agent, actor = named_by(self._rules, values)
        return Caller(
            tenant=tenant,
            agent=agent,
            actor=actor,
            expires=verified.expires,
            source="service_account",
            token_id=verified.digest,
            jti=verified.token_id,
            subject_token=token,
            traits=Traits(values["namespace"]),
        )


def named_by(rules: Sequence[ServiceAccountRule], values: Mapping[str, str]) -> tuple[str, str, str]:
    """Tenant, agent and actor of an account, by the first rule that fits. Raises TokenFault where none does."""
    rule = next((rule for rule in rules if rule.fits(values["namespace"], values["name"])), None)
    if rule is None:
        raise TokenFault("No rule of this proxy maps the token's service account to a tenant and agent.")
    try:
        return rule.caller.fill(values)
    except Unmapped as fault:
        raise TokenFault(fault.args[0]) from None


class ServiceAccount(BearerIdentifier):
    """The `service_account` member of a chain: one cluster, its keys and the mapping."""

    def __init__(self, verifier: Verifier, rules: Sequence[ServiceAccountRule], memory: Memory | None = None) -> None:
        """Raises ConfigurationError without a rule: which tenant a pod speaks for is never guessed."""
        if not rules:
            raise misconfigured("service_account: at least one mapping from service account to tenant is needed")
        super().__init__([_ClusterIssuer(verifier, rules)], memory)


def _values(claims: Mapping[str, Any]) -> dict[str, str]:
    namespace, name = account_of(claims.get("sub"))
    values = {f"claim.{key}": value for key, value in claims.items() if isinstance(value, str)}
    bound = claims.get("kubernetes.io")
    for kind in ("pod", "node"):
        object_of = bound.get(kind) if isinstance(bound, dict) else None
        if isinstance(object_of, dict) and isinstance(object_of.get("name"), str):
            values[kind] = object_of["name"]
    return {**values, "namespace": namespace, "name": name}


def account_of(subject: object) -> tuple[str, str]:
    """Namespace and name from `sub`, which the API server's own authenticator compares with the private claims.

    Raises TokenFault for anything that is no service account's name.
    """
    parts = subject.removeprefix(_SUBJECT).split(":") if isinstance(subject, str) else []
    if not isinstance(subject, str) or not subject.startswith(_SUBJECT) or len(parts) != 2 or not all(parts):
        raise TokenFault("The token is not a service account's.")
    return parts[0], parts[1]
