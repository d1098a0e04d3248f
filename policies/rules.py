"""Rules as the decision uses them: patterns parsed, operations resolved, defaults filled in."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from policies.conditions import Condition
from policies.document import DEFAULT_TUNNEL_BYTES, AllowRule, Credential, DenyRule, EgressPolicy, Subject, split_tunnel
from policies.expressions import expression
from policies.facts import ProviderFacts
from policies.matchers import HostPattern, PathPattern, glob_matches, host_pattern, network, path_pattern
from policies.placeholders import Stand, stands
from policies.terms import NO_TERMS, Terms, limits
from policies.tls_terms import TlsTerms, tls_terms
from policies.traits import NO_TRAITS, Labels, Traits

Endpoint = tuple[str, str, int]
"""(scheme, host, port), as canonical as a call's destination."""
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_LOCAL_PART: Final = re.compile(r"[a-z0-9](?:[a-z0-9._+-]{0,62}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Impersonation:
    """Whom a service account may act for: accounts of `domain` whose local part matches one of the globs `allow`."""

    domain: str
    allow: tuple[str, ...]

    def user(self, actor: str) -> str:
        """The account of an actor, who is named with or without the domain. Raises ValueError saying why not."""
        local, at, domain = actor.lower().partition("@")
        if not _LOCAL_PART.fullmatch(local):
            raise ValueError("the call names no actor that could be an account")
        if at and domain != self.domain:
            raise ValueError(f"the actor is not of {self.domain}")
        if not any(glob_matches(pattern, local) for pattern in self.allow):
            raise ValueError("the rule's impersonate.allow does not name the actor")
        return f"{local}@{self.domain}"


@dataclass(frozen=True, slots=True)
class CredentialUse:
    """Which credential a call gets: record `name`, of the tenant or of the actor.

    `placement` is (kind, name, format), kind one of header, query, cookie; or the stands of placeholders; None leaves
    it to the provider.
    `impersonate` is set where a service account acts for the actor.
    """

    name: str
    per: Literal["tenant", "actor"] = "tenant"
    placement: tuple[str, str, str] | tuple[Stand, ...] | None = None
    impersonate: Impersonation | None = None
    region: str = ""
    service: str = ""
    """What an aws credential signs for, where the host's name does not tell."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What an allow grants besides passage."""

    credential: CredentialUse | None = None
    networks: tuple[Network, ...] = ()
    presigned: bool = False
    token_endpoint: bool = False
    mask: bool = True
    errors: str = "problem"
    plaintext: bool = False
    max_bytes: int | None = None
    tls: TlsTerms | None = None
    terms: Terms | None = None

    @property
    def carries(self) -> tuple[CredentialUse | None, TlsTerms | None]:
        """With what, and to whom: two rules that differ in this cannot both hold for one call."""
        return self.credential, self.tls


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """One rule of a document. None for a field means that the rule does not look at it."""

    document: str
    name: str
    position: tuple[str, int]
    """Where it stands: ("allow" or "deny", index)."""
    soft: bool
    """A deny that only warns: its document says `mode: warn` and is not the floor's."""
    provider: str | None
    host: HostPattern | None
    provider_hosts: tuple[HostPattern, ...]
    scheme: str | None
    port: int | None
    methods: frozenset[str] | None
    access: Literal["read", "write"] | None
    operations: frozenset[str] | None
    paths: tuple[PathPattern, ...]
    tunnel: bool
    reason: str
    effect: Effect
    condition: Condition | None = None
    """What it asks of a call besides; see policies/narrowing.py."""

    @property
    def denies(self) -> bool:
        return self.position[0] == "deny"

    @property
    def conditional(self) -> bool:
        """Whether something inside the request, not only where it goes, decides if the rule matches."""
        keys = self.methods or self.access or self.operations is not None or self.paths
        return bool(keys) or self.condition is not None

    def names(self, host: str) -> bool:
        """Whether the rule is about this host, on whatever port."""
        if self.host is not None:
            return self.host.matches(host)
        return self.provider is None or any(pattern.matches(host) for pattern in self.provider_hosts)

    def reaches(self, endpoint: Endpoint) -> bool:
        """Whether the rule is about this scheme, host and port, leaving the provider aside."""
        scheme, host, port = endpoint
        return self.scheme in (None, scheme) and self.port in (None, port) and self.names(host)

    def covers(self, endpoint: Endpoint, provider: str | None) -> bool:
        """Whether the rule is about calls to this endpoint that the catalogue files under `provider`."""
        if self.provider is None:
            return self.reaches(endpoint)
        if self.host is not None:
            return provider in (None, self.provider) and self.reaches(endpoint)
        if not self.denies:
            return provider == self.provider and self.reaches(endpoint)
        # A deny holds for every call in the provider's dialect, and for calls at its hosts that the catalogue
        # cannot file at all.
        return provider == self.provider or (provider is None and self.reaches(endpoint))

    def host_rank(self, host: str) -> tuple[int, int]:
        """How specifically the rule names `host` (see HostPattern.rank)."""
        if self.host is not None:
            return self.host.rank
        return max((pattern.rank for pattern in self.provider_hosts if pattern.matches(host)), default=(0, 0))

    def covers_method(self, method: str, write: bool) -> bool:
        if self.methods is not None and method not in self.methods:
            return False
        return self.access is None or (self.access == "write") == write


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """One document, compiled."""

    name: str
    file: str
    floor: bool
    subjects: tuple[Subject, ...]
    allows: tuple[Rule, ...]
    denies: tuple[Rule, ...]

    def concerns(self, tenant: str, agent: str, actor: str, traits: Traits = NO_TRAITS) -> bool:
        """Whether one of the subjects is this caller."""
        return any(
            (subject.tenant is None or glob_matches(subject.tenant, tenant))
            and (subject.agent is None or glob_matches(subject.agent, agent))
            and (subject.actor is None or glob_matches(subject.actor, actor))
            and (subject.namespace is None or glob_matches(subject.namespace, traits.namespace))
            and (subject.labels is None or _labelled(subject.labels, traits.labels))
            for subject in self.subjects
        )


def _labelled(wanted: Mapping[str, str], labels: Labels) -> bool:
    found = dict(labels)
    return all(name in found and glob_matches(glob, found[name]) for name, glob in wanted.items())


def compile_document(
    policy: EgressPolicy,
    file: str,
    *,
    floor: bool,
    providers: Mapping[str, ProviderFacts],
    authorities: Mapping[int, str] | None = None,
) -> Document:
    """A checked document with its rules compiled. `policy` must have passed `policies.checks`; `authorities` are the
    PEM texts that the `tls.ca` of its allows stand for, by index."""
    name, soft = policy.metadata.name, policy.mode == "warn" and not floor
    pem = authorities or {}
    allows = [
        _allow(rule, name, ("allow", index), providers, pem.get(index, "")) for index, rule in enumerate(policy.allow)
    ]
    denies = [_deny(rule, name, ("deny", index), soft, providers) for index, rule in enumerate(policy.deny)]
    return Document(name, file, floor, policy.subjects, tuple(allows), tuple(denies))


def _allow(
    rule: AllowRule, document: str, position: tuple[str, int], providers: Mapping[str, ProviderFacts], authorities: str
) -> Rule:
    plaintext = bool(rule.plaintext)
    host, port = _target(rule)
    effect = Effect(
        credential=credential_use(rule),
        networks=tuple(network(text) for text in rule.networks),
        presigned=rule.presigned == "allow",
        token_endpoint=rule.token_endpoint == "allow",
        mask=rule.mask,
        errors=rule.errors,
        plaintext=plaintext,
        max_bytes=None if rule.tunnel is None else rule.max_bytes or DEFAULT_TUNNEL_BYTES,
        tls=tls_terms(rule.tls, authorities),
        terms=_terms(rule, document),
    )
    facts = providers.get(rule.provider or "")
    return Rule(
        document, rule.name, position, False, rule.provider, host_pattern(host) if host else None,
        facts.patterns if facts else (), "http" if plaintext else "https", port or (80 if plaintext else 443),
        _methods(rule.methods), rule.access, _operations(rule.operations, facts), _paths(rule.paths),
        rule.tunnel is not None, rule.reason, effect, _condition(rule),
    )  # fmt: skip


def _deny(
    rule: DenyRule, document: str, position: tuple[str, int], soft: bool, providers: Mapping[str, ProviderFacts]
) -> Rule:
    """A deny without a port holds on every port, and without `plaintext` on both schemes: less would fail open."""
    scheme = None if rule.plaintext is None else "http" if rule.plaintext else "https"
    host, port = _target(rule)
    facts = providers.get(rule.provider or "")
    return Rule(
        document, rule.name, position, soft, rule.provider, host_pattern(host) if host else None,
        facts.patterns if facts else (), scheme, port, _methods(rule.methods), rule.access,
        _operations(rule.operations, facts), _paths(rule.paths), rule.tunnel is not None, rule.reason, _NO_EFFECT,
        _condition(rule),
    )  # fmt: skip


_NO_EFFECT = Effect()


def _condition(rule: AllowRule | DenyRule) -> Condition | None:
    max_body = rule.max_body if isinstance(rule, AllowRule) else None
    if rule.query is None and rule.content_types is None and max_body is None and rule.when is None:
        return None
    return Condition(
        tuple(sorted((rule.query or {}).items())),
        rule.content_types or (),
        max_body,
        expression(rule.when, params_of(rule)) if rule.when is not None else None,
    )


def params_of(rule: AllowRule | DenyRule) -> frozenset[str]:
    """The named segments that every path of the rule has."""
    named = [{name for name, _ in path_pattern(path).names} for path in rule.paths or ()]
    return frozenset(set.intersection(*named)) if named else frozenset()


def _terms(rule: AllowRule, document: str) -> Terms | None:
    found = Terms(
        limits(rule.limits, f"{document}/{rule.name}"),
        rule.headers,
        rule.agent_credentials,
        rule.max_response,
        rule.set_cookie == "drop",
        rule.compressed == "identity",
    )
    return None if found == NO_TERMS else found


def credential_use(rule: AllowRule) -> CredentialUse | None:
    """The credential of an allow: as written; else the provider's name, of the tenant; else none."""
    if isinstance(rule.credential, Credential):
        return CredentialUse(
            rule.credential.name,
            rule.credential.per,
            _placement(rule.credential),
            _impersonation(rule.credential),
            rule.credential.region,
            rule.credential.service,
        )
    if rule.credential is None and rule.provider is not None:
        return CredentialUse(rule.provider)
    return None


def _impersonation(credential: Credential) -> Impersonation | None:
    wanted = credential.impersonate
    return Impersonation(wanted.domain, tuple(glob.lower() for glob in wanted.allow)) if wanted else None


def _placement(credential: Credential) -> tuple[str, str, str] | tuple[Stand, ...] | None:
    if credential.placeholders is not None:
        return stands(credential.placeholders, credential.name)
    for kind in ("header", "query", "cookie"):
        if name := getattr(credential, kind):
            return kind, name, credential.format or "{value}"
    return None


def _target(rule: AllowRule | DenyRule) -> tuple[str | None, int | None]:
    return (rule.host, rule.port) if rule.tunnel is None else split_tunnel(rule.tunnel)


def _methods(methods: tuple[str, ...] | None) -> frozenset[str] | None:
    return None if methods is None or "*" in methods else frozenset(methods)


def _operations(globs: tuple[str, ...] | None, facts: ProviderFacts | None) -> frozenset[str] | None:
    if globs is None or facts is None:
        return None
    return frozenset(matching_operations(globs, facts))


def matching_operations(globs: Iterable[str], facts: ProviderFacts) -> Iterable[str]:
    """The provider's operations that one of the globs names."""
    for glob in globs:
        if "*" not in glob:
            yield glob
        else:
            yield from (operation for operation in facts.operations if glob_matches(glob, operation))


def _paths(paths: tuple[str, ...] | None) -> tuple[PathPattern, ...]:
    return tuple(path_pattern(path) for path in paths or ())
