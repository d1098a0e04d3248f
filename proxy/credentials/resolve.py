"""From a caller and a rule's credential to Material usable now, for this destination.

The warm path is two dictionary look-ups and no awaitable. Everything else is in `proxy.credentials.cache`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from proxy.credentials.cache import CacheLimits, Entry, Key, OnRead, OnRequest, RecordCache
from proxy.credentials.client_certificates import ClientCertificates, Current, Source
from proxy.credentials.freshness import marks
from proxy.credentials.loading import Loaded
from proxy.credentials.paths import PathTemplates
from proxy.credentials.record import Record
from proxy.credentials.refusals import refuse, subject, unbound, unfit
from proxy.credentials.report import known, soonest_expiries
from proxy.credentials.store import Reader, Store
from proxy.credentials.tls_record import MTLS, Kept
from proxy.credentials.use import (
    CredentialUse,
    Prepare,
    Prepared,
    Provider,
    Signer,
    acting_for,
    check_use,
    placement_of,
)
from proxy.errors import GatewayError
from proxy.model import Caller, Destination, Material
from signers.client_certificate import ClientCertificate
from signers.hmac_template import HmacTemplate
from signers.placeholders import Placeholders
from signers.placement import Injection, with_headers
from signers.table import PLACEHOLDERS

if TYPE_CHECKING:
    from proxy.credentials.grant_record import Token
    from proxy.credentials.issuing import Issuing

Found = TypeVar("Found")

FORCED_PAUSE: Final = 1.0
"""Seconds between a forced read that found nothing new and the next: provoked 401s must not load the store."""
MAX_PREPARED: Final = 64
"""Prepared forms of one record: one for each provider and placement that policies name."""


class Resolver:
    """Finds credentials.

    store    where records are read
    prepare  makes a record's wire form (signers.placement.prepare)
    clock    seconds, the same clock as every `now` passed in
    paths    where records stand
    limits   of the cache
    masks_of    prepares the secret's renderings for the search through replies
    signers     by kind: makes what signs each request, for kinds that cannot be prepared (signers.table)
    on_read     told of every store read, for the audit's `credential_read` line
    on_request  told of its result and seconds, for metrics
    issuing     opens what gives the tokens of records that hold a grant, when the first is met
    certificates  finds the client certificates that do not stand in their record
    """

    def __init__(
        self,
        store: Store,
        prepare: Prepare,
        *,
        clock: Callable[[], float],
        paths: PathTemplates | None = None,
        limits: CacheLimits | None = None,
        on_read: OnRead = lambda path, result, reader: None,
        masks_of: Callable[[tuple[bytes, ...]], object] = lambda renderings: renderings,
        signers: Mapping[str, Signer] | None = None,
        on_request: OnRequest = lambda result, seconds: None,
        issuing: Callable[[], Issuing] | None = None,
        certificates: ClientCertificates | None = None,
    ) -> None:
        self._cache = RecordCache(store, limits or CacheLimits(), clock, on_read, on_request)
        self._entries = self._cache.entries
        self._prepare = prepare
        self._open_issuing = issuing
        self._issuing: Issuing | None = None
        self._certificates = certificates
        self._masks_of = masks_of
        self._signers = signers or {}
        self._paths = paths or PathTemplates()
        self._by_agent = self._paths.by_agent
        self._warm = 0
        self._counts: Counter[tuple[str, str]] = Counter()

    def resolve(
        self,
        caller: Caller,
        use: CredentialUse,
        provider: Provider | None,
        destination: Destination,
        now: float,
        call_id: str = "",
    ) -> Material | Awaitable[Material]:
        """Material for one call: at once when the record is fresh in the cache, else an awaitable of it.

        Raises (or the awaitable raises) GatewayError: `credential_missing`, `credential_disabled`,
        `credential_unbound`, `credential_unavailable`.
        """
        # None, not "": a call without an actor must never meet a tenant's entry through a rule that says `per: actor`.
        key = (
            caller.tenant,
            caller.actor if use.per == "actor" else None,
            use.name,
            caller.agent if self._by_agent else None,
        )
        entry = self._entries.get(key)
        if entry is not None and entry.since <= now < entry.refresh_at:
            prepared = entry.prepared.get(
                (use.placement, provider.name if provider is not None else "", use.impersonate)
            )
            if prepared is not None and prepared.provider is provider and destination.host in prepared.material.hosts:
                self._entries.move_to_end(key)
                self._warm += 1
                material: Material = prepared.material
                return material
        return self._resolve(Reader(caller, call_id), use, provider, destination, now)

    async def reread(self, caller: Caller, use: CredentialUse, used: Material, call_id: str = "") -> bool:
        """Read the record again after a provider refused `used`; whether it is another one now, or gone.

        True means: resolve again, and repeat the call once if its body allows. A store that does not answer changes
        nothing: False. Calls refused together share one read. A token that was issued is renewed instead.
        Raises GatewayError `refresh_rejected` when it cannot be renewed any more.
        """
        entry = self._entry(caller, use)
        if used.issued and self._issuing is not None and entry.loaded is not None and entry.loaded.record.grant:
            user = acting_for(entry, caller, use)
            return await self._issuing.force(entry, entry.loaded, caller, user, used.issued)
        while not _replaced(entry, use, used):
            if 0 <= self._cache.clock() - entry.unchanged_at < FORCED_PAUSE:
                return False
            before, joined = entry.loaded, entry.flight is not None
            if not await self._cache.wait(entry, Reader(caller, call_id)):
                return False
            if before is not None and entry.loaded != before:
                return True
            # A read that was under way already may have missed the change: finding nothing new in it does not count.
            if not joined and not _replaced(entry, use, used):
                entry.unchanged_at = self._cache.clock()
                return False
        return True

    def counts(self) -> dict[tuple[str, str], int]:
        """Resolutions so far by (source, result): source cache, store or issued; result "ok" or a refusal's code."""
        return dict(self._counts + Counter({("cache", "ok"): self._warm}))

    def known(self, now: float) -> list[dict[str, Any]]:
        """What is in memory, for the operator."""
        return known(self._entries.values(), now)

    def expiries(self) -> dict[str, float]:
        """The soonest expiry, in epoch seconds, of the credentials in use, by provider."""
        return soonest_expiries(self._entries.values())

    async def close(self) -> None:
        """Stop reads under way, and let renewals end. The store is closed by its owner."""
        if self._issuing is not None:
            await self._issuing.close()
        if self._certificates is not None:
            await self._certificates.close()
        await self._cache.close()

    def _entry(self, caller: Caller, use: CredentialUse) -> Entry:
        path = self._paths.path(caller.tenant, caller.actor, use.name, use.per, caller.agent)
        actor = caller.actor if use.per == "actor" else None
        return self._cache.entry(Key(caller.tenant, actor, use.name, caller.agent if self._by_agent else None), path)

    def _resolve(
        self,
        reader: Reader,
        use: CredentialUse,
        provider: Provider | None,
        destination: Destination,
        now: float,
    ) -> Material | Awaitable[Material]:
        assert reader.caller is not None
        entry = self._entry(reader.caller, use)
        if not entry.since <= now < entry.usable_until:
            return self._await(entry, reader, use, provider, destination)
        if now >= entry.reread_at:
            self._cache.refresh(entry, reader)
        return self._counted("cache", entry, reader.caller, use, provider, destination, now)

    async def _await(
        self, entry: Entry, reader: Reader, use: CredentialUse, provider: Provider | None, destination: Destination
    ) -> Material:
        in_time = await self._cache.wait(entry, reader)
        if not in_time and not entry.serves_stale(self._cache.clock(), self._cache.limits):
            self._counts["store", "credential_unavailable"] += 1
            raise GatewayError(
                "credential_unavailable", "The credential store has not answered in time.", retry_after=1
            )
        assert reader.caller is not None
        found = self._counted("store", entry, reader.caller, use, provider, destination, self._cache.clock())
        return found if isinstance(found, Material) else await found

    def _counted(
        self,
        source: str,
        entry: Entry,
        caller: Caller,
        use: CredentialUse,
        provider: Provider | None,
        destination: Destination,
        now: float,
    ) -> Material | Awaitable[Material]:
        loaded = entry.loaded
        try:
            tls = loaded.record.tls if loaded is not None else None
            if loaded is not None and loaded.record.grant is not None:
                material = self._issued(entry, loaded, caller, use, provider, destination, now)
            elif loaded is not None and isinstance(tls, Source):
                material = self._certified(entry, loaded, tls, use, provider, destination, now)
            else:
                material = self._material(entry, use, provider, now)
                if destination.host not in material.hosts:
                    raise unbound(entry, destination)
        except GatewayError as refusal:
            self._counts[source, refusal.code.name] += 1
            raise
        if not isinstance(material, Material):
            return self._counted_later(material)
        self._counts[source, "ok"] += 1
        return material

    async def _counted_later(self, waited: Awaitable[Material]) -> Material:
        try:
            material = await waited
        except GatewayError as refusal:
            self._counts["issued", refusal.code.name] += 1
            raise
        self._counts["issued", "ok"] += 1
        return material

    # Records that hold a grant.

    def _issued(
        self,
        entry: Entry,
        loaded: Loaded,
        caller: Caller,
        use: CredentialUse,
        provider: Provider | None,
        destination: Destination,
        now: float,
    ) -> Material | Awaitable[Material]:
        """Material with an issued token. Nothing is asked for on behalf of a call that could not use it."""
        if self._open_issuing is None:
            raise GatewayError(
                "credential_missing", f"{subject(entry.key)} is a grant, and nothing here issues tokens."
            )
        self._issuing = self._issuing or self._open_issuing()
        if loaded.record.disabled:
            raise GatewayError("credential_disabled", f"{subject(entry.key)} is switched off.")
        if destination.host not in self._hosts(entry, loaded.record, provider):
            raise unbound(entry, destination)
        token = self._issuing.token(entry, loaded, caller, acting_for(entry, caller, use), now)
        finish = partial(self._with_token, entry, loaded, use, provider)
        return _finished(token, finish) if isinstance(token, Awaitable) else finish(token)

    def _with_token(
        self, entry: Entry, loaded: Loaded, use: CredentialUse, provider: Provider | None, token: Token
    ) -> Material:
        """The prepared form of a token. Only what every caller shares is found again by the warm path."""
        loaded = entry.loaded or loaded
        shared = use.impersonate is None and loaded.record.grant is not None and not loaded.record.grant.per_caller
        material = self._prepared(entry, loaded, use, provider, token, whose="" if shared else token.digest)
        if shared:
            entry.last_until(marks(token.issued_at, token.expires_at).stale_at)
        return material

    # Records whose client certificate stands elsewhere.

    def _certified(
        self,
        entry: Entry,
        loaded: Loaded,
        source: Source,
        use: CredentialUse,
        provider: Provider | None,
        destination: Destination,
        now: float,
    ) -> Material | Awaitable[Material]:
        """Material with the certificate of now. None is fetched on behalf of a call that could not use it."""
        check_use(entry, loaded.record, use)
        if destination.host not in self._hosts(entry, loaded.record, provider):
            raise unbound(entry, destination)
        if self._certificates is None:
            raise GatewayError("credential_missing", f"{subject(entry.key)} wants a certificate that nothing here has.")
        current = self._certificates.of(entry.key.tenant, entry.path, source, now)
        finish = partial(self._with_certificate, entry, loaded, use, provider)
        return finish(current) if isinstance(current, Current) else _finished(current, finish)

    def _with_certificate(
        self, entry: Entry, loaded: Loaded, use: CredentialUse, provider: Provider | None, current: Current
    ) -> Material:
        material = self._prepared(entry, loaded, use, provider, None, current.certificate)
        entry.last_until(current.until)
        return material

    def _material(self, entry: Entry, use: CredentialUse, provider: Provider | None, now: float) -> Material:
        loaded = entry.loaded
        if loaded is None:
            refuse(entry, now)
        check_use(entry, loaded.record, use)
        return self._prepared(entry, loaded, use, provider, None)

    def _prepared(
        self,
        entry: Entry,
        loaded: Loaded,
        use: CredentialUse,
        provider: Provider | None,
        token: Token | None,
        certificate: ClientCertificate | None = None,
        whose: str = "",
    ) -> Material:
        """The form in which this token and certificate are sent, made where there is none yet. `whose` keeps it apart
        from those of other callers."""
        form = (use.placement, provider.name if provider is not None else "", whose or None)
        if isinstance(loaded.record.tls, Kept):
            certificate = loaded.record.tls.certificate
        known = entry.prepared.get(form)
        if known is None or known.provider is not provider or not _holds(known.material, token, certificate):
            if len(entry.prepared) >= MAX_PREPARED:
                entry.prepared.clear()
            made = self._make(entry, loaded, use, provider, token, certificate)
            known = entry.prepared[form] = Prepared(provider, made)
        material: Material = known.material
        return material

    def _make(
        self,
        entry: Entry,
        loaded: Loaded,
        use: CredentialUse,
        provider: Provider | None,
        token: Token | None,
        certificate: ClientCertificate | None,
    ) -> Material:
        record = loaded.record
        kind, fields, expires = record.kind, record.fields, record.expires
        if token is not None:
            kind, fields, expires = "bearer", {"token": token.access}, token.expires_at
            if token.fields:
                kind, fields = record.kind, {**record.fields, **token.fields}
        placement = placement_of(use, provider, kind)
        kind = PLACEHOLDERS if isinstance(placement, Placeholders) else kind
        signer, signing = self._signers.get(kind), None
        try:
            if signer is not None:
                signing = signer(fields, placement)
                clears = placement.headers if isinstance(placement, Placeholders) else signing.clears
                injection = Injection(clears=clears, masks=signing.masks)
            elif kind == MTLS:
                injection = Injection()
            elif isinstance(placement, Placeholders | HmacTemplate):
                raise ValueError(f"a record of kind {kind} cannot be placed like this")
            else:
                injection = self._prepare(kind, fields, placement, provider.positions if provider else ())
                if provider is not None and record.vars and (further := provider.headers_for(record.vars)):
                    injection = with_headers(injection, further)
        except ValueError as error:
            raise unfit(entry, error) from None
        hosts = self._hosts(entry, record, provider)
        masks = self._masks_of(injection.masks) if injection.masks else None
        if certificate is not None:
            expires = min(expires or certificate.expires, certificate.expires)
        return Material(
            _label(use, loaded), hosts, injection, expires, masks, token.digest if token else "", signing, certificate
        )

    @staticmethod
    def _hosts(entry: Entry, record: Record, provider: Provider | None) -> frozenset[str]:
        try:
            return record.hosts or (provider.hosts_for(record.vars) if provider else frozenset())
        except ValueError as error:
            raise unfit(entry, error) from None


async def _finished(found: Awaitable[Found], finish: Callable[[Found], Material]) -> Material:
    return finish(await found)


def _holds(material: Material, token: Token | None, certificate: ClientCertificate | None) -> bool:
    return material.issued == (token.digest if token is not None else "") and material.certificate is certificate


def _label(use: CredentialUse, loaded: Loaded) -> str:
    return f"{use.name}@{loaded.version}"


def _replaced(entry: Entry, use: CredentialUse, used: Material) -> bool:
    """Whether the store is known to hold something else than `used` by now, or nothing."""
    if entry.loaded is None:
        return entry.problem != "error"
    return _label(use, entry.loaded) != used.name
