"""Constructs and wires one instance of the proxy, and lives through its life: start, reload, stop."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import logging
import signal
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from proxy import __version__, logs
from proxy.app_identity import Identities
from proxy.audit.exposition import Exposition
from proxy.audit.metrics import Metrics
from proxy.audit.sink import AuditSink, Output
from proxy.control import Controls, ControlServer, serve_control
from proxy.credentials.resolve import Resolver
from proxy.errors import ConfigurationError, StoreError
from proxy.explanation import explain, question
from proxy.listeners.base_url import BaseUrlListener
from proxy.listeners.certificate_authority import CertificateAuthority
from proxy.listeners.connect import Connect
from proxy.listeners.forward import ForwardListener
from proxy.listeners.service import Connections, Service, Terms
from proxy.listeners.sockets import bound_socket, listener_context, serve_socket
from proxy.model import Caller, Destination
from proxy.opening import open_store, paths_and_limits
from proxy.ops import OpsServer, Readiness, serve_ops
from proxy.pipeline import Pipeline
from proxy.responses.masking import Masks
from proxy.routing import Snapshot
from proxy.rules import Rules, load_rules
from proxy.settings import Settings
from proxy.settings.files import file_faults
from proxy.settings.model import FileAudit
from proxy.settings.store import VaultStore
from proxy.settings.traffic import Listener
from proxy.upstream.addresses import Endpoint
from proxy.upstream.dial import Dialler, Parent, client_context
from proxy.upstream.exchange import Timeouts
from proxy.upstream.fetch import Fetcher
from proxy.upstream.resolver import Resolver as AddressResolver
from proxy.wire.framing import Limits
from proxy.wire.pool import Pool, PoolKey, PoolSizes
from proxy.wire.server_connection import Patience
from proxy.wire.sweep import Sweep
from signers.placement import prepare
from signers.table import SIGNERS

log = logging.getLogger("sluicegate")

WATCH_SECONDS = 1.0
"""How often files that may be replaced while we run are looked at."""
STORE_RETRY_SECONDS = 1.0


class Routes:
    """`routes:` of the configuration, looked up once for each provider and host."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._timeouts: dict[tuple[str, str], Timeouts] = {}

    def timeouts(self, provider: str, host: str) -> Timeouts:
        known = self._timeouts.get((provider, host))
        if known is None:
            phases = self._settings.route(provider or None, host).timeouts
            known = Timeouts(phases.connect, phases.head, phases.read)
            if len(self._timeouts) < 4_096:
                self._timeouts[provider, host] = known
        return known

    def connect_timeout(self, destination: Destination) -> float:
        return self._settings.route(None, destination.host).timeouts.connect

    def pool_sizes(self, key: PoolKey) -> PoolSizes:
        route = self._settings.route(None, key.destination.host)
        return PoolSizes(
            route.pool.connections, route.pool.waiting, idle=route.timeouts.idle, wait=route.timeouts.connect
        )


