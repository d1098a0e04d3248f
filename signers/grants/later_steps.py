"""What follows a token's issue where a login takes more than one request: providers declare it in their files.

A step asks a further endpoint with the token so far. It either gives the token that calls use (`fields`), or says
something of the account that a record keeps (`learns`: which host, which organisation).
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Any

from signers.grants.model import (
    Answer,
    Client,
    Dialect,
    Issued,
    LaterStep,
    Step,
    TokenRefused,
    TokenReply,
    TokenRequest,
)
from signers.token_reply import labels, read_reply


def later_steps(client: Client, issued: Issued, now: float, *, first: bool) -> Generator[Step, Answer, Issued]:
    """What the provider's steps make of a token. `first`: it is the token of a new consent, whose account is not known.

    A refresh token that was rotated must not be lost with a step that fails: then what was issued comes back
    `incomplete`. Without one, TokenRefused is raised. What only would have told of the account is done without.
    """
    for step in client.steps:
        if step.fields:
            try:
                issued = yield from _exchanged(client, step, issued, now)
            except TokenRefused as refusal:
                if issued.refresh_token is None:
                    raise
                return replace(issued, incomplete=f"later_step_{refusal.error}"[:64])
        elif first:
            issued = replace(issued, learned={**issued.learned, **(yield from _learned(step, issued))})
    return issued


def _exchanged(client: Client, step: LaterStep, issued: Issued, now: float) -> Generator[Step, Answer, Issued]:
    reply = yield _request(step, issued)
    assert isinstance(reply, TokenReply)
    later = read_reply(reply, Dialect(fields=step.fields, lifetime=client.dialect.lifetime), now)
    return replace(
        later,
        refresh_token=later.refresh_token or issued.refresh_token,
        scopes=issued.scopes if later.scopes is None else later.scopes,
        learned=issued.learned,
    )


def _learned(step: LaterStep, issued: Issued) -> Generator[Step, Answer, Mapping[str, str]]:
    try:
        reply = yield _request(step, issued)
    except TokenRefused:
        return {}
    assert isinstance(reply, TokenReply)
    return labels(_document(reply), step.learns) if reply.status == 200 else {}


def _request(step: LaterStep, issued: Issued) -> TokenRequest:
    headers = {
        "Accept": "application/json",
        "Authorization": f"Bearer {issued.access_token.reveal()}",
        "User-Agent": "sluicegate",
        **step.headers,
    }
    if step.method == "GET":
        return TokenRequest(step.url, headers, b"", method="GET")
    return TokenRequest(
        step.url, {**headers, "Content-Type": "application/json"}, json.dumps(dict(step.parameters)).encode()
    )


def _document(reply: TokenReply) -> Any:
    try:
        return json.loads(reply.body)
    except (ValueError, RecursionError):
        return None
