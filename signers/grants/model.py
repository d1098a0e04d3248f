"""What grants speak in: requests to a token endpoint, its replies, what was issued, and how providers differ."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from signers.secret import Secret

ClientAuthentication = Literal["basic", "post", "private_key_jwt", "client_assertion", "tls_client_auth", "none"]
Outcome = Literal["rejected", "throttled", "down", "unknown"]
"""Why there is no token.

rejected   for good: the endpoint knows the request and will never grant it
throttled  too many requests; nothing was granted
down       the endpoint failed, or refused for a reason that may pass
unknown    the request may have been granted, but its answer was lost
"""

DEFAULT_LIFETIME: Final = 3600.0
"""Seconds assumed where neither the reply nor the token says when the token expires."""


@dataclass(frozen=True, slots=True, repr=False)
class ClientCertificate:
    """What the client shows in TLS (RFC 8705), both PEM."""

    certificate: str
    private_key: Secret


@dataclass(frozen=True, slots=True, repr=False)
class TokenRequest:
    """One request to a token endpoint."""

    url: str
    headers: Mapping[str, str]
    body: bytes
    certificate: ClientCertificate | None = None
    method: Literal["GET", "POST"] = "POST"

    def __repr__(self) -> str:
        return f"TokenRequest({self.url!r}, •••)"


@dataclass(frozen=True, slots=True, repr=False)
class TokenReply:
    """Its answer. Header names are in lower case; `received` is the epoch time at which it came."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    received: float

    def __repr__(self) -> str:
        return f"TokenReply({self.status}, •••)"


@dataclass(frozen=True, slots=True)
class Issued:
    """A token. Times are epoch seconds; `expires_at` None means that it does not expire by itself.

    `refresh_token` is None when the reply held none: the one that was used stays valid then (RFC 6749 section 6).
    `scopes` is None when the reply named none: they are those that were asked for (section 5.1). `learned` is what the
    provider said of the account, values for a record's `vars`. `incomplete`: a later step of the login failed for this
    reason, and only the refresh token is of use. `fields` is what was issued where that is more than one token: fields
    of the record's own kind (AWS's keys).
    """

    access_token: Secret
    issued_at: float
    expires_at: float | None
    refresh_token: Secret | None = None
    scopes: tuple[str, ...] | None = None
    learned: Mapping[str, str] = field(default_factory=dict)
    incomplete: str = ""
    fields: Mapping[str, Secret] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private key, PEM, and the JOSE algorithm it signs with (RFC 7518; EdDSA: RFC 8037).

    `header` holds further members of the JOSE header, such as the thumbprints of the key's certificate.
    """

    private: Secret
    algorithm: str
    key_id: str | None = None
    header: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SignatureRequest:
    """Asks whoever runs a grant for a signature by a key that it does not hold (Vault transit)."""

    key: str
    algorithm: str
    signing_input: bytes


@dataclass(frozen=True, slots=True)
class WorkloadToken:
    """Asks whoever runs a grant for the token that the platform keeps in a file and replaces there from time to time
    (a projected service-account token, a JWT-SVID)."""

    path: str


@dataclass(frozen=True, slots=True)
class RemoteKey:
    """A key that never leaves Vault: its name in the transit engine, after the engine's mount and a slash if that is
    another than `transit`; the algorithm; `header` as in SigningKey."""

    name: str
    algorithm: str
    key_id: str | None = None
    header: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AssertionStyle:
    """How an assertion is made (RFC 7523 section 3).

    lifetime   seconds from `now` to `exp`, within the provider's limit
    backdate   seconds by which `iat` lies before `now`: a clock ahead of the provider's must not make it "issued in
               the future"
    audience   `aud`; None means the token endpoint
    issuer     template over {client_id}, {subject} and {fingerprint} (of the public key, as Snowflake writes it)
    claims     further claims, sent as they are
    scope_in   whether `scope` stands in the assertion or in the form
    is_token   the assertion itself is the access token: there is no endpoint to ask
    """

    lifetime: float = 300.0
    backdate: float = 30.0
    audience: str | None = None
    issuer: str = "{client_id}"
    claims: Mapping[str, str] = field(default_factory=dict)
    scope_in: Literal["form", "assertion"] = "form"
    is_token: bool = False


@dataclass(frozen=True, slots=True)
class LaterStep:
    """A request after the token's issue, with that token (signers.grants.later_steps). `url` is a template over the
    record's variables until a Client has it; `parameters` are the members of a POST's JSON body."""

    url: str
    method: Literal["GET", "POST"] = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    learns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a provider's token endpoint differs from RFC 6749. All defaults are the RFC's.

    fields      where the reply holds what we look for: our name → dotted paths, the first that is there counts
    variants    named sets of `fields` where one grant gives several tokens (Slack's bot and user)
    success     (field, value) that a success must have
    errors      the provider's error codes → those of RFC 6749 section 5.2
    parameters  further form parameters, by grant type ("*": all)
    grant_types names of grant types that the provider calls otherwise
    expires_in_unit  "s" or "ms"
    lifetime    seconds assumed without any word on expiry; None: such a token does not expire
    reuse_grace seconds during which the provider still takes a refresh token that it has rotated
    learns      variable of a record → where the reply tells it: the host or organisation of the account
    """

    authentication: ClientAuthentication = "basic"
    body: Literal["form", "json"] = "form"
    scope_separator: str = " "
    headers: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    variants: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    success: tuple[str, object] | None = None
    errors: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    grant_types: Mapping[str, str] = field(default_factory=dict)
    expires_in_unit: Literal["s", "ms"] = "s"
    lifetime: float | None = DEFAULT_LIFETIME
    reuse_grace: float = 0.0
    learns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    assertion: AssertionStyle = AssertionStyle()

    def paths(self, name: str, variant: str = "") -> tuple[str, ...]:
        """Where to look for one of our names, in order."""
        special = self.variants.get(variant, {})
        return special.get(name) or self.fields.get(name) or (name,)


@dataclass(frozen=True, slots=True)
class Client:
    """The application that asks for tokens (RFC 6749 section 2), and whom it asks.

    `authentication` None means the dialect's, or `client_assertion` where `assertion_file` names a file that holds one;
    `audience` is `aud` of a client assertion, None: the token endpoint; `steps` follow each issue.
    """

    token_endpoint: str
    client_id: str = ""
    client_secret: Secret | None = None
    key: SigningKey | RemoteKey | None = None
    certificate: ClientCertificate | None = None
    authentication: ClientAuthentication | None = None
    audience: str | None = None
    dialect: Dialect = Dialect()
    steps: tuple[LaterStep, ...] = ()
    assertion_file: str = ""


class TokenRefused(Exception):
    """There is no token. `error` is the endpoint's code, or a word of ours; `retry_after` is in seconds.

    `skew` is how many seconds the endpoint's clock is ahead of ours, None when it did not say. The text holds nothing
    that the endpoint wrote but its error code. `role` is the AWS role that was asked for.
    """

    def __init__(
        self,
        outcome: Outcome,
        error: str,
        *,
        retry_after: float | None = None,
        skew: float | None = None,
        role: str = "",
    ) -> None:
        self.outcome: Outcome = outcome
        self.error = error
        self.retry_after = retry_after
        self.skew = skew
        self.role = role
        super().__init__(f"{outcome}: {error}")


Step: TypeAlias = TokenRequest | SignatureRequest | WorkloadToken
Answer: TypeAlias = TokenReply | bytes
Grant: TypeAlias = Generator[Step, Answer, Issued]
"""A TokenRequest is answered with its TokenReply, a SignatureRequest with the signature, a WorkloadToken with it."""
