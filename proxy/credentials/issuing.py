"""Tokens that are issued by providers: found, renewed in time, shared by all who need them.

One renewal of a credential runs at a time in a process, outlives the calls that wait for it, and delays no other
credential's. Tokens of `oauth2` are kept in their record (`proxy.credentials.renewal`); all others can be asked for
again, and are kept in memory under a fingerprint of everything that they were asked for with.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from math import inf
from typing import Any, Final

from proxy.credentials.app_record import Networks, TokenFacts
from proxy.credentials.aws_record import AwsRoles
from proxy.credentials.cache import CacheLimits, Entry
from proxy.credentials.freshness import Marks, marks
from proxy.credentials.grant_choice import NOBODY, OnBehalf, check_key, client_of, fingerprint, grant_of
from proxy.credentials.grant_record import GrantRecord, Token, issued_token
from proxy.credentials.lease import Rejection
from proxy.credentials.loading import Loaded
from proxy.credentials.refusals import NOTABLE_SKEW, refusal_of, subject
from proxy.credentials.renewal import Ask, NoToken, RenewalLimits, Renewer
from proxy.credentials.store import Conflict, NotFound, Store
from proxy.errors import GatewayError, StoreError
from proxy.model import Caller
from proxy.workload_token import workload_token
from signers.grants.model import Grant, Issued, TokenRefused
from signers.grants.token_exchange import TypedToken
from signers.secret import Secret

log = logging.getLogger(__name__)

REMEMBERED: Final = 10_000
READ_ONLY_PAUSE: Final = 300.0
"""Seconds between tries of a rejected credential where the rejection cannot be written down."""
OnRenewal = Callable[[str, str], None]
"""Told of each request to a token endpoint: the provider's name, and "ok" or the outcome."""


class _Flight:
    """What is known of one credential's tokens: the one in memory, the renewal under way, the last failure."""

    __slots__ = ("failure", "failures", "forced_at", "of", "retry_at", "task", "token")

    def __init__(self) -> None:
        self.token: Token | None = None
        self.task: asyncio.Task[Token] | None = None
        self.failure: NoToken | None = None
        self.failures = 0
        """Renewals in a row that brought nothing."""
        self.of = ""
        """Fingerprint of the credential that `failure` is about."""
        self.retry_at = -inf
        self.forced_at = -inf


