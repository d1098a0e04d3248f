"""Tokens and tenants that must not be served any more, before their tokens expire."""

from __future__ import annotations

import json
from typing import NamedTuple

from proxy.identity.names import is_name
from proxy.identity.source import Reloading, Source
from proxy.model import Caller


class Revoked(NamedTuple):
    """What one list holds."""

    tokens: frozenset[str] = frozenset()
    """`jti` values and SHA-256 digests (lower-case hex) of compact tokens or of client certificates."""
    tenants: frozenset[str] = frozenset()


def parse_revocations(raw: bytes) -> Revoked:
    """Reads `{"tokens": [...], "tenants": [...]}`, either of them optional.

    Raises ValueError for anything else: a list that is misread would let somebody go on who was meant to stop.
    """
    document = json.loads(raw.decode("utf-8"))
    if not isinstance(document, dict) or document.keys() - {"tokens", "tenants"}:
        raise ValueError("an object with `tokens` and `tenants` was expected, and nothing else")
    tokens, tenants = _strings(document, "tokens"), _strings(document, "tenants")
    if not all(map(is_name, tenants)):
        raise ValueError("`tenants` holds what is not a tenant's name")
    return Revoked(tokens, tenants)


def _strings(document: dict[str, object], name: str) -> frozenset[str]:
    values = document.get(name, [])
    if not isinstance(values, list) or not all(isinstance(value, str) and value for value in values):
        raise ValueError(f"`{name}` is not a list of strings")
    return frozenset(values)


class RevocationList(Reloading[Revoked]):
    """The list in force. `subscribe` tells those who hold tunnels open, so that they ask `revoked` again and cut.

    The application runs `start` once and `keep_fresh` every few seconds beside the proxy. While a URL has never
    answered nothing is revoked: tokens end by themselves within 24 h, and an unreachable list must not stop every
    agent.
    """

    def __init__(self, source: Source) -> None:
        super().__init__(source, parse_revocations, Revoked())

    def revoked(self, caller: Caller) -> bool:
        """True when the caller's token, by digest or `jti`, or its tenant is on the list."""
        tokens, tenants = self.value
        if not tokens and not tenants:
            return False
        # No token has an empty id, so a caller without one matches nothing.
        return caller.token_id in tokens or caller.jti in tokens or caller.tenant in tenants
