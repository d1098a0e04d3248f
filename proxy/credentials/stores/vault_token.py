"""The life of a Vault token: log in, renew at two thirds, log in once after a rejection, and back off when that fails.

Nothing here waits or touches the network: `login` and `renew` are handed in, and the store's upkeep task asks when to
come back. Threads share one VaultToken.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from proxy.credentials.stores.vault_errors import VaultRefusal
from proxy.credentials.stores.vault_login import Grant
from proxy.errors import StoreError
from signers.secret import Secret

LOGIN_BACKOFF: Final = 60.0
"""Seconds between logins that keep failing, at most."""
REJECTION_BACKOFF: Final = 300.0
"""Seconds between logins after rejections that a new token does not cure, at most."""
SHORTEST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Lease:
    """A token in use. `granted` is the life it was first given: a renewal that gives far less nears its maximum."""

    token: Secret
    renew_at: float
    expires: float
    granted: float
    renewable: bool


@dataclass(frozen=True, slots=True)
class LoginStatus:
    """For the operator: whether there is a live token, and how many logins have failed since the last good one.

    `note` says what else there is to know of how this store logs in.
    """

    logged_in: bool
    failures: int
    fault: str
    note: str = ""


def backoff(failures: int, most: float, random: float) -> float:
    """Seconds to wait after that many failures: 1, 2, 4 … `most`, of which `random` (0 to 1) leaves half to all."""
    return min(most, 2.0 ** min(failures - 1, 30)) * (0.5 + random / 2)


def lease(grant: Grant, now: float, random: float) -> Lease:
    """The lease of a fresh grant: due at two thirds of its life, up to a tenth earlier, so that a fleet spreads out."""
    if not grant.ttl:
        return Lease(grant.token, math.inf, math.inf, math.inf, False)
    due = now + grant.ttl * 2 / 3 * (1 - random / 10)
    return Lease(grant.token, due, now + grant.ttl, grant.ttl, grant.renewable)


class VaultToken:
    """Keeps one token alive. `clock` is monotonic seconds, `random` gives 0 to 1.

    `login` and `renew` do one request each and raise StoreError.
    """

    def __init__(
        self,
        login: Callable[[], Grant],
        renew: Callable[[Secret], Grant],
        clock: Callable[[], float],
        random: Callable[[], float],
    ) -> None:
        self._login_once = login
        self._renew_once = renew
        self._clock = clock
        self._random = random
        self._lock = threading.Lock()
        self._lease: Lease | None = None
        self._failures = 0
        self._fault = ""
        self._next_login = -math.inf
        self._rejections = 0
        self._next_rejection = -math.inf

    def current(self) -> Secret:
        """The live token; logs in when there is none. Raises StoreError, at once while backing off."""
        held = self._lease
        if held is not None and self._clock() < held.expires:
            return held.token
        with self._lock:
            held = self._lease
            if held is not None and self._clock() < held.expires:
                return held.token
            return self._login()

    def after_rejection(self, rejected: Secret) -> Secret | None:
        """Another token than `rejected`, which Vault answered 403; None when it is too early to log in again.

        A path that the policy denies is answered 403 whatever the token, so fruitless logins back off too.
        """
        with self._lock:
            if self._lease is not None and self._lease.token != rejected:
                return self._lease.token
            now = self._clock()
            if now < self._next_rejection:
                return None
            self._rejections += 1
            self._next_rejection = now + backoff(self._rejections, REJECTION_BACKOFF, self._random())
            return self._login()

    def accepted(self) -> None:
        """The token that followed a rejection works: the old one was dead."""
        self._rejections = 0

    def upkeep(self) -> float:
        """Renew or log in if it is due. Seconds until it should be asked again; never raises StoreError."""
        with self._lock:
            now = self._clock()
            held = self._lease
            try:
                if held is None or now >= held.expires:
                    self._login()
                elif now >= held.renew_at:
                    self._extend(held, now)
            except StoreError:
                # Noted in the status; the next try is what counts.
                pass
            return min(max(self._due() - self._clock(), SHORTEST_PAUSE), LONGEST_PAUSE)

    @property
    def status(self) -> LoginStatus:
        held = self._lease
        return LoginStatus(held is not None and self._clock() < held.expires, self._failures, self._fault)

    def _due(self) -> float:
        renew_at = self._lease.renew_at if self._lease is not None else -math.inf
        return max(renew_at, self._next_login)

    def _login(self) -> Secret:
        now = self._clock()
        if now < self._next_login:
            raise StoreError(f"not logged in; next try in {math.ceil(self._next_login - now)} s. {self._fault}")
        try:
            grant = self._login_once()
        except StoreError as error:
            self._failed(error)
            raise
        self._lease = lease(grant, now, self._random())
        self._failures, self._fault, self._next_login = 0, "", -math.inf
        return grant.token

    def _extend(self, held: Lease, now: float) -> None:
        """Renew; log in anew when the token cannot be renewed or nears its maximum life."""
        if not held.renewable or now < self._next_login:
            self._login()
            return
        try:
            grant = self._renew_once(held.token)
        except VaultRefusal:
            # Whatever the status: OpenBao answers 500 to a renewal past the token's maximum life.
            self._login()
            return
        except StoreError as error:
            self._failed(error)
            return
        renewed = lease(grant, now, self._random())
        self._lease = replace(renewed, token=held.token, granted=held.granted)
        self._failures, self._fault = 0, ""
        if grant.ttl < held.granted / 2:
            self._login()

    def _failed(self, error: StoreError) -> None:
        self._failures += 1
        self._fault = str(error)
        self._next_login = self._clock() + backoff(self._failures, LOGIN_BACKOFF, self._random())
