"""Records that hold a grant instead of a token: what they say, without I/O.

    oauth2              app, refresh_token, access_token, expires_at, issued_at, scopes, token_of
    client_credentials  app, scopes, audience, resource
    jwt_bearer          app, subject, scopes
    token_exchange      app, subject ("caller", or "file": the app's subject_token_file), scopes, audience, resource
    service_account     client_email, private_key or transit_key, private_key_id, scopes or target_audience, app
                        (optional); without a key the app's workload identity stands for it, client_email is optional
    github_app          app, installation_id, repositories, permissions
    aws                 with roles to assume: proxy.credentials.aws_record

Beside these the renewal keeps two fields of its own in a record: `refresh`, the lease, and `rejected`, why there will
be no more tokens until the record or its app changes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from proxy.credentials.aws_record import AwsRoles, parse_roles
from proxy.credentials.faults import RecordError
from proxy.credentials.field_reader import FieldReader
from proxy.credentials.lease import Lease, Rejection, parse_lease, parse_rejection
from signers.grants.assertion import ALGORITHMS, signing_key
from signers.grants.model import Issued, RemoteKey, SigningKey
from signers.secret import Secret
from signers.token_reply import moment

VOLATILE: Final = frozenset(
    ["access_token", "expires_at", "issued_at", "granted_scopes", "refresh", "rejected", "account"]
)
"""Fields that renewals write: they are no part of what makes a credential another one."""
_EMAIL: Final = re.compile(r"[A-Za-z0-9._%+-]{1,128}@[A-Za-z0-9.-]{1,128}")
NO_APP_NEEDED: Final = frozenset(["service_account", "aws"])


@dataclass(frozen=True, slots=True, repr=False)
class Token:
    """A token as it may be used: times in epoch seconds, None when not known. `digest` tells tokens apart in logs and
    comparisons. `fields` as in Issued."""

    access: Secret
    issued_at: float | None
    expires_at: float | None
    digest: str
    fields: Mapping[str, Secret] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, repr=False)
class GrantRecord:
    """What a record says of its grant. `digest` is that of the whole credential, without what renewals write."""

    kind: str
    digest: str
    app: str = ""
    scopes: tuple[str, ...] = ()
    audiences: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    subject: str = ""
    variant: str = ""
    refresh_token: Secret | None = None
    token: Token | None = None
    lease: Lease | None = None
    rejection: Rejection | None = None
    client_email: str = ""
    key: SigningKey | RemoteKey | None = None
    installation: str = ""
    repositories: tuple[str, ...] = ()
    permissions: Mapping[str, str] = field(default_factory=dict)
    target_audience: str = ""
    aws: AwsRoles | None = None

    @property
    def durable(self) -> bool:
        """Whether its tokens are kept in the record, since asking again without them is not possible."""
        return self.kind == "oauth2"

    @property
    def per_caller(self) -> bool:
        """Whether callers of one tenant get tokens of their own."""
        if self.aws is not None:
            return bool({"actor", "agent"} & set(self.aws.tags))
        return self.presents and self.subject in ("", "caller")

    @property
    def presents(self) -> bool:
        """Whether a token is exchanged for another: the caller's, or the workload's own."""
        return self.kind == "token_exchange" or (self.kind == "service_account" and self.key is None)


def parse_grant(name: str, kind: str, stored: Mapping[str, Any]) -> GrantRecord:
    """The grant of the record `name` (its path, for faults). Raises RecordError."""
    texts = FieldReader(name, stored)
    if kind == "oauth2" and stored.get("fields") is not None:
        raise RecordError(name, "fields", "cannot be used with kind oauth2, since renewals write to the record")
    app = texts.optional("app")
    if not app and kind not in NO_APP_NEEDED:
        raise RecordError(name, "app", f"is missing; kind {kind} needs the name of a record below apps/")
    if "/" in app or app in (".", ".."):
        raise RecordError(name, "app", "must be the name of a record below apps/, without the folder")
    return GrantRecord(
        kind=kind,
        digest=digest_of(stored),
        app=app,
        scopes=texts.listed("scopes"),
        audiences=texts.listed("audience"),
        resources=texts.listed("resource"),
        subject=_subject(texts, kind),
        variant=texts.optional("token_of"),
        refresh_token=texts.secret("refresh_token") if kind == "oauth2" else None,
        token=_token(texts, stored) if kind == "oauth2" else None,
        lease=parse_lease(stored.get("refresh")),
        rejection=parse_rejection(stored.get("rejected")),
        client_email=_account(texts, app) if kind == "service_account" else "",
        key=_key(texts, app) if kind == "service_account" else None,
        installation=texts.needed("installation_id") if kind == "github_app" else "",
        repositories=texts.listed("repositories"),
        permissions=texts.mapped("permissions"),
        target_audience=texts.optional("target_audience") if kind == "service_account" else "",
        aws=parse_roles(name, stored) if kind == "aws" else None,
    )


def digest_of(fields: Mapping[str, Any]) -> str:
    """A fingerprint of a whole credential, without what renewals write into it."""
    kept = {key: value for key, value in fields.items() if key not in VOLATILE}
    return hashlib.sha256(json.dumps(kept, sort_keys=True, default=str).encode()).hexdigest()[:32]


def token_digest(token: Secret) -> str:
    """What tells a token from others without showing it."""
    return hashlib.sha256(token.reveal().encode()).hexdigest()[:16]


def token_of(access: Secret, issued_at: float | None, expires_at: float | None) -> Token:
    return Token(access, issued_at, expires_at, token_digest(access))


def issued_token(issued: Issued) -> Token:
    return Token(
        issued.access_token, issued.issued_at, issued.expires_at, token_digest(issued.access_token), issued.fields
    )


def _token(texts: FieldReader, stored: Mapping[str, Any]) -> Token | None:
    access = texts.secret("access_token")
    return token_of(access, moment(stored.get("issued_at")), moment(stored.get("expires_at"))) if access else None


def _subject(texts: FieldReader, kind: str) -> str:
    if kind == "jwt_bearer":
        return texts.needed("subject")
    exchanges = kind == "token_exchange" or (kind == "service_account" and not _holds_key(texts))
    subject = texts.optional("subject") if exchanges else ""
    if subject not in ("", "caller", "file"):
        raise RecordError(texts.name, "subject", "must be caller or file")
    return subject


def _holds_key(texts: FieldReader) -> bool:
    return texts.secret("private_key") is not None or bool(texts.optional("transit_key"))


def _account(texts: FieldReader, app: str) -> str:
    """Who a service account is. A workload identity may do without one, where it is allowed to act by itself."""
    email = texts.optional("client_email")
    if not email and (not app or _holds_key(texts) or texts.optional("target_audience")):
        raise RecordError(texts.name, "client_email", "is missing")
    if email and not _EMAIL.fullmatch(email):
        raise RecordError(texts.name, "client_email", "is not the address of a service account")
    return email


def remote_key(
    texts: FieldReader, algorithm: str | None, key_id: str | None, header: Mapping[str, str] | None = None
) -> RemoteKey:
    """The key that the record's `transit_key` names. Raises RecordError."""
    if algorithm not in ALGORITHMS:
        raise RecordError(texts.name, "algorithm", f"is needed with transit_key: {', '.join(sorted(ALGORITHMS))}")
    return RemoteKey(texts.needed("transit_key"), algorithm, key_id, header or {})


def _key(texts: FieldReader, app: str) -> SigningKey | RemoteKey | None:
    """A service account's own key; None where the app's workload identity stands for it."""
    pem, key_id = texts.secret("private_key"), texts.optional("private_key_id") or texts.optional("key_id") or None
    if pem is None and texts.optional("transit_key"):
        return remote_key(texts, "RS256", key_id)
    if pem is None and app:
        return None
    if pem is None:
        fault = "is missing; kind service_account needs it, a transit_key, or an app with a workload identity"
        raise RecordError(texts.name, "private_key", fault)
    try:
        return signing_key(pem, "RS256", key_id)
    except ValueError as error:
        raise RecordError(texts.name, "private_key", str(error)) from None
