"""One standing with a Vault: its addresses, our login, the callers' logins, and threads in which hvac may block."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from proxy.credentials.store import NOBODY, Reader
from proxy.credentials.stores.vault_callers import CallerLogin, CallerTokens
from proxy.credentials.stores.vault_errors import VaultRefusal
from proxy.credentials.stores.vault_lanes import Lanes
from proxy.credentials.stores.vault_login import Grant, Login, renew
from proxy.credentials.stores.vault_token import LoginStatus, VaultToken
from proxy.errors import StoreError
from signers.secret import Secret

if TYPE_CHECKING:
    from proxy.credentials.stores.vault_transport import VaultAdapter, VaultTransport

T = TypeVar("T")

RESERVE: Final = 0.25
"""The part of the threads that paths which hang cannot take."""
KEPT_CONNECTIONS: Final = 32


@dataclass(frozen=True, slots=True)
class VaultServer:
    """Where a Vault is and how it is reached; the fields are those of VaultTransport, times in seconds."""

    addresses: Sequence[str]
    namespace: str | None = None
    ca_file: Path | None = None
    client_certificate: tuple[Path, Path] | None = None
    connect_timeout: float = 2.0
    read_timeout: float = 5.0


class VaultSession:
    """Asks a Vault, with a live token.

    login         how the proxy itself gets a token; None when only callers log in
    callers       how a caller's own token becomes one of Vault's; None when the proxy's is used for every read
    threads       requests at once, at most: as many threads are started as requests overlap
    spread        seconds over which logins are spread, so that a fleet that was cut off does not return in one moment
    clock, random monotonic seconds, and 0 to 1 for jitter
    """

    def __init__(
        self,
        server: VaultServer,
        login: Login | None,
        callers: CallerLogin | None = None,
        *,
        threads: int = 512,
        spread: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = random.random,
    ) -> None:
        self._server = server
        self._login = login
        self._spread = spread
        self._random = random
        self._transport: VaultTransport | None = None
        self._token = VaultToken(self._log_in, self._renew, clock, random) if login is not None else None
        self._callers = CallerTokens(callers, self.transport, clock, random) if callers is not None else None
        self._connections = min(threads, KEPT_CONNECTIONS)
        self._lanes = Lanes(threads, max(1, int(threads * RESERVE)))
        self._closed = threading.Event()
        self._upkeep: asyncio.Task[None] | None = None

    @property
    def status(self) -> LoginStatus:
        """State of our own login, for readiness and the operator."""
        if self._token is None:
            return LoginStatus(True, 0, "", "callers log in themselves")
        return self._token.status

    async def start(self) -> None:
        """Log in. Raises StoreError when that fails; logins are then tried in the background until `close`."""
        if self._transport is None:
            self._transport = await self.in_thread(self._connected)
        if self._token is None:
            return
        try:
            await self.in_thread(self._token.current)
        finally:
            if self._upkeep is None:
                self._upkeep = asyncio.get_running_loop().create_task(self._keep_token(self._token))

    async def run(self, operation: Callable[[VaultAdapter], T], reader: Reader = NOBODY) -> T:
        """`ask` in a thread."""
        return await self.in_thread(lambda: self.ask(operation, reader))

    def ask(self, operation: Callable[[VaultAdapter], T], reader: Reader = NOBODY) -> T:
        """One operation with a live token; after a 403 once more with a new one. Blocks; raises StoreError.

        With callers' logins, a read for a caller has that caller's rights and no others.
        """
        kept = self._tokens_of(reader)
        token = kept.current()
        try:
            return operation(self._adapter(token, reader))
        except VaultRefusal as refusal:
            fresh = kept.after_rejection(token) if refusal.status == 403 else None
            if fresh is None:
                raise
        answer = operation(self._adapter(fresh, reader))
        kept.accepted()
        return answer

    def transport(self) -> VaultTransport:
        """The open transport. Raises StoreError before `start`."""
        if self._transport is None:
            raise StoreError("the Vault store is not started")
        return self._transport

    async def close(self) -> None:
        self._closed.set()
        if self._upkeep is not None:
            self._upkeep.cancel()
            await asyncio.wait({self._upkeep})
        self._lanes.close()
        if self._transport is not None:
            self._transport.close()

    async def in_thread(self, function: Callable[[], T], path: str = "") -> T:
        """`function` in one of the session's threads: for work of several requests, on behalf of the record at `path`.

        A path that Vault is slow at waits for others of its kind and keeps no other path waiting.
        """
        return await self._lanes.run(path, function)

    async def _keep_token(self, token: VaultToken) -> None:
        while True:
            pause = await self.in_thread(token.upkeep)
            await asyncio.sleep(pause)

    def _tokens_of(self, reader: Reader) -> VaultToken:
        if self._callers is not None and reader.caller is not None:
            return self._callers.of(reader.caller)
        if self._token is None:
            raise StoreError("the proxy has no login of its own in this Vault; set store.auth.own")
        return self._token

    def _log_in(self) -> Grant:
        if self._login is None:
            raise StoreError("the proxy has no login of its own in this Vault")
        if self._closed.wait(self._spread * self._random()):
            raise StoreError("the Vault store is closed")
        return self._login(self.transport())

    def _renew(self, token: Secret) -> Grant:
        return renew(self.transport(), token)

    def _adapter(self, token: Secret, reader: Reader) -> VaultAdapter:
        from proxy.credentials.stores.vault_transport import VaultAdapter

        return VaultAdapter(self.transport(), token, reader.call_id)

    def _connected(self) -> VaultTransport:
        # hvac and requests are loaded here, in a thread, and only where a Vault is used.
        from proxy.credentials.stores.vault_transport import TransportLimits, VaultTransport

        server = self._server
        deadline = 2 * (server.connect_timeout + server.read_timeout)
        return VaultTransport(
            server.addresses,
            namespace=server.namespace,
            ca_file=server.ca_file,
            client_certificate=server.client_certificate,
            limits=TransportLimits(server.connect_timeout, server.read_timeout, deadline=deadline),
            connections=self._connections,
        )
