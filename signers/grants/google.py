"""Google's workload identity federation, and tokens of an account that another identity may act as.

Sources: "Workload Identity Federation" (sts.googleapis.com, `token`) and the IAM Service Account Credentials API
(`generateAccessToken`, `generateIdToken`) at cloud.google.com/iam/docs.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from signers.grants.model import Answer, Client, Dialect, Grant, Step, TokenReply, TokenRequest
from signers.grants.token_exchange import TypedToken, token_exchange
from signers.secret import Secret
from signers.token_reply import read_reply

GOOGLE_STS: Final = "https://sts.googleapis.com/v1/token"
IAM_CREDENTIALS: Final = "https://iamcredentials.googleapis.com"
CLOUD_PLATFORM: Final = "https://www.googleapis.com/auth/cloud-platform"
"""The scope that a federated token needs to ask for an account's token; the account's own token is narrower."""
LIFETIME: Final = 3600
"""Seconds: the longest that Google gives without an organisation's permission."""
ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"
POOL: Final = "//iam.googleapis.com/"
"""What the audience begins with: the resource name of the pool's provider."""
_ACCOUNT_REPLY: Final = Dialect(
    fields={"access_token": ("accessToken",), "expires_at": ("expireTime",)},
    errors={"PERMISSION_DENIED": "unauthorized_client"},
)
_IDENTITY_REPLY: Final = Dialect(fields={"access_token": ("token",)}, errors=_ACCOUNT_REPLY.errors)


def federated(
    client: Client,
    subject: TypedToken,
    now: float,
    nonce: str,
    *,
    scopes: Sequence[str],
    account: str = "",
    target_audience: str = "",
    iam: str = "",
) -> Grant:
    """A token for a workload's own identity, or, where `account` is named, of that service account.

    `client.audience` names the pool's provider. `target_audience` asks for an ID token instead of an access token.
    `iam` is the address of the IAM credentials API, "" for the public one. Raises ValueError naming what lacks.
    """
    if not (client.audience or "").startswith(POOL):
        raise ValueError(f"workload identity federation needs the app's audience: {POOL}projects/…/providers/…")
    if not (scopes or target_audience):
        raise ValueError("a workload identity needs scopes")
    issued = yield from token_exchange(
        client,
        subject,
        now,
        nonce,
        audiences=[client.audience or ""],
        scopes=[CLOUD_PLATFORM] if account else scopes,
        requested_type=ACCESS_TOKEN,
    )
    if not account:
        return issued
    where = f"{(iam or IAM_CREDENTIALS).rstrip('/')}/v1/projects/-/serviceAccounts/{quote(account, safe='@')}"
    if target_audience:
        asked: dict[str, Any] = {"audience": target_audience, "includeEmail": True}
        reply = yield from _posted(f"{where}:generateIdToken", issued.access_token, asked)
        return read_reply(reply, _IDENTITY_REPLY, now)
    asked = {"scope": list(scopes), "lifetime": f"{LIFETIME}s"}
    reply = yield from _posted(f"{where}:generateAccessToken", issued.access_token, asked)
    return read_reply(reply, _ACCOUNT_REPLY, now)


def _posted(url: str, bearer: Secret, document: Mapping[str, Any]) -> Generator[Step, Answer, TokenReply]:
    headers = {
        "Accept": "application/json",
        "Authorization": f"Bearer {bearer.reveal()}",
        "Content-Type": "application/json",
    }
    reply = yield TokenRequest(url, headers, json.dumps(document).encode())
    assert isinstance(reply, TokenReply)
    return reply
