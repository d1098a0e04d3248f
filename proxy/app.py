"""Constructs and wires one instance of the proxy, and lives through its life: start, reload, stop."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import signal
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from proxy import __version__, logs, rootless_aiohttp
from proxy.app_audit import Unfinished, open_audit
from proxy.app_control import Operator
from proxy.app_identity import Chains, Fetch, Identities
from proxy.app_path import open_credentials, open_ledger, open_pipeline
from proxy.app_stopping import stop
from proxy.app_terms import Routes, back_ends, certificate_ends, limits_of, own_tls, parent_of
from proxy.app_tracing import open_tracing, traced
from proxy.app_upkeep import Upkeep
from proxy.audit.metrics import Metrics
from proxy.blocks import block_of, refusal
from proxy.control import ControlServer, serve_control
from proxy.credentials.fleet_blocks import FleetBlocks
from proxy.errors import ConfigurationError, GatewayError, StoreError
from proxy.identity.chain import Chain
from proxy.listeners.base_url import BaseUrlListener
from proxy.listeners.certificate_authority import CertificateAuthority
from proxy.listeners.connect import Connect, end_tunnels
from proxy.listeners.forward import ForwardListener
from proxy.listeners.service import Connections, Service, Terms
from proxy.listeners.sockets import bound_socket, serve_socket
from proxy.memory import settle, tune_heap
from proxy.model import Caller
from proxy.opening import open_store, write_back
from proxy.ops import OpsServer, Readiness, serve_ops
from proxy.settings import Settings
from proxy.settings.files import file_faults
from proxy.settings.traffic import Listener
from proxy.token_paths import TokenPaths
from proxy.upstream.dial import Dialler, client_context
from proxy.upstream.fetch import Fetcher
from proxy.upstream.resolver import Resolver as AddressResolver
from proxy.upstream.tls_identity import TlsContexts
from proxy.wire.framing import Limits
from proxy.wire.hop import Patience
from proxy.wire.pool import Pool
from proxy.wire.sweep import Sweep

if TYPE_CHECKING:
    from proxy.audit.exposition import Exposition

log = logging.getLogger("sluicegate")

STORE_RETRY_SECONDS = 1.0


class Outside(NamedTuple):
    """The way to upstreams: which addresses names have, and how those are dialled."""

    addresses: AddressResolver
    dialler: Dialler


class Instance:
    """One running proxy."""

    def __init__(
        self,
        settings: Settings,
        *,
        identities: Callable[[Fetch], Chains] | None = None,
        frozen: bool = False,
        outside: Callable[[Limits], Outside] | None = None,
    ) -> None:
        """`identities` takes the place of the configured ones; `frozen` never looks at a file again; `outside` is
        another way out than the configured one."""
        faults = file_faults(settings)
        if faults:
            raise ConfigurationError(faults)
        self.settings = settings
        self.readiness = Readiness("listeners", "store")
        self.upkeep = Upkeep(self, frozen)
        self.rules = self.upkeep.load_rules()
        self.metrics = Metrics(__version__, self.rules.catalog.outlines)
        self._unfinished = Unfinished(settings.audit)
        self.audit = open_audit(settings.audit)
        self.sweep = Sweep()
        self.connections = Connections(settings.limits.client_connections)
        self.routes = Routes(settings, self._provider_at)
        self._roots: ssl.SSLContext | None = None
        self.contexts = TlsContexts(lambda: self.roots, partial(client_context, settings.upstream.extra_ca_file))
        self.store = write_back(open_store(settings.store, spread_logins=True), settings.state)
        self.limits = limits_of(settings)
        self.addresses, self.dialler = (outside or self._outside)(self.limits)
        self.token_paths = TokenPaths(lambda: self.pipeline.snapshot.forget())
        self.credentials = open_credentials(self)
        self.pool = Pool(self.dialler.dial, self.routes.pool_sizes)
        self.pipeline = open_pipeline(self)
        self.spans = open_tracing(settings.tracing) if settings.tracing is not None else None
        if self.spans is not None:
            self.pipeline.served = traced(self.spans)
        self.ledger = open_ledger(settings, self.pipeline)
        fetch = Fetcher(lambda: self.roots, settings.upstream.proxy).fetch
        self.identities: Chains = identities(fetch) if identities is not None else Identities(settings, fetch)
        self.authority = CertificateAuthority.open(settings.ca.dir, settings.ca.required, time.time())
        self.services = [(listener, self._service(listener)) for listener in settings.listeners]
        for revocations in self.identities.revocations:  # those of the chains that the services have just been given
            revocations.subscribe(self._cut_revoked)
        self.servers: list[asyncio.AbstractServer] = []
        self.stubs: list[asyncio.DatagramTransport] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.ops: OpsServer | None = None
        self._exposition: Exposition | None = None
        self.control: ControlServer | None = None
        self.stopping = asyncio.Event()
        self.store_opened = asyncio.Event()
        self.bound: list[tuple[str, int]] = []
        """Where the listeners are, in the order of the settings."""

    def _outside(self, limits: Limits) -> Outside:
        dialler = Dialler(limits, self.contexts.of, self.routes.connect_timeout, parent_of(self.settings))
        return Outside(AddressResolver(), dialler)

    @property
    def roots(self) -> ssl.SSLContext:
        """The context of outbound TLS, made when the first call needs it."""
        if self._roots is None:
            self._roots = client_context(self.settings.upstream.extra_ca_file)
        return self._roots

    def take_roots(self, roots: ssl.SSLContext) -> None:
        """Trusts other roots from now on; connections that trusted the old ones are not used again."""
        self._roots = roots
        self.contexts.forget()
        self.pool.retire()

    def _terms(self) -> Terms:
        limits = self.settings.limits
        return Terms(
            self.limits,
            Patience(
                limits.request_head_seconds,
                limits.stalled_body_seconds,
                limits.request_body_seconds,
                limits.keepalive_seconds,
            ),
            limits.client_connections,
        )

    def _service(self, listener: Listener) -> Service:
        chain = self.identities.chain(self.settings.identity_of(listener), listener.kind)
        if listener.kind == "base-url":
            base = BaseUrlListener(self.pipeline, chain, self._terms(), self.connections)
            base.scheme = b"https" if listener.tls else b"http"
            base.loopback = listener.bind.loopback
            return base
        if listener.kind == "tools":
            from proxy.tools.calling import ToolsListener

            return ToolsListener(self.pipeline, chain, self._terms(), self.connections)
        forward = self.forward(chain)
        if listener.kind == "transparent":
            from proxy.app_transparent import transparent

            return transparent(self.pipeline, chain, forward.terms, self.connections, forward.connect)
        return forward

    def forward(self, chain: Chain, kind: type[ForwardListener] = ForwardListener) -> ForwardListener:
        """A proxy listener that is not served yet."""
        terms = self._terms()
        forward = kind(self.pipeline, chain, terms, self.connections)
        forward.connect = Connect(self.pipeline, self.authority, self.dialler, terms, self.connections, self.sweep)
        return forward

    async def listen(self, host: str, port: int, service: Service) -> tuple[str, int]:
        """Serves one more listener than the settings name; where it is."""
        sock = bound_socket(host, port)
        (bound,) = self._refuse_ourselves([sock])
        self.servers.append(await serve_socket(sock, service, None))
        return bound

    # Start.

    async def start(self) -> None:
        """Binds, reads and serves. Raises ConfigurationError or OSError; nothing is served then."""
        await self.identities.start()
        sockets = self._bind()
        self.bound = self._refuse_ourselves(sockets)
        self.metrics.connections = self.connection_counts
        self.metrics.audit = self.audit.outbox
        self.metrics.policy_hash = self.pipeline.accounting.policy_hash = self.rules.policies.hash
        self.metrics.credential_resolutions = self.credentials.counts
        self.metrics.spool = self.store
        self.metrics.credential_expiry = self.credentials.expiries
        self.metrics.certificate_expiry = lambda: certificate_ends(self.settings, self.authority.expires)
        self.metrics.breakers_open = lambda: self.pipeline.trouble.shut(time.monotonic())
        rootless_aiohttp.load()
        if self.settings.ops is not None:
            self.ops = await serve_ops(self.settings.ops, self.readiness, self._scrape)
            self.addresses.refuse(frozenset({(ipaddress.ip_address(self.ops.host), self.ops.port)}))
        if self.settings.control is not None:
            self.control = await serve_control(self.settings.control, Operator(self).controls())
        for sock, (listener, service) in zip(sockets, self.services, strict=True):
            self.servers.append(await self._serve(sock, listener, service))
        self.readiness.met("listeners")
        self.sweep.members.add(self.pool)
        self.sweep.follow(self.connections.open)
        self.sweep.follow(self.pipeline.relays)
        self.sweep.start()
        settle()
        self.tasks = [asyncio.create_task(self._open_store())]
        if not self.upkeep.frozen:  # the audit file of commands is shared by those that run
            self.tasks.append(asyncio.create_task(self._report_unfinished()))
            self.tasks.append(asyncio.create_task(self.upkeep.watch()))
        log.info("serving", extra={"bind": ", ".join(str(listener.bind) for listener, _ in self.services)})

    def _bind(self) -> list[socket.socket]:
        """The listeners' sockets. Where a machine has no IPv6, nothing can be redirected to a listener of it."""
        sockets, services = [], []
        for listener, service in self.services:
            try:
                sockets.append(bound_socket(listener.bind.host, listener.bind.port))
            except OSError as error:
                if listener.kind != "transparent" or error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                log.info("no such address here: not served", extra={"bind": str(listener.bind)})
            else:
                services.append((listener, service))
        self.services = services
        return sockets

    async def _serve(self, sock: socket.socket, listener: Listener, service: Service) -> asyncio.AbstractServer:
        if listener.kind == "tools":
            from proxy.tools.calling import ToolsListener
            from proxy.tools.serving import serve_tools

            assert isinstance(service, ToolsListener)
            return await serve_tools(sock, service)
        if listener.kind != "transparent":
            return await serve_socket(sock, service, own_tls(listener))
        from proxy.app_transparent import serve_transparent

        server, stub = await serve_transparent(sock, service, listener)
        if stub is not None:
            self.stubs.append(stub)
        return server

    def _refuse_ourselves(self, sockets: list[socket.socket]) -> list[tuple[str, int]]:
        """No call may lead to these sockets; returns where they are."""
        bound = [(str(host), int(port)) for host, port, *_ in (sock.getsockname() for sock in sockets)]
        self.addresses.refuse(frozenset((ipaddress.ip_address(host), port) for host, port in bound))
        return bound

    async def _open_store(self) -> None:
        """The first login. A store that is away delays readiness, not the listeners."""
        for host, port in back_ends(self.settings):
            await self.addresses.refuse_back_end(host, port)
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
        await self.token_paths.learn(self.store.store)
        self.readiness.met("store")
        self.store_opened.set()
        if self.settings.blocks is not None:
            wanted = self.settings.blocks
            await FleetBlocks(self.store, wanted.path, wanted.every, self._take_blocks).run()

    async def _report_unfinished(self) -> None:
        await self.store_opened.wait()  # the file may be long, and nobody waits for what it says
        await self._unfinished.report(self.audit)

    def _take_blocks(self, fleet: tuple[Mapping[str, str], ...]) -> None:
        """Stops what is blocked in the whole fleet from now on, calls in progress included."""
        blocks = tuple(map(block_of, fleet))
        self.pipeline.blocks.take_fleet(blocks)
        for block in blocks:
            self.cut(block.stops, refusal(block))

    # While it runs.

    def _cut_revoked(self) -> None:
        """A revocation list has changed: whoever is on it loses what is still running."""
        error = GatewayError("identity_invalid", "The session was revoked.")
        self.cut(lambda caller, _, __: any(known.revoked(caller) for known in self.identities.revocations), error)

    def cut(self, caught: Callable[[Caller, str, str], bool], error: GatewayError) -> int:
        """Ends what whoever is caught by (caller, provider, credential) has open; how many calls and relays it was."""
        ended = self.pipeline.cut(caught, error)
        end_tunnels(self.connections, caught)
        return ended

    def _provider_at(self, host: str) -> str | None:
        found = self.rules.catalog.find(host, None)
        return found.name if found is not None else None

    def connection_counts(self) -> Iterator[tuple[str, str, int]]:
        busy = len(self.pipeline.running)
        yield "client", "active", busy
        yield "client", "idle", max(0, len(self.connections.open) - busy)
        yield from self.pool.counts()

    def _scrape(self, accept: str) -> tuple[bytes, str]:
        from proxy.audit.exposition import Exposition  # its library is loaded when somebody scrapes

        if self._exposition is None:
            self._exposition = Exposition(self.metrics)
        self.metrics.certificates_minted = self.authority.minted
        return self._exposition.render(accept)

    # Stop.

    async def stop(self, at_once: asyncio.Event) -> None:
        """Stops accepting, lets running exchanges end within the grace time, closes tunnels, flushes the audit."""
        await stop(self, at_once)


async def serve(settings: Settings) -> int:
    """Runs until SIGTERM or SIGINT; returns the exit code. A second signal stops at once."""
    loop = asyncio.get_running_loop()
    logs.watch(loop)
    tune_heap()
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