class Instance:
    """One running proxy."""

    def __init__(self, settings: Settings) -> None:
        faults = file_faults(settings)
        if faults:
            raise ConfigurationError(faults)
        self.settings = settings
        self.readiness = Readiness("listeners", "store")
        self.rules = self._load_rules()
        self.metrics = Metrics(__version__, self.rules.catalog.providers)
        self.audit = AuditSink(Output(settings.audit.path if isinstance(settings.audit, FileAudit) else None))
        self.sweep = Sweep()
        self.connections = Connections(settings.limits.client_connections)
        self.routes = Routes(settings)
        self._roots: ssl.SSLContext | None = None
        self.store = open_store(settings.store)
        paths, cache = paths_and_limits(settings.store)
        self.credentials = Resolver(
            self.store,
            prepare,
            clock=time.time,
            paths=paths,
            limits=cache,
            on_read=self._credential_read,
            on_request=lambda result, seconds: self.metrics.store_request(settings.store.kind, "read", result, seconds),
            masks_of=Masks,
            signers=SIGNERS,
        )
        self.addresses = AddressResolver()
        self.limits = _limits(settings)
        self.dialler = Dialler(self.limits, lambda _: self.roots, self.routes.connect_timeout, _parent(settings))
        self.pool = Pool(self.dialler.dial, self.routes.pool_sizes)
        self.pipeline = Pipeline(
            Snapshot(self.rules.policies, self.rules.catalog),
            self.credentials,
            self.addresses,
            self.pool,
            self.routes,
            self.audit,
            self.metrics,
            settings.limits.in_flight,
            self.sweep,
        )
        self.identities = Identities(settings, Fetcher(lambda: self.roots, settings.upstream.proxy).fetch)
        self.authority = CertificateAuthority.open(settings.ca.dir, settings.ca.required, time.time())
        self.services = [(listener, self._service(listener)) for listener in settings.listeners]
        self._servers: list[asyncio.AbstractServer] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._ops: OpsServer | None = None
        self._control: ControlServer | None = None
        self.stopping = asyncio.Event()

    @property
    def roots(self) -> ssl.SSLContext:
        """The context of outbound TLS, made when the first call needs it."""
        if self._roots is None:
            self._roots = client_context(self.settings.upstream.extra_ca_file)
        return self._roots

    def _service(self, listener: Listener) -> Service:
        limits = self.settings.limits
        terms = Terms(
            self.limits,
            Patience(
                limits.request_head_seconds,
                limits.stalled_body_seconds,
                limits.request_body_seconds,
                limits.keepalive_seconds,
            ),
            limits.client_connections,
        )
        chain = self.identities.chain(self.settings.identity_of(listener), listener.kind)
        if listener.kind == "base-url":
            base = BaseUrlListener(self.pipeline, chain, terms, self.connections)
            base.scheme = b"https" if listener.tls else b"http"
            return base
        forward = ForwardListener(self.pipeline, chain, terms, self.connections)
        forward.connect = Connect(self.pipeline, self.authority, self.dialler, terms, self.connections, self.sweep)
        return forward

    # Start.

    async def start(self) -> None:
        """Binds, reads and serves. Raises ConfigurationError or OSError; nothing is served then."""
        await self.identities.start()
        sockets = [bound_socket(listener.bind.host, listener.bind.port) for listener, _ in self.services]
        self._refuse_ourselves(sockets)
        self.metrics.connections = self._connection_counts
        self.metrics.audit = self.audit.output
        self.metrics.policy_hash = self.rules.policies.hash
        self.metrics.credential_resolutions = self.credentials.counts
        if self.settings.ops is not None:
            self._ops = await serve_ops(self.settings.ops, self.readiness, Exposition(self.metrics).render)
            self.addresses.refuse(frozenset({(ipaddress.ip_address(self._ops.host), self._ops.port)}))
        if self.settings.control is not None:
            self._control = await serve_control(self.settings.control, self._controls())
        for sock, (listener, service) in zip(sockets, self.services, strict=True):
            self._servers.append(await serve_socket(sock, service, _own_tls(listener)))
        self.readiness.met("listeners")
        self.sweep.members.add(self.pool)
        self.sweep.follow(self.connections.open)
        self.sweep.follow(self.pipeline.relays)
        self.sweep.start()
        _settle_memory()
        self._tasks = [asyncio.create_task(self._open_store()), asyncio.create_task(self._watch())]
        for name in ("state", "ledger"):
            if getattr(self.settings, name) is not None:
                log.warning("%s is set in the configuration, but this version does not use it", name)
        log.info("serving", extra={"listeners": ", ".join(str(listener.bind) for listener, _ in self.services)})

    def _refuse_ourselves(self, sockets: list[socket.socket]) -> None:
        own: set[Endpoint] = set()
        for sock in sockets:
            host, port = sock.getsockname()[:2]
            own.add((ipaddress.ip_address(host), port))
        self.addresses.refuse(frozenset(own))

    async def _open_store(self) -> None:
        """The first login. A store that is away delays readiness, not the listeners."""
        if isinstance(self.settings.store, VaultStore):
            for address in self.settings.store.address:
                parts = urlsplit(address)
                port = parts.port or (443 if parts.scheme == "https" else 80)
                await self.addresses.refuse_back_end(parts.hostname or "", port)
        reported = ""
        while True:
            try:
                await self.store.start()
                break
            except StoreError as error:
                if str(error) != reported:
                    log.warning("the credential store is not ready: %s", error)
                    reported = str(error)
            await asyncio.sleep(STORE_RETRY_SECONDS)
        self.readiness.met("store")

    # While it runs.

    def _load_rules(self) -> Rules:
        wanted = self.settings.policies
        return load_rules(wanted.dirs, wanted.floor, self.settings.providers, wanted.default)

    def reload(self) -> dict[str, Any]:
        """Takes policies, providers and the authority anew; a fault keeps what was there and is raised."""
        try:
            rules = self._load_rules()
        except ConfigurationError:
            self.metrics.policy_reload("failed")
            raise
        self.rules = rules
        self.pipeline.snapshot = Snapshot(rules.policies, rules.catalog)
        self.metrics.policy_hash = rules.policies.hash
        self.metrics.policy_reload("ok")
        self.authority.reload(time.time())
        return {"policies": rules.policies.hash}

    async def _watch(self) -> None:
        """Takes up an authority that was replaced on disk or is due for renewal."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                self.authority.reload(time.time())
            except ConfigurationError as error:
                log.warning("the new certificate authority is not taken up: %s", error)

    def _credential_read(self, path: str, result: str, caller: Caller) -> None:
        self.audit.credential_read(path, result, caller, time.time())

    def _connection_counts(self) -> Iterator[tuple[str, str, int]]:
        busy = len(self.pipeline.running)
        yield "client", "active", busy
        yield "client", "idle", max(0, len(self.connections.open) - busy)
        yield from self.pool.counts()

    def _controls(self) -> Controls:
        return Controls(status=self.status, reload=self.reload, drain=self._drain_on_request, explain=self._explain)

    def status(self) -> dict[str, Any]:
        """What the operator's socket shows."""
        documents, rules = self.rules.policies.size
        return {
            "version": __version__,
            "ready": self.readiness.ready,
            "waiting_for": list(self.readiness.waiting_for),
            "listeners": [{"kind": listener.kind, "bind": str(listener.bind)} for listener, _ in self.services],
            "policies": {"hash": self.rules.policies.hash, "documents": documents, "rules": rules},
            "calls_in_flight": len(self.pipeline.running),
            "connections": [
                {"side": side, "state": state, "count": count} for side, state, count in self._connection_counts()
            ],
            "authority_expires": self.authority.expires,
        }

    def _explain(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        return explain(self.rules, question(asked))

    def _drain_on_request(self) -> dict[str, Any]:
        self.stopping.set()
        return {"draining": True}

    # Stop.

    async def stop(self, at_once: asyncio.Event) -> None:
        """Stops accepting, lets running exchanges end within the grace time, closes tunnels, flushes the audit."""
        self.readiness.stop()
        for server in self._servers:
            server.close()
        self.connections.drain()
        end = time.monotonic() + self.settings.limits.grace_seconds
        while self._exchanging and time.monotonic() < end and not at_once.is_set():
            await asyncio.sleep(0.02)
        for relay in tuple(self.pipeline.relays):
            relay.cut()
        for connection in tuple(self.connections.open):
            connection.cut()
        self.sweep.stop()
        self.pool.close()
        self.identities.stop()
        for task in self._tasks:
            task.cancel()
        if self._control is not None:
            await self._control.close()
        if self._ops is not None:
            await self._ops.close()
        await self.credentials.close()
        await self.store.close()
        self.authority.close()
        self.audit.close()

    @property
    def _exchanging(self) -> bool:
        """Whether calls are running that are not opaque relays: those have no end to wait for."""
        return len(self.pipeline.running) > len(self.pipeline.relays)


def _settle_memory() -> None:
    """What was made at start stays: the collector need not look at it again. Calls leave no cycles behind (they are
    counted in a test), so that it has little to do and may do it seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def _limits(settings: Settings) -> Limits:
    limits = settings.limits
    return Limits(
        target=limits.request_target,
        head=limits.head,
        lines=limits.header_lines,
        chunk_line=limits.chunk_line,
        trailers=limits.trailers,
        interim=limits.interim_replies,
    )


def _parent(settings: Settings) -> Parent | None:
    if settings.upstream.proxy is None:
        return None
    parts = urlsplit(settings.upstream.proxy)
    return Parent(parts.hostname or "", parts.port or 80)


def _own_tls(listener: Listener) -> Any:
    """Makes the listener's contexts, anew when its files changed: certificates are replaced while we run."""
    tls = listener.tls
    if tls is None:
        return None
    kept: tuple[tuple[int, ...], ssl.SSLContext] | None = None

    def context() -> ssl.SSLContext:
        nonlocal kept
        files = [tls.cert, tls.key, *([tls.client_ca] if tls.client_ca else [])]
        seen = tuple(path.stat().st_mtime_ns for path in files)
        if kept is None or kept[0] != seen:
            roots = str(tls.client_ca) if tls.client_ca else None
            kept = (seen, listener_context(str(tls.cert), str(tls.key), roots))
        return kept[1]

    context()
    return context


async def serve(settings: Settings) -> int:
    """Runs until SIGTERM or SIGINT; returns the exit code. A second signal stops at once."""
    loop = asyncio.get_running_loop()
    logs.watch(loop)
    instance = Instance(settings)
    at_once = asyncio.Event()

    def signalled() -> None:
        if instance.stopping.is_set():
            at_once.set()
        instance.stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled)
    await instance.start()
    await instance.stopping.wait()
    log.info("stopping")
    await instance.stop(at_once)
    return 1 if at_once.is_set() else 0
