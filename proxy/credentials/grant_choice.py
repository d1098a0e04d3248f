"""From a record to the grant that issues its tokens. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from proxy.credentials.app_record import App, TokenFacts
from proxy.credentials.grant_record import GrantRecord
from signers.grants.client_credentials import client_credentials
from signers.grants.github_app import GITHUB_API, github_app
from signers.grants.jwt_bearer import jwt_bearer
from signers.grants.model import Client, Grant, RemoteKey
from signers.grants.refresh_token import refresh_token
from signers.grants.service_account import GOOGLE_TOKEN_ENDPOINT, service_account
from signers.grants.token_exchange import TypedToken, token_exchange


@dataclass(frozen=True, slots=True, repr=False)
class OnBehalf:
    """For whom a token is issued, where that is not the credential's own owner.

    `user` is the account that a service account acts for; `subject` and `actor` are tokens to be exchanged.
    """

    user: str | None = None
    subject: TypedToken | None = None
    actor: TypedToken | None = None


NOBODY = OnBehalf()
_DEFAULT_ENDPOINTS = {"service_account": GOOGLE_TOKEN_ENDPOINT, "github_app": GITHUB_API}


def fingerprint(grant: GrantRecord, app: App, behalf: OnBehalf = NOBODY) -> str:
    """What tells the tokens of one credential, application and person from all others.

    Tokens of the workload's own are no part of it: the platform replaces them all the time.
    """
    person = behalf.subject.token.reveal() if grant.per_caller and behalf.subject else ""
    parts = [grant.digest, app.digest, behalf.user or "", person]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def check_key(grant: GrantRecord, tenant: str) -> None:
    """A tenant's record may name a key in Vault, and must not be able to sign with another tenant's: the name has to
    be TENANT.NAME. Raises ValueError."""
    if isinstance(grant.key, RemoteKey) and grant.key.name.rpartition(".")[0] != tenant:
        raise ValueError(f"transit_key of a record of tenant {tenant} must be called {tenant}.NAME")


def client_of(grant: GrantRecord, app: App, facts: TokenFacts | None, variables: dict[str, str]) -> Client:
    """The client that asks. Raises ValueError when no endpoint is named."""
    client = app.client(facts, variables, _DEFAULT_ENDPOINTS.get(grant.kind, ""))
    if grant.key is None:
        return client
    return Client(client.token_endpoint, client.client_id, key=grant.key, audience=client.audience)


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
    if grant.kind == "service_account":
        return service_account(client, grant.client_email, now, nonce, scopes=scopes, subject=behalf.user)
    if grant.kind == "github_app":
        return github_app(
            client, grant.installation, now, repositories=grant.repositories, permissions=grant.permissions
        )
    if behalf.subject is None:
        raise ValueError("there is no token of the caller's to exchange")
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