class Issuing:
    """Gives tokens. `ask` runs a grant; `facts` is the catalogue's word on token endpoints; `cache` are the limits
    under which records are remembered; `clock` gives epoch seconds; `on_endpoint` is told of the token endpoints that
    applications name."""

    def __init__(
        self,
        store: Store,
        ask: Ask,
        *,
        clock: Callable[[], float],
        facts: Callable[[str], TokenFacts | None] = lambda name: None,
        limits: RenewalLimits | None = None,
        cache: CacheLimits | None = None,
        on_renewal: OnRenewal = lambda provider, result: None,
        on_endpoint: Callable[[str], None] = lambda url: None,
    ) -> None:
        self._on_endpoint = on_endpoint
        self._store = store
        self._ask = ask
        self._clock = clock
        self._facts = facts
        self._limits = limits or RenewalLimits()
        self._cache = cache or CacheLimits()
        self._on_renewal = on_renewal
        self._renewer = Renewer(store, self._counted_ask, facts, clock, self._limits)
        self._flights: OrderedDict[str, _Flight] = OrderedDict()
        self._tasks: set[asyncio.Task[Token]] = set()

    def token(
        self, entry: Entry, loaded: Loaded, caller: Caller, user: str | None, now: float
    ) -> Token | Awaitable[Token]:
        """A token for one call: at once when there is a usable one. `user` is whom a service account acts for.

        Raises (or the awaitable raises) GatewayError: `credential_unavailable`, `refresh_rejected`,
        `credential_missing`.
        """
        grant = _grant(loaded)
        try:
            check_key(grant, entry.key.tenant)
        except ValueError as error:
            log.warning("unusable record %s: %s", entry.path, error)
            raise GatewayError(
                "credential_missing", f"{subject(entry.key)} is stored but cannot be used: {error}."
            ) from None
        if loaded.app.token_endpoint:
            self._on_endpoint(loaded.app.token_endpoint)
        if grant.presents:
            return self._exchanged(entry, loaded, caller, user, now)
        if grant.aws is not None:
            return self._found(entry, loaded, _session(entry, grant.aws, caller, user), now)
        return self._found(entry, loaded, OnBehalf(user=user) if user else NOBODY, now)

    async def force(self, entry: Entry, loaded: Loaded, caller: Caller, user: str | None, used: str) -> bool:
        """Renew the token with the digest `used` after a provider answered 401 to it; whether there is another now.

        Raises GatewayError `refresh_rejected` when there never will be.
        """
        behalf = await self._behalf(entry, loaded, caller, user)
        flight, now = self._flight(entry, loaded, behalf), self._clock()
        held = self._held(entry, flight)
        if held is not None and held.digest != used:
            return True
        if flight.task is None and 0 <= now - flight.forced_at < self._limits.forced:
            return False
        flight.forced_at = now
        task = self._start(entry, loaded, flight, behalf, used)
        await asyncio.wait({task}, timeout=self._limits.wait)
        if not task.done() or task.cancelled():
            return False
        failure = task.exception()
        if isinstance(failure, NoToken) and failure.outcome == "rejected":
            raise refusal_of(entry.key, loaded, failure, now)
        entry.prepared.clear()  # or the next call would find the token that was refused
        return failure is None and task.result().digest != used

    async def close(self) -> None:
        """Let renewals under way end: a rotated token that is not stored yet would be lost."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._limits.closing)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _counted_ask(self, grant: Grant, networks: Networks, provider: str = "") -> Issued:
        try:
            issued = await self._ask(grant, networks)
        except TokenRefused as refusal:
            self._on_renewal(provider, refusal.outcome)
            raise
        self._on_renewal(provider, "ok")
        return issued

    # From a record to its token.

    async def _exchanged(self, entry: Entry, loaded: Loaded, caller: Caller, user: str | None, now: float) -> Token:
        found = self._found(entry, loaded, await self._behalf(entry, loaded, caller, user), now)
        return found if isinstance(found, Token) else await found

    def _found(self, entry: Entry, loaded: Loaded, behalf: OnBehalf, now: float) -> Token | Awaitable[Token]:
        flight = self._flight(entry, loaded, behalf)
        held = self._held(entry, flight)
        ends = _marks(held)
        if held is not None and now < ends.stale_at:
            return held
        resting = now < flight.retry_at and flight.of == fingerprint(_grant(loaded), loaded.app, behalf)
        if not resting and not self._is_rejected(loaded, behalf):
            task = self._start(entry, loaded, flight, behalf)
            if held is None or now >= ends.wait_at:
                return self._await(entry, loaded, flight, task)
        if held is not None and now < ends.expires_at:
            return held
        raise refusal_of(entry.key, loaded, self._failure(flight, loaded, now), now)

    async def _await(self, entry: Entry, loaded: Loaded, flight: _Flight, task: asyncio.Task[Token]) -> Token:
        """Wait for a renewal, within the limits. It survives its callers."""
        await asyncio.wait({task}, timeout=self._limits.wait)
        now = self._clock()
        failure: BaseException | None = NoToken("down", "slow", now + 1)
        if task.done() and not task.cancelled():
            failure = task.exception()
            if failure is None:
                return task.result()
        held = self._held(entry, flight)
        if held is not None and now < _marks(held).expires_at:
            return held
        if isinstance(failure, NoToken):
            raise refusal_of(entry.key, loaded, failure, now)
        raise GatewayError("internal", "The proxy met an error of its own while it renewed a token.")

    def _failure(self, flight: _Flight, loaded: Loaded, now: float) -> NoToken:
        rejection = _grant(loaded).rejection
        if flight.failure is not None and now < flight.retry_at:
            return flight.failure
        return NoToken("rejected", rejection.error if rejection else "rejected", now)

    @staticmethod
    def _is_rejected(loaded: Loaded, behalf: OnBehalf) -> bool:
        """Whether the record, as it was read last, says that there is nothing to hope for."""
        grant = _grant(loaded)
        return grant.rejection is not None and grant.rejection.of == fingerprint(grant, loaded.app, behalf)

    def _held(self, entry: Entry, flight: _Flight) -> Token | None:
        loaded = entry.loaded
        if loaded is not None and loaded.record.grant is not None and loaded.record.grant.durable:
            return loaded.record.grant.token
        return flight.token

    def _flight(self, entry: Entry, loaded: Loaded, behalf: OnBehalf) -> _Flight:
        grant = _grant(loaded)
        key = entry.path if grant.durable else fingerprint(grant, loaded.app, behalf)
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight()
            if len(self._flights) > REMEMBERED:
                self._flights.popitem(last=False)
        else:
            self._flights.move_to_end(key)
        return flight

    async def _behalf(self, entry: Entry, loaded: Loaded, caller: Caller, user: str | None) -> OnBehalf:
        grant, app = _grant(loaded), loaded.app
        if grant.aws is not None:
            return _session(entry, grant.aws, caller, user)
        if not grant.presents:
            return OnBehalf(user=user) if user else NOBODY
        if user is not None:
            raise _acts_for_nobody(entry)
        if grant.per_caller:
            if caller.subject_token is None:
                raise GatewayError(
                    "credential_missing",
                    "This credential is exchanged for the caller's own token, and the call has none.",
                )
            presented = TypedToken(caller.subject_token, app.subject_token_type)
        else:
            presented = TypedToken(await _token_file(app.subject_token_file), app.subject_token_type)
        actor = (
            TypedToken(await _token_file(app.actor_token_file), app.actor_token_type) if app.actor_token_file else None
        )
        return OnBehalf(subject=presented, actor=actor)

    # Renewals.

    def _start(
        self, entry: Entry, loaded: Loaded, flight: _Flight, behalf: OnBehalf, refused: str = ""
    ) -> asyncio.Task[Token]:
        """The renewal under way, started if there is none."""
        if flight.task is None:
            work: Coroutine[Any, Any, Token] = (
                self._renew(entry, refused) if _grant(loaded).durable else self._mint(entry, loaded, flight, behalf)
            )
            task = flight.task = asyncio.get_running_loop().create_task(work)
            of = fingerprint(_grant(loaded), loaded.app, behalf)
            self._tasks.add(task)
            task.add_done_callback(lambda done: self._ended(done, flight, of))
        return flight.task

    def _ended(self, task: asyncio.Task[Token], flight: _Flight, of: str) -> None:
        flight.task = None
        self._tasks.discard(task)
        failure = None if task.cancelled() else task.exception()
        flight.failure, flight.of, flight.retry_at = None, of, -inf
        flight.failures = 0 if failure is None else flight.failures + 1
        if isinstance(failure, NoToken):
            flight.failure, flight.retry_at = failure, failure.retry_at
        elif failure is not None:
            # Its text could hold anything; its type is enough to look it up.
            log.error("a renewal failed unexpectedly: %s", type(failure).__name__)
            flight.failure = NoToken("down", "internal", self._clock() + self._limits.first_pause)
            flight.retry_at = flight.failure.retry_at

    async def _renew(self, entry: Entry, refused: str) -> Token:
        try:
            loaded = await self._renewer.renew(entry.path, refused)
        except NoToken as failure:
            _report(entry.path, failure)
            raise
        entry.found(loaded, self._clock(), self._cache)
        token = _grant(loaded).token
        assert token is not None
        return token

    async def _mint(self, entry: Entry, loaded: Loaded, flight: _Flight, behalf: OnBehalf) -> Token:
        grant, app, now = _grant(loaded), loaded.app, self._clock()
        attempt = flight.failures + 1
        try:
            client = client_of(grant, app, self._facts(app.provider), dict(loaded.record.vars))
            asked = grant_of(grant, app, client, now, os.urandom(16).hex(), behalf)
            issued = await self._counted_ask(asked, app.networks, app.provider)
            if issued.incomplete:
                raise TokenRefused("down", issued.incomplete)
        except ValueError as error:
            log.warning("cannot ask for a token of %s: %s", entry.path, error)
            raise NoToken("down", "misconfigured", self._clock() + self._limits.rejected) from None
        except TokenRefused as refusal:
            judged = _as_of_clocks(grant, refusal)
            failure = NoToken(judged.outcome, judged.error, 0.0, skew=judged.skew, led=True)
            _report(entry.path, failure, refusal.role)
            failure.retry_at = await self._retry_at(entry, loaded, behalf, judged, attempt)
            raise failure from None
        flight.token = issued_token(issued)
        return flight.token

    async def _retry_at(
        self, entry: Entry, loaded: Loaded, behalf: OnBehalf, refusal: TokenRefused, attempt: int
    ) -> float:
        """When to ask again. A rejection is written into the record, so that no process asks until that changes."""
        now = self._clock()
        if refusal.outcome != "rejected":
            return now + max(refusal.retry_after or 0.0, self._limits.pause(attempt))
        if behalf is not NOBODY:
            return now + self._limits.longest_pause  # it may be about the person, not about the credential
        rejection = Rejection(refusal.error, fingerprint(_grant(loaded), loaded.app), now)
        try:
            stored = await self._store.read(entry.path)
            if stored.version == loaded.version:
                fields = {**stored.fields, "rejected": rejection.fields()}
                await self._store.write(entry.path, fields, stored.version)
            return now + self._limits.rejected
        except (Conflict, NotFound):
            return now + self._limits.rejected
        except StoreError:
            return now + READ_ONLY_PAUSE


def _as_of_clocks(grant: GrantRecord, refusal: TokenRefused) -> TokenRefused:
    """An assertion that came from the future or was over on arrival is `invalid_grant` too. That passes when somebody
    sets the clock, and is no verdict on the credential."""
    signed = grant.kind in ("jwt_bearer", "service_account")
    if refusal.outcome != "rejected" or not signed or abs(refusal.skew or 0.0) < NOTABLE_SKEW:
        return refusal
    return TokenRefused("down", refusal.error, skew=refusal.skew)


def _grant(loaded: Loaded) -> GrantRecord:
    assert loaded.record.grant is not None
    return loaded.record.grant


def _marks(token: Token | None) -> Marks:
    return marks(token.issued_at, token.expires_at) if token is not None else Marks(-inf, -inf, -inf)


def _acts_for_nobody(entry: Entry) -> GatewayError:
    return GatewayError("credential_missing", f"{subject(entry.key)} is no service account's key, and acts for nobody.")


def _session(entry: Entry, grant: AwsRoles, caller: Caller, user: str | None) -> OnBehalf:
    if user is not None:
        raise _acts_for_nobody(entry)
    try:
        return OnBehalf(session=grant.session(caller))
    except ValueError as error:
        raise GatewayError(
            "credential_missing", f"{subject(entry.key)} cannot be used for this call: {error}."
        ) from None


def _report(path: str, failure: NoToken, role: str = "") -> None:
    if failure.led:
        skew = failure.skew or 0.0
        clocks = f"; its clock is {skew:+.0f} s from ours" if abs(skew) > 30 else ""
        asked = f" for {role}" if role else ""
        log.warning("no token for %s: %s (%s)%s%s", path, failure.outcome, failure.error, asked, clocks)


async def _token_file(path: str) -> Secret:
    """A token that the platform keeps in a file and replaces there: read each time."""
    try:
        token = await asyncio.to_thread(workload_token, path)
    except (OSError, ValueError):
        raise GatewayError(
            "credential_unavailable", "The workload's own token cannot be read.", retry_after=5
        ) from None
    return Secret(token.decode("ascii"))
