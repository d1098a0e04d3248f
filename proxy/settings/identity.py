"""`identity:` who a call belongs to, as a chain of identifiers; the first that claims the call decides."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from proxy.settings.base import FilePath, Name, NameOrStar, OneOrMore, Section, as_written

# RFC 8725 section 3.1: the operator pins the algorithms; HMAC ones would turn a public key into a shared secret.
Algorithm = Literal["ES256", "ES384", "ES512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "EdDSA"]


def _https(value: str) -> str:
    if not value.startswith("https://"):
        raise ValueError("must start with https://")
    return value


Label = Annotated[str, Field(pattern=r"^[!-~]{1,253}$")]
HttpsUrl = Annotated[str, AfterValidator(_https)]


class StaticIdentity(Section):
    """Every call on the listener belongs to one tenant and agent."""

    kind: Literal["static"]
    tenant: Name = Field(description="Tenant of every call.")
    agent: Name = Field(description="Agent of every call.")
    actor: Name | Literal[""] = Field("", description="Actor (the person the agent works for), if there is one.")
    namespace: Name | None = Field(None, description="Namespace that policies may name as a subject.")
    labels: dict[Label, Label] | None = Field(
        None, description="Labels that policies may name as subjects.", max_length=64
    )


class KeySource(Section):
    """Where an issuer's public keys are found: exactly one of a file and a URL."""

    jwks_file: FilePath | None = Field(None, description="JSON Web Key Set (RFC 7517) on disk.")
    jwks_url: HttpsUrl | None = Field(None, description="The same over https; fetched again when a key id is unknown.")

    @model_validator(mode="after")
    def _exactly_one(self) -> KeySource:
        if (self.jwks_file is None) == (self.jwks_url is None):
            raise ValueError("needs exactly one of jwks_file and jwks_url")
        return self


class Claims(Section):
    """Names of the claims that name the caller."""

    tenant: str = Field("tenant", description="Claim of the tenant.", min_length=1)
    agent: str = Field("agent", description="Claim of the agent.", min_length=1)
    actor: str = Field("actor", description="Claim of the actor.", min_length=1)
    namespace: str = Field("namespace", description="Claim of the namespace, if there is one.", min_length=1)
    labels: str = Field("labels", description="Claim of the labels, an object of texts, if there is one.", min_length=1)


class Issuer(KeySource):
    """One party whose session tokens are accepted."""

    issuer: str = Field(description="The `iss` claim, compared exactly.", min_length=1)
    audience: OneOrMore = Field(description="Accepted `aud` values: one or a list.", min_length=1)
    algorithms: tuple[Algorithm, ...] = Field(description="Accepted signature algorithms.", min_length=1)
    tenants: tuple[NameOrStar, ...] = Field(
        description="Tenants this issuer may speak for; `*` means all.", min_length=1
    )
    claims: Claims = Field(as_written({}), description="In which claims the caller is named.")


class SessionTokenIdentity(Section):
    """Signed session tokens (JWT) whose claims name tenant, agent and actor."""

    kind: Literal["session_token"]
    leeway: int = Field(60, ge=0, le=300, description="Seconds of clock difference that are forgiven.")
    issuers: tuple[Issuer, ...] = Field(description="Whose tokens are accepted.", min_length=1)


class CallerNames(Section):
    """Whom a workload stands for: text with placeholders that its own name fills."""

    tenant: str = Field(description="Tenant.", min_length=1)
    agent: str = Field(description="Agent.", min_length=1)
    actor: str = Field("", description="Actor, if there is one.")


class ServiceAccountRule(CallerNames):
    """Which accounts, and whom they stand for: text with `{namespace}`, `{name}`, `{pod}` or `{claim.NAME}`."""

    namespace: str = Field("*", description="Namespace of the account; `*` means any.", min_length=1)
    name: str = Field("*", description="Name of the account; `*` means any.", min_length=1)


