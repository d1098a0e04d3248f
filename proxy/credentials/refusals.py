"""What an agent and its operator are told when there is no credential: whose it is, why, and who has to act."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Final, NoReturn

from proxy.credentials.cache import Entry, Key
from proxy.credentials.loading import Loaded
from proxy.errors import GatewayError
from proxy.model import Destination

if TYPE_CHECKING:
    from proxy.credentials.renewal import NoToken

log = logging.getLogger(__name__)

NOTABLE_SKEW: Final = 30.0
"""Seconds by which clocks may differ before it is worth a word: providers allow about as much."""
_REASONS: Final = {
    "resting": "could not be asked a moment ago",
    "slow": "has not answered in time",
    "no_reply": "took the request and did not answer",
    "unreachable": "cannot be reached",
    "address_refused": "is at an address that is not allowed; the operator can list its network in the app's record",
    "workload_token": "was not asked: the workload's own token cannot be read",
    "misconfigured": "cannot be asked, because the record or its app lacks something; the log says what",
}


def subject(key: Key) -> str:
    """How a refusal names the record: by tenant, actor and credential, so that an operator finds it."""
    owner = f"tenant {key.tenant!r}"
    if key.actor is not None:
        owner = f"actor {key.actor!r} of {owner}"
    return f"Credential {key.credential!r} of {owner}"


def refusal_of(key: Key, loaded: Loaded, failure: NoToken, now: float) -> GatewayError:
    """The refusal of a call whose credential got no token."""
    if failure.outcome == "rejected":
        return GatewayError("refresh_rejected", f"{subject(key)} {_verdict(key, loaded, failure)}{_clocks(failure)}")
    if failure.error == "store":
        return GatewayError("credential_unavailable", "The credential store cannot be used just now.", retry_after=1)
    detail = f"{subject(key)} has expired, and the token endpoint {_reason(failure)}.{_clocks(failure)}"
    return GatewayError("credential_unavailable", detail, retry_after=max(1, math.ceil(failure.retry_at - now)))


def unfit(entry: Entry, error: ValueError) -> GatewayError:
    """The refusal of a record that cannot be written where the rule or the provider wants it."""
    log.warning("unusable record %s: %s", entry.path, error)
    return GatewayError(
        "credential_missing", f"{subject(entry.key)} is stored, but does not fit this rule or provider."
    )


def refuse(entry: Entry, now: float) -> NoReturn:
    """Raises what there is to say of an entry without a record."""
    if entry.problem == "missing":
        raise GatewayError("credential_missing", f"{subject(entry.key)} is not stored.")
    if entry.problem == "invalid":
        raise GatewayError("credential_missing", f"{subject(entry.key)} is stored but cannot be used: {entry.fault}.")
    raise GatewayError(
        "credential_unavailable",
        "The credential store cannot be read just now.",
        retry_after=max(1, math.ceil(entry.refresh_at - now)),
    )


def unbound(entry: Entry, destination: Destination) -> GatewayError:
    """The refusal of a host that is not among the record's."""
    return GatewayError(
        "credential_unbound", f"{subject(entry.key)} is not meant for {destination.host}; nothing was sent there."
    )


def _verdict(key: Key, loaded: Loaded, failure: NoToken) -> str:
    grant = loaded.record.grant
    if grant is not None and grant.aws is not None:
        return (
            f"gets no keys: AWS refuses to let the role be assumed ({failure.error}). An administrator of tenant "
            f"{key.tenant!r} has to check the role's trust policy (principal, external id, sts:TagSession); the "
            "proxy's log names the role."
        )
    if failure.error in ("invalid_client", "unauthorized_client"):
        app = loaded.app.name
        where = f"the application record apps/{app}" if app else "the record's key"
        fault = f"the provider does not accept the client ({failure.error})"
        return f"gets no token: {fault}. The operator must correct {where}."
    who = f"Actor {key.actor!r}" if key.actor is not None else f"An administrator of tenant {key.tenant!r}"
    return f"is no longer granted by the provider ({failure.error}). {who} must consent again."


def _reason(failure: NoToken) -> str:
    if failure.outcome == "throttled":
        return "asks for fewer requests"
    return _REASONS.get(failure.error, f"refused ({failure.error})")


def _clocks(failure: NoToken) -> str:
    if failure.skew is None or abs(failure.skew) < NOTABLE_SKEW:
        return ""
    side = "ahead of" if failure.skew > 0 else "behind"
    return f" Its clock is {abs(failure.skew):.0f} seconds {side} ours: the operator should check the time here."
