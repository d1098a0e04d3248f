"""Renewing a grant whose tokens are kept in its record: once among all processes on one store, nothing ever lost.

    read the record → judge → take the lease by compare-and-set → ask the endpoint → write the new tokens by
    compare-and-set → only then are they used

What happens when a process dies or is stopped between any two of these steps is the table in docs/refresh.md.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from proxy.credentials.app_record import Networks, TokenFacts
from proxy.credentials.faults import RecordError
from proxy.credentials.grant_choice import client_of, fingerprint, grant_of
from proxy.credentials.grant_record import GrantRecord
from proxy.credentials.lease import Lease, Rejection
from proxy.credentials.loading import Loaded, load
from proxy.credentials.record import parse_record
from proxy.credentials.spool import Change
from proxy.credentials.store import Conflict, NotFound, Store
from proxy.credentials.verdict import Held, Rejected, Resting, Use, Verdict, judge
from proxy.credentials.write_back import WriteBackStore
from proxy.errors import StoreError
from signers.grants.model import Grant, Issued, Outcome, TokenRefused

log = logging.getLogger(__name__)

Ask = Callable[[Grant, Networks], Awaitable[Issued]]
"""Runs a grant against its endpoint. Raises TokenRefused, or ValueError naming what the grant lacks."""
CountedAsk = Callable[[Grant, Networks, str], Awaitable[Issued]]
"""The same, told the provider's name for metrics."""


class NoToken(Exception):
    """A renewal has ended without a token. `retry_at` is epoch seconds; `skew` as in TokenRefused."""

    def __init__(
        self, outcome: Outcome, error: str, retry_at: float, *, skew: float | None = None, led: bool = False
    ) -> None:
        self.outcome: Outcome = outcome
        self.error = error
        self.retry_at = retry_at
        self.skew = skew
        self.led = led
        """Whether it was we who asked the endpoint."""
        super().__init__(f"{outcome}: {error}")


@dataclass(frozen=True, slots=True)
class RenewalLimits:
    """Seconds.

    request       one token request, from the look-up of the name to the last byte
    lease         how long others stay away from the record; longer than a request and the writes around it
    wait          how long a call waits for a token
    poll          between two looks at a record whose lease another process holds
    first_pause   after a first failure; doubles up to longest_pause
    keep_pause    between two tries to write tokens that were issued, at most
    rejected      how long a rejection is believed before the record is read again
    forced        between two renewals of one token that a provider's 401 forces
    closing       how long a stop waits for renewals under way
    """

    request: float = 45.0
    lease: float = 75.0
    wait: float = 50.0
    poll: float = 0.25
    first_pause: float = 1.0
    longest_pause: float = 60.0
    keep_pause: float = 5.0
    rejected: float = 5.0
    forced: float = 60.0
    closing: float = 10.0

    def pause(self, attempt: int) -> float:
        """Between a failed try and the next, spread so that replicas do not come together."""
        whole = min(self.first_pause * 2.0 ** min(attempt - 1, 20), self.longest_pause)
        return whole * random.uniform(0.8, 1.0)  # noqa: S311


@dataclass(frozen=True, slots=True, repr=False)
class _Turn:
    """A lease that is ours: the record as we wrote it, and the version it got."""

    path: str
    loaded: Loaded
    fields: Mapping[str, Any]
    version: int
    lease: Lease

    @property
    def grant(self) -> GrantRecord:
        assert self.loaded.record.grant is not None
        return self.loaded.record.grant


