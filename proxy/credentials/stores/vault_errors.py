"""How a Vault can fail us, in words that hold nothing it said itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from proxy.errors import StoreError

# https://developer.hashicorp.com/vault/api-docs#http-status-codes, and sys/health for 472 and 473.
MEANINGS: Final[Mapping[int, str]] = {
    400: "the request was refused",
    403: "permission denied: the token is dead, or its policy does not allow this path",
    404: "nothing there",
    405: "not supported there",
    412: "this node has not caught up yet",
    429: "a rate limit was hit",
    472: "a disaster-recovery standby",
    473: "a performance standby",
    500: "internal error",
    502: "a bad answer from behind it",
    503: "sealed, or down for maintenance",
}


class VaultRefusal(StoreError):
    """Vault answered with an error status. `body` is its JSON answer, kept for its metadata and never shown."""

    def __init__(self, address: str, request: str, status: int, body: Mapping[str, Any]) -> None:
        self.status = status
        self.body = body
        meaning = "a redirect, which is never followed" if 300 <= status < 400 else MEANINGS.get(status, "unexpected")
        super().__init__(f"{address}: {request} was answered {status} ({meaning})")

    def says(self, words: str) -> bool:
        """Whether one of Vault's own error lines holds `words`."""
        errors = self.body.get("errors")
        return isinstance(errors, list) and any(words in error for error in errors if isinstance(error, str))


class VaultUnreachable(StoreError):
    """No answer that could be read. `sent`: the request may have reached Vault all the same."""

    def __init__(self, text: str, *, sent: bool = True) -> None:
        self.sent = sent
        super().__init__(text)
