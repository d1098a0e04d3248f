"""`apps/{app}`: what belongs to an application and not to a tenant. Written by the operator, referenced by records.

provider          catalogue entry whose `token:` block says how its token endpoint is spoken to
token_endpoint    the endpoint, where the catalogue does not name it, or another than the catalogue's
client_id, client_secret | private_key (PEM), algorithm, key_id | certificate and private_key
transit_key       in place of private_key: NAME or MOUNT/NAME of a key in Vault's transit engine; needs `algorithm`
certificate       shown in TLS (tls_client_auth), or named by its thumbprints in assertions (Microsoft Entra)
authentication    basic, post, private_key_jwt, tls_client_auth, none; default: the provider's
audience          `aud` of assertions; default: the endpoint
scopes            asked for by `sluicegate connect` and where a record names none
vars              fill the endpoint's template (`{tenant}`), before those of the tenant's record
networks          private networks in which the endpoint may be
parameters        further form parameters
subject_token_file, subject_token_type, actor_token_file, actor_token_type
                  tokens of this workload's own (projected service-account token, JWT-SVID) for token exchange
client_assertion_file
                  a token of this workload's own that proves the client instead of a secret (Entra's federation)
impersonation_endpoint
                  Google's IAM credentials API, where it is not the public one
access_key_id, secret_access_key, session_token, role_arn, external_id, roles, region
                  of AWS: the platform's own key and roles, before those of a tenant's record (aws_record)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any, Final, Literal, Protocol, cast, get_args
from urllib.parse import urlsplit

from proxy.credentials.aws_record import AwsRoles, parse_roles
from proxy.credentials.faults import RecordError
from proxy.credentials.field_reader import FieldReader
from proxy.credentials.grant_record import digest_of, remote_key
from proxy.credentials.paths import RESERVED
from signers.grants.assertion import signing_key, thumbprints
from signers.grants.model import (
    Client,
    ClientAuthentication,
    ClientCertificate,
    Dialect,
    LaterStep,
    RemoteKey,
    SigningKey,
)
from signers.grants.token_exchange import JWT_TYPE
from signers.secret import Secret

Networks = tuple[IPv4Network | IPv6Network, ...]
APPS: Final = RESERVED
"""The folder of these records below the store's mount."""
Authentication = Literal["basic", "post", "private_key_jwt", "client_assertion", "tls_client_auth", "none"]


class TokenFacts(Protocol):
    """What the catalogue says of a provider's token endpoint."""

    @property
    def dialect(self) -> Dialect: ...
    def endpoint(self, variables: Mapping[str, str], /) -> str:
        """The token endpoint's URL. Raises ValueError naming a variable that is missing or no DNS label."""

    def steps(self, variables: Mapping[str, str], /) -> tuple[LaterStep, ...]:
        """What follows each issue, with its URLs. Raises ValueError likewise."""


@dataclass(frozen=True, slots=True, repr=False)
class App:
    """One application. `digest` is the fingerprint of all that its record holds."""

    name: str
    digest: str
    provider: str = ""
    token_endpoint: str = ""
    client_id: str = ""
    client_secret: Secret | None = None
    key: SigningKey | RemoteKey | None = None
    certificate: ClientCertificate | None = None
    authentication: ClientAuthentication | None = None
    audience: str | None = None
    scopes: tuple[str, ...] = ()
    vars: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    networks: Networks = ()
    authorization_endpoint: str = ""
    authorization_parameters: Mapping[str, str] = field(default_factory=dict)
    device_endpoint: str = ""
    identity_endpoint: str = ""
    subject_token_file: str = ""
    subject_token_type: str = JWT_TYPE
    actor_token_file: str = ""
    actor_token_type: str = JWT_TYPE
    client_assertion_file: str = ""
    impersonation_endpoint: str = ""
    aws: AwsRoles = field(default_factory=AwsRoles)

    def client(self, facts: TokenFacts | None, variables: Mapping[str, str], default_endpoint: str = "") -> Client:
        """The client that grants speak for: the app's own endpoint before the catalogue's.

        Raises ValueError when neither names one.
        """
        endpoint = self.token_endpoint
        if not endpoint and facts is not None:
            endpoint = facts.endpoint({**variables, **self.vars})
        if not (endpoint or default_endpoint):
            raise ValueError(f"{APPS}/{self.name} names neither a token_endpoint nor a provider that has one")
        return Client(
            endpoint or default_endpoint,
            self.client_id,
            self.client_secret,
            self.key,
            self.certificate,
            self.authentication,
            self.audience,
            facts.dialect if facts is not None else Dialect(),
            facts.steps({**variables, **self.vars}) if facts is not None else (),
            self.client_assertion_file,
        )