class Renewer:
    """Renews durable grants. `facts` gives the catalogue's word on a provider's token endpoint; `sleep` waits for
    so many seconds."""

    def __init__(
        self,
        store: Store,
        ask: CountedAsk,
        facts: Callable[[str], TokenFacts | None],
        clock: Callable[[], float],
        limits: RenewalLimits,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store = store
        self._sleep = sleep
        self._ask = ask
        self._facts = facts
        self._clock = clock
        self._limits = limits

    async def renew(self, path: str, refused: str = "") -> Loaded:
        """The record with a token that is fresh, or at least usable where nothing can be done.

        `refused` is the digest of a token that the provider does not take any more. Raises NoToken.
        """
        while True:
            try:
                renewed = await self._step(path, refused)
            except (NotFound, RecordError, StoreError) as error:
                log.warning("cannot renew %s: %s", path, error)
                raise NoToken("down", "store", self._clock() + self._limits.first_pause) from None
            if renewed is not None:
                return renewed

    async def _step(self, path: str, refused: str) -> Loaded | None:
        """One look at the record and what follows from it; None: look again."""
        loaded, stored = await load(self._store, path)
        verdict = self._judge(loaded, refused)
        if isinstance(verdict, Use):
            return loaded
        if isinstance(verdict, Rejected):
            raise NoToken("rejected", verdict.error, self._clock() + self._limits.rejected)
        if isinstance(verdict, Resting):
            raise NoToken("unknown" if verdict.unknown else "down", "resting", verdict.until)
        if isinstance(verdict, Held):
            await self._sleep(min(self._limits.poll * random.uniform(0.5, 1.5), verdict.until - self._clock() + 0.05))  # noqa: S311
            return None
        turn = await self._take(path, loaded, stored.fields, verdict.attempt)
        return None if turn is None else await self._lead(turn)

    def _judge(self, loaded: Loaded, refused: str) -> Verdict:
        grant = loaded.record.grant
        if grant is None or not grant.durable:
            raise RecordError("", "kind", "is no longer one whose tokens are kept")
        facts = self._facts(loaded.app.provider)
        grace = facts.dialect.reuse_grace if facts is not None else 0.0
        return judge(grant, fingerprint(grant, loaded.app), self._clock(), refused=refused, grace=grace)

    async def _take(self, path: str, loaded: Loaded, fields: Mapping[str, Any], attempt: int) -> _Turn | None:
        lease = Lease(os.urandom(8).hex(), self._clock() + self._limits.lease, attempt)
        fields = {**fields, "refresh": lease.fields()}
        try:
            version = await self._store.write(path, fields, loaded.version)
        except Conflict:
            return None
        except StoreError:
            # It may have been written all the same; without looking, we would keep everybody away until it ends.
            mine, stored = await load(self._store, path)
            found = mine.record.grant.lease if mine.record.grant else None
            if found is None or found.holder != lease.holder:
                raise
            version = stored.version
        return _Turn(path, loaded, fields, version, lease)

    async def _lead(self, turn: _Turn) -> Loaded | None:
        if self._clock() > turn.lease.until - self._limits.request:
            return None  # we were stopped for so long that another process could ask at the same time
        record, app, now = turn.loaded.record, turn.loaded.app, self._clock()
        try:
            client = client_of(turn.grant, app, self._facts(app.provider), dict(record.vars))
            issued = await self._ask(
                grant_of(turn.grant, app, client, now, os.urandom(16).hex()), app.networks, app.provider
            )
        except ValueError as error:
            log.warning("cannot renew %s: %s", turn.path, error)
            return await self._refused(turn, TokenRefused("down", "misconfigured"))
        except TokenRefused as refusal:
            return await self._refused(turn, refusal)
        kept = await self._keep(turn, issued)
        if issued.incomplete:
            raise NoToken("down", issued.incomplete, self._clock() + self._limits.first_pause, led=True)
        return kept

    async def _refused(self, turn: _Turn, refusal: TokenRefused) -> Loaded | None:
        now = self._clock()
        pause = max(refusal.retry_after or 0.0, self._limits.pause(turn.lease.attempt))
        until = now + pause
        if refusal.outcome == "rejected":
            current, stored = await load(self._store, turn.path)
            if current.record.grant is None or current.record.grant.refresh_token != turn.grant.refresh_token:
                return None  # somebody renewed it, or its owner replaced it: the refusal is about the old one
            rejection = Rejection(refusal.error, fingerprint(turn.grant, turn.loaded.app), now)
            changes: dict[str, Any] = {"rejected": rejection.fields(), "refresh": None}
            fields, version, until = stored.fields, stored.version, now + self._limits.rejected
        else:
            rest = Lease("", until, turn.lease.attempt, refusal.outcome == "unknown")
            changes, fields, version = {"refresh": rest.fields()}, turn.fields, turn.version
        try:
            await self._store.write(turn.path, _merged(fields, changes), version)
        except Conflict:
            if refusal.outcome == "rejected":
                return None
        except StoreError as error:
            log.warning("%s: the outcome of its renewal is not recorded: %s", turn.path, error)
        raise NoToken(refusal.outcome, refusal.error, until, skew=refusal.skew, led=True)

    async def _keep(self, turn: _Turn, issued: Issued) -> Loaded | None:
        """Write what was issued. A store that is away is tried until it is back: the old refresh token may be spent,
        and nobody else has the new one."""
        base, version, tries = turn.fields, turn.version, 0
        while True:
            fields = _merged(base, renewed_fields(issued))
            try:
                written = await self._store.write(turn.path, fields, version)
                return Loaded(parse_record(turn.path, fields), written, turn.loaded.application)
            except Conflict:
                current, stored = await load(self._store, turn.path)
                if _superseded(current.record.grant, turn.grant, issued):
                    return None
                base, version = stored.fields, stored.version
            except StoreError as error:
                log.warning("%s: new tokens wait to be stored: %s", turn.path, error)
                tries += 1
                if isinstance(self._store, WriteBackStore) and tries == 1:
                    try:
                        return await self._hand_over(self._store, turn, issued)
                    except StoreError as unkept:
                        log.error("%s: new tokens cannot be kept on disk either: %s", turn.path, unkept)
                await self._sleep(min(0.1 * 2.0 ** min(tries, 10), self._limits.keep_pause))

    async def _hand_over(self, store: WriteBackStore, turn: _Turn, issued: Issued) -> Loaded | None:
        """Leave it to the spool, from which the tokens can be used at once. None: the record holds newer ones.

        Raises StoreError when they cannot be kept there either.
        """
        changes = renewed_fields(issued)
        change = Change(turn.path, changes, {"refresh_token": turn.fields.get("refresh_token")})
        if await store.update(change) == "superseded":
            return None
        return Loaded(parse_record(turn.path, change.applied(turn.fields)), turn.version, turn.loaded.application)


def renewed_fields(issued: Issued) -> dict[str, Any]:
    """What a record holds after tokens were issued. None: the field goes. A refresh token that the reply does not
    replace stays; of a login that was not completed only that is kept."""
    if issued.incomplete:
        rotated = issued.refresh_token.reveal() if issued.refresh_token is not None else None
        return {"refresh": None, "rejected": None} | ({"refresh_token": rotated} if rotated else {})
    changes: dict[str, Any] = {
        "access_token": issued.access_token.reveal(),
        "issued_at": round(issued.issued_at, 3),
        "expires_at": None if issued.expires_at is None else round(issued.expires_at, 3),
        "refresh": None,
        "rejected": None,
    }
    if issued.refresh_token is not None:
        changes["refresh_token"] = issued.refresh_token.reveal()
    if issued.scopes is not None:
        changes["granted_scopes"] = list(issued.scopes)
    return changes


def _merged(fields: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**fields, **changes}.items() if value is not None}


def _superseded(current: GrantRecord | None, used: GrantRecord, issued: Issued) -> bool:
    """Whether the record already holds tokens that come after ours, or its owner's replacement."""
    if current is None or current.refresh_token != used.refresh_token:
        return True
    token = current.token
    return token is not None and (token.issued_at or 0.0) > issued.issued_at
