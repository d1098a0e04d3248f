"""Response-wrapped values: a token that can be exchanged for what it stands for exactly once.

https://developer.hashicorp.com/vault/docs/concepts/response-wrapping. That it can be exchanged once is the point: when
somebody else was first, the exchange fails, and the failure says so instead of being tried again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from proxy.credentials.stores.vault_errors import VaultRefusal, VaultUnreachable
from proxy.errors import StoreError
from signers.secret import Secret

if TYPE_CHECKING:
    from proxy.credentials.stores.vault_transport import VaultTransport


def unwrap(transport: VaultTransport, wrapping: Secret, made_at: str = "") -> Mapping[str, Any]:
    """The `data` behind a wrapping token. Raises StoreError; the token is spent even when the caller fails later.

    made_at   where it must have been made, such as "auth/approle/role/agents/secret-id" ("" for anywhere). Checked
              before the exchange, so that a token somebody slipped in is not taken for the real one.
    """
    try:
        if made_at:
            _check_origin(transport, wrapping, made_at)
        answer = transport.send("POST", "/v1/sys/wrapping/unwrap", wrapping, None, {})
    except VaultRefusal as refusal:
        if refusal.status in (400, 403, 404):
            raise StoreError(
                "the wrapping token is spent, expired or no wrapping token. If nothing of yours has used it, somebody "
                "else has: revoke what it stood for, then deliver a new one"
            ) from None
        raise
    data = answer.get("data") if isinstance(answer, Mapping) else None
    if not isinstance(data, Mapping):
        raise VaultUnreachable("the unwrapped answer holds no data")
    # A record read from KV v2 with wrapping is wrapped whole, with its metadata.
    inner = data.get("data")
    return inner if isinstance(inner, Mapping) and "metadata" in data else data


def _check_origin(transport: VaultTransport, wrapping: Secret, made_at: str) -> None:
    body = {"token": wrapping.reveal()}
    answer = transport.send("POST", "/v1/sys/wrapping/lookup", None, body, {})
    found = (answer.get("data") or {}).get("creation_path") if isinstance(answer, Mapping) else None
    if found != made_at:
        raise StoreError(f"the wrapping token was not made at {made_at}; do not use what delivered it")
