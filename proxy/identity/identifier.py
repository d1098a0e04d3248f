"""What every member of an identity chain is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from proxy.errors import Blame, ConfigurationError, Fault, GatewayError
from proxy.model import Caller, Presented

Answer = Caller | Awaitable[Caller | None] | None


class Identifier(Protocol):
    """One way to tell who is calling."""

    @property
    def issuers(self) -> frozenset[str]:
        """The `iss` values of tokens that this member reads; empty where it reads none."""

    def identify(self, presented: Presented, now: float) -> Answer:
        """The caller; None when nothing presented is this member's to judge.

        `now` is in epoch seconds. Answers at once when it can, with an awaitable when keys have to be fetched first.
        Raises GatewayError `identity_invalid` (from the awaitable too) when what was presented is this member's and
        bad; the chain gives the refusal its status and challenge.
        """

    def subscribe(self, forgotten: Callable[[], None]) -> None:
        """`forgotten` is called when callers named so far have to be asked about again, because keys changed."""


def refused(detail: str, *, blame: Blame | None = None) -> GatewayError:
    """The refusal of a token or certificate. `detail` never quotes what was presented: it may be a secret."""
    return GatewayError("identity_invalid", detail, blame=blame)


def misconfigured(*messages: str) -> ConfigurationError:
    """The `identity` section of the configuration cannot work; one message for each fault."""
    return ConfigurationError([Fault("identity", 0, message) for message in messages])
