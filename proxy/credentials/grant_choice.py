"""From a record to the grant that issues its tokens. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from proxy.credentials.app_record import App, TokenFacts
from proxy.credentials.aws_record import AwsRoles
from proxy.credentials.grant_record import GrantRecord
from signers.aws_endpoints import endpoint
from signers.grants.assume_role import Role, Session, Sts, assume_roles, sts_of
from signers.grants.client_credentials import client_credentials
from signers.grants.github_app import GITHUB_API, github_app
from signers.grants.google import GOOGLE_STS, federated
from signers.grants.jwt_bearer import jwt_bearer
from signers.grants.model import Client, Grant, RemoteKey, WorkloadToken
from signers.grants.refresh_token import refresh_token
from signers.grants.service_account import GOOGLE_TOKEN_ENDPOINT, service_account
from signers.grants.token_exchange import TypedToken, token_exchange


@dataclass(frozen=True, slots=True, repr=False)
class OnBehalf:
    """For whom a token is issued, where that is not the credential's own owner.

    `user` is the account that a service account acts for; `subject` and `actor` are tokens to be exchanged; `session`
    is that of an AWS role.
    """

    user: str | None = None
    subject: TypedToken | None = None
    actor: TypedToken | None = None
    session: Session | None = None


NOBODY = OnBehalf()


def fingerprint(grant: GrantRecord, app: App, behalf: OnBehalf = NOBODY) -> str:
    """What tells the tokens of one credential, application and person from all others.

    Tokens of the workload's own are no part of it: the platform replaces them all the time.
    """
    person = behalf.subject.token.reveal() if grant.per_caller and behalf.subject else ""
    parts = [grant.digest, app.digest, behalf.user or "", person]
    if behalf.session is not None:
        parts += [behalf.session.name, *(f"{key}={value}" for key, value in sorted(behalf.session.tags.items()))]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def check_key(grant: GrantRecord, tenant: str) -> None:
    """A tenant's record may name a key in Vault, and must not be able to sign with another tenant's: the name has to
    be TENANT.NAME, in the engine at `transit`. Raises ValueError."""
    if isinstance(grant.key, RemoteKey) and ("/" in grant.key.name or grant.key.name.rpartition(".")[0] != tenant):
        raise ValueError(f"transit_key of a record of tenant {tenant} must be called {tenant}.NAME")


def client_of(grant: GrantRecord, app: App, facts: TokenFacts | None, variables: dict[str, str]) -> Client:
    """The client that asks. Raises ValueError when no endpoint is named."""
    # What the catalogue names for GitHub is for people's consents; installations are asked for at the API.
    elsewhere = grant.aws is not None or grant.kind == "github_app"
    own = elsewhere or (grant.kind == "service_account" and grant.presents)
    client = app.client(None if own else facts, variables, _default_endpoint(grant, app))
    if grant.key is None:
        return client
    return Client(client.token_endpoint, client.client_id, key=grant.key, audience=client.audience)


def _default_endpoint(grant: GrantRecord, app: App) -> str:
    """Where kinds that belong to one provider ask, when the app's record does not say."""
    if grant.aws is not None:
        return _sts(grant.aws, app).url
    if grant.kind == "service_account":
        return GOOGLE_STS if grant.key is None else GOOGLE_TOKEN_ENDPOINT
    return GITHUB_API if grant.kind == "github_app" else ""


def _roles(grant: AwsRoles, app: App) -> tuple[Role, ...]:
    roles = app.aws.roles + grant.roles
    if not roles:
        raise ValueError("neither the record nor its app names a role_arn")
    return roles


def _sts(grant: AwsRoles, app: App) -> Sts:
    """The STS endpoint. The region of the app's own endpoint is the app's business, not the tenant's."""
    own = endpoint(urlsplit(app.token_endpoint).hostname or "").region if app.token_endpoint else ""
    region = own or app.aws.region or grant.region
    return sts_of(_roles(grant, app)[0].arn, region, app.token_endpoint)


def _assumed(grant: AwsRoles, app: App, session: Session, now: float) -> Grant:
    """Keys of the record's role: from its own key, the app's, or the workload's identity."""
    keys = grant.keys or app.aws.keys
    if keys is None and not app.subject_token_file:
        raise ValueError(
            "a role is assumed with an access key of the record or its app, or the app's subject_token_file"
        )
    start = keys or WorkloadToken(app.subject_token_file)
    return assume_roles(_sts(grant, app), start, _roles(grant, app), session, now)


def grant_of(grant: GrantRecord, app: App, client: Client, now: float, nonce: str, behalf: OnBehalf = NOBODY) -> Grant:
    """The grant of a record. Raises ValueError naming what is missing, here or when it is run."""
    scopes = grant.scopes or app.scopes
    if grant.kind == "oauth2":
        if grant.refresh_token is None:
            raise ValueError("the record holds no refresh_token")
        return refresh_token(client, grant.refresh_token, now, nonce, variant=grant.variant)
    if grant.kind == "client_credentials":
        return client_credentials(
            client,
            now,
            nonce,
            scopes=scopes,
            audience=next(iter(grant.audiences), None),
            resource=next(iter(grant.resources), None),
            parameters=app.parameters,
        )
    if grant.kind == "jwt_bearer":
        return jwt_bearer(client, grant.subject, now, nonce, scopes=scopes, claims=app.parameters)
    if grant.aws is not None:
        assert behalf.session is not None
        return _assumed(grant.aws, app, behalf.session, now)
    if grant.kind == "service_account" and grant.key is not None:
        return service_account(
            client,
            grant.client_email,
            now,
            nonce,
            scopes=scopes,
            subject=behalf.user,
            target_audience=grant.target_audience,
        )
    if grant.kind == "github_app":
        return github_app(
            client, grant.installation, now, repositories=grant.repositories, permissions=grant.permissions
        )
    if behalf.subject is None:
        raise ValueError("there is no token of the caller's to exchange")
    if grant.kind == "service_account":
        return federated(
            replace(client, authentication=client.authentication or "none"),
            behalf.subject,
            now,
            nonce,
            scopes=scopes,
            account=grant.client_email,
            target_audience=grant.target_audience,
            iam=app.impersonation_endpoint,
        )
    return token_exchange(
        client,
        behalf.subject,
        now,
        nonce,
        actor=behalf.actor,
        audiences=grant.audiences,
        resources=grant.resources,
        scopes=scopes,
    )
