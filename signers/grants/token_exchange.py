"""One token for another (RFC 8693)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from signers.grants.exchange import exchange, scope_text
from signers.grants.model import Client, Grant
from signers.secret import Secret

TOKEN_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
JWT_TYPE: Final = "urn:ietf:params:oauth:token-type:jwt"


@dataclass(frozen=True, slots=True)
class TypedToken:
    """A token and its type URI (RFC 8693 section 3)."""

    token: Secret
    type: str = JWT_TYPE


def token_exchange(
    client: Client,
    subject: TypedToken,
    now: float,
    nonce: str,
    *,
    actor: TypedToken | None = None,
    audiences: Sequence[str] = (),
    resources: Sequence[str] = (),
    scopes: Sequence[str] = (),
    requested_type: str | None = None,
) -> Grant:
    """A token for the subject, to be used by the actor where one is named. `audiences` and `resources` may repeat."""
    form = {
        "subject_token": subject.token.reveal(),
        "subject_token_type": subject.type,
        "actor_token": actor.token.reveal() if actor else None,
        "actor_token_type": actor.type if actor else None,
        "scope": scope_text(client, scopes),
        "requested_token_type": requested_type,
    }
    repeated = [("resource", each) for each in resources] + [("audience", each) for each in audiences]
    return exchange(client, TOKEN_EXCHANGE, form, now, nonce, repeated=repeated)
