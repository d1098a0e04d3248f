"""Settings made into what the parts of an instance take."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Iterator
from functools import partial
from urllib.parse import urlsplit

from policies.terms import limits
from proxy.errors import ConfigurationError, Fault
from proxy.hardening import read_private
from proxy.listeners.sockets import listener_context
from proxy.model import Destination
from proxy.quotas import Quotas
from proxy.reloading import signature
from proxy.settings import Settings
from proxy.settings.collector import Collector
from proxy.settings.ledger import PostgresLedger
from proxy.settings.store import VaultStore
from proxy.settings.traffic import Listener
from proxy.state_key import derived_key
from proxy.upstream.dial import Parent
from proxy.upstream.ledger.opening import postgres_ledger, sqlite_ledger
from proxy.upstream.ledger.storage import Ledger
from proxy.upstream.retry import RetryPolicy
from proxy.upstream.way import Timeouts
from proxy.wire.framing import Limits
from proxy.wire.pool import PoolKey, PoolSizes

log = logging.getLogger("sluicegate")


class Routes:
    """`routes:` of the configuration. `provider_at` names the catalogue's provider at a host."""

    def __init__(self, settings: Settings, provider_at: Callable[[str], str | None] = lambda host: None) -> None:
        self._settings = settings
        self._provider_at = provider_at
        self._timeouts: dict[tuple[str, str], Timeouts] = {}

    def timeouts(self, provider: str, host: str) -> Timeouts:
        known = self._timeouts.get((provider, host))
        if known is None:
            phases = self._settings.route(provider or None, host).timeouts
            known = Timeouts(phases.connect, phases.head, phases.read)
            if len(self._timeouts) < 4_096:
                self._timeouts[provider, host] = known
        return known

    def retries(self, provider: str, host: str) -> RetryPolicy:
        chosen = self._settings.route(provider or None, host).retries
        return RetryPolicy(chosen.attempts, chosen.max_wait)

    def connect_timeout(self, destination: Destination) -> float:
        return self._settings.route(self._provider_at(destination.host), destination.host).timeouts.connect

    def pool_sizes(self, key: PoolKey) -> PoolSizes:
        host = key.destination.host
        route = self._settings.route(self._provider_at(host), host)
        return PoolSizes(
            route.pool.connections, route.pool.waiting, idle=route.timeouts.idle, wait=route.timeouts.connect
        )


def ledger_of(settings: Settings, instance: str) -> Ledger | None:
    """The ledger, opened by the first key; None where it is turned off. `instance` names this process."""
    if settings.ledger is None:
        return None
    state, chosen = settings.state, settings.ledger
    key = partial(derived_key, state.key_file, "ledger replies")
    if isinstance(chosen, PostgresLedger):
        return postgres_ledger(chosen.url, chosen.password_file, instance, key)
    return sqlite_ledger(state.dir, key)


def limits_of(settings: Settings) -> Limits:
    limits = settings.limits
    return Limits(
        target=limits.request_target,
        head=limits.head,
        lines=limits.header_lines,
        chunk_line=limits.chunk_line,
        trailers=limits.trailers,
        interim=limits.interim_replies,
    )


def quotas_of(settings: Settings) -> Quotas:
    return Quotas(limits((quota.limit() for quota in settings.quotas), "quotas"))


def parent_of(settings: Settings) -> Parent | None:
    if settings.upstream.proxy is None:
        return None
    parts = urlsplit(settings.upstream.proxy)
    return Parent(parts.hostname or "", parts.port or 80)


def back_ends(settings: Settings) -> Iterator[tuple[str, int]]:
    """Host and port of the services behind this proxy, which no call may lead to: Vault, the cluster's API, the
    ledger's database, the collectors of audit and traces."""
    chains = (settings.identity, *(listener.identity for listener in settings.listeners if listener.identity))
    addresses = [member.address for chain in chains for member in chain.chain if member.kind == "token_review"]
    if isinstance(settings.store, VaultStore):
        addresses += settings.store.address
    addresses += (collector.endpoint for _, collector in settings.collectors())
    for address in addresses:
        parts = urlsplit(address)
        yield parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    if isinstance(settings.ledger, PostgresLedger) and settings.ledger.address is not None:
        yield settings.ledger.address


def shown_to(collector: Collector) -> dict[str, str]:
    """The header lines that a collector wants to see. Raises ConfigurationError when the token cannot be read."""
    if collector.token_file is None:
        return {}
    token = read_private(collector.token_file).decode("latin-1").strip()
    if not token or not token.isascii() or not token.isprintable():
        raise ConfigurationError([Fault(str(collector.token_file), 0, "holds no bearer token: one line of plain text")])
    return {"Authorization": f"Bearer {token}"}


def certificate_ends(settings: Settings, authority: float) -> dict[str, float]:
    """Epoch seconds at which our own certificates end: the authority's, and the soonest of the listeners'."""
    from proxy.listeners.authority_files import certificate_end

    ends = [certificate_end(listener.tls.cert) for listener in settings.listeners if listener.tls is not None]
    known = [end for end in ends if end is not None]
    return {"authority": authority, **({"listener": min(known)} if known else {})}


def own_tls(listener: Listener) -> Callable[[], ssl.SSLContext] | None:
    """Makes the listener's contexts, anew when its files changed: certificates are replaced while we run.

    Files that cannot be used leave the last good context in place. Raises what is wrong with the first ones.
    """
    tls = listener.tls
    if tls is None:
        return None
    files = [tls.cert, tls.key, *([tls.client_ca] if tls.client_ca else [])]
    roots = str(tls.client_ca) if tls.client_ca else None
    seen = signature(files)
    kept = listener_context(str(tls.cert), str(tls.key), roots)

    def context() -> ssl.SSLContext:
        nonlocal seen, kept
        now = signature(files)
        if now != seen:
            seen = now
            try:
                kept = listener_context(str(tls.cert), str(tls.key), roots)
            except (OSError, ssl.SSLError) as error:
                log.warning("the listener's new certificate is not taken up: %s", error, extra={"file": str(tls.cert)})
        return kept

    return context