class ServiceAccountIdentity(KeySource):
    """Kubernetes service-account tokens, checked offline against the cluster's key set."""

    kind: Literal["service_account"]
    issuer: str = Field(description="The cluster's issuer.", min_length=1)
    audience: OneOrMore = Field(description="Accepted `aud` values: one or a list.", min_length=1)
    algorithms: tuple[Algorithm, ...] = Field(("RS256", "ES256"), description="Accepted signature algorithms.")
    leeway: int = Field(60, ge=0, le=300, description="Seconds of clock difference that are forgiven.")
    rules: tuple[ServiceAccountRule, ...] = Field(description="The first that fits names the caller.", min_length=1)


class TokenReviewIdentity(Section):
    """Kubernetes service-account tokens, each checked by asking the cluster (TokenReview)."""

    kind: Literal["token_review"]
    issuer: str = Field(description="The cluster's issuer: tokens of others are not asked about.", min_length=1)
    audience: OneOrMore = Field(description="Accepted `aud` values: one or a list.", min_length=1)
    address: HttpsUrl = Field("https://kubernetes.default.svc", description="The cluster's API.")
    token_file: FilePath = Field(
        as_written("/var/run/secrets/kubernetes.io/serviceaccount/token"),
        description="The proxy's own token, allowed to create tokenreviews; read for each question.",
    )
    ca_file: FilePath = Field(
        as_written("/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"), description="Roots of the API, PEM."
    )
    ttl: float = Field(10, gt=0, le=60, description="Seconds for which an answer is used again.")
    rules: tuple[ServiceAccountRule, ...] = Field(description="The first that fits names the caller.", min_length=1)


class CertificateRule(CallerNames):
    """Which certificates, and whom they stand for: text with the captures of the pattern."""

    spiffe: str | None = Field(None, description="Pattern of the URI name: `spiffe://domain/{tenant}/{agent}`.")
    dns: str | None = Field(None, description="Pattern of the DNS name: `{agent}.{tenant}.agents.example`.")

    @model_validator(mode="after")
    def _exactly_one(self) -> CertificateRule:
        if (self.spiffe is None) == (self.dns is None):
            raise ValueError("needs exactly one of spiffe and dns")
        return self


class ClientCertificateIdentity(Section):
    """Client certificates, trusted through the listener's `tls.client_ca`."""

    kind: Literal["client_certificate"]
    rules: tuple[CertificateRule, ...] = Field(description="Which certificate stands for whom.", min_length=1)


Member = Annotated[
    StaticIdentity | SessionTokenIdentity | ServiceAccountIdentity | TokenReviewIdentity | ClientCertificateIdentity,
    Field(discriminator="kind"),
]


class Identity(Section):
    """A chain, or a mapping `{chain: […], per_call: …}`; a bare list means the chain."""

    chain: tuple[Member, ...] = Field(description="Identifiers in the order in which they are asked.", min_length=1)
    per_call: Literal["required", "optional"] = Field(
        "optional", description="`required` refuses a call without a `Sluicegate-Session` of its own."
    )

    revocations_file: FilePath | None = Field(None, description="List of revoked tokens and tenants, on disk.")
    revocations_url: HttpsUrl | None = Field(None, description="The same over https.")

    @model_validator(mode="after")
    def _one_list(self) -> Identity:
        if self.revocations_file is not None and self.revocations_url is not None:
            raise ValueError("takes one of revocations_file and revocations_url")
        return self

    @model_validator(mode="after")
    def _static_stands_alone(self) -> Identity:
        if len(self.chain) > 1 and any(member.kind == "static" for member in self.chain):
            raise ValueError("a static identity claims every call, so it must be the only member of its chain")
        if self.per_call == "required" and self.chain[0].kind == "static":
            raise ValueError("per_call: required needs an identifier that reads tokens, not static")
        return self


def _bare_chain(value: object) -> object:
    return {"chain": value} if isinstance(value, list | tuple) else value


IdentityChain = Annotated[Identity, BeforeValidator(_bare_chain)]