NO_APP: Final = App("", "")
"""For kinds whose record holds all that is needed."""


def app_path(name: str) -> str:
    return f"{APPS}/{name}"


def parse_app(path: str, stored: Mapping[str, Any]) -> App:
    """The application at `path` ("apps/NAME"). Raises RecordError."""
    texts = FieldReader(path, stored)
    kind = stored.get("kind")
    if kind not in (None, "app"):
        raise RecordError(path, "kind", "must be app, or left out: records below apps/ are applications")
    key, certificate = _keys(texts)
    return App(
        name=path.rpartition("/")[2],
        digest=digest_of(stored),
        provider=texts.optional("provider"),
        token_endpoint=_endpoint(texts, "token_endpoint"),
        client_id=texts.optional("client_id"),
        client_secret=texts.secret("client_secret"),
        key=key,
        certificate=certificate,
        authentication=_authentication(texts),
        audience=texts.optional("audience") or None,
        scopes=texts.listed("scopes"),
        vars=texts.mapped("vars"),
        parameters=texts.mapped("parameters"),
        networks=_networks(texts),
        authorization_endpoint=_endpoint(texts, "authorization_endpoint"),
        authorization_parameters=texts.mapped("authorization_parameters"),
        device_endpoint=_endpoint(texts, "device_endpoint"),
        identity_endpoint=_endpoint(texts, "identity_endpoint"),
        subject_token_file=texts.optional("subject_token_file"),
        subject_token_type=texts.optional("subject_token_type") or JWT_TYPE,
        actor_token_file=texts.optional("actor_token_file"),
        actor_token_type=texts.optional("actor_token_type") or JWT_TYPE,
        client_assertion_file=texts.optional("client_assertion_file"),
        impersonation_endpoint=_endpoint(texts, "impersonation_endpoint"),
        aws=parse_roles(path, stored),
    )


def _keys(texts: FieldReader) -> tuple[SigningKey | RemoteKey | None, ClientCertificate | None]:
    """The key that signs assertions, and the certificate that is shown in TLS."""
    pem, chain = texts.secret("private_key"), texts.secret("certificate")
    algorithm, key_id = texts.optional("algorithm") or None, texts.optional("key_id") or None
    header = _thumbprints(texts, chain) if chain is not None else {}
    if texts.optional("transit_key"):
        return remote_key(texts, algorithm, key_id, header), None
    if pem is None:
        return None, None
    shown = ClientCertificate(chain.reveal(), pem) if chain is not None else None
    if shown is not None and texts.optional("authentication") == "tls_client_auth":
        return None, shown
    try:
        return replace(signing_key(pem, algorithm, key_id), header=header), shown
    except ValueError as error:
        raise RecordError(texts.name, "private_key", str(error)) from None


def _thumbprints(texts: FieldReader, chain: Secret) -> Mapping[str, str]:
    try:
        return thumbprints(chain.reveal())
    except ValueError as error:
        raise RecordError(texts.name, "certificate", str(error)) from None


def _authentication(texts: FieldReader) -> ClientAuthentication | None:
    text = texts.optional("authentication")
    if text and text not in get_args(Authentication):
        raise RecordError(texts.name, "authentication", f"must be one of {', '.join(get_args(Authentication))}")
    return cast(ClientAuthentication, text) if text else None


def _endpoint(texts: FieldReader, field: str) -> str:
    """An https URL, or http to this machine itself: nobody listens in between there (as RFC 8252 section 8.3)."""
    url = texts.optional(field)
    if not url:
        return ""
    parts = urlsplit(url)
    plain = parts.scheme == "http" and _is_loopback(parts.hostname or "")
    if not parts.hostname or parts.username or parts.fragment or not (parts.scheme == "https" or plain):
        raise RecordError(texts.name, field, "must be an https URL without user or fragment")
    return url


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _networks(texts: FieldReader) -> Networks:
    try:
        return tuple(ip_network(each) for each in texts.listed("networks"))
    except ValueError:
        raise RecordError(texts.name, "networks", "must hold networks such as 10.2.0.0/16") from None
