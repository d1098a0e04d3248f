"""The instance's certificate authority: one TLS server context for each host it stands in for."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple, Self

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from proxy.errors import GatewayError
from proxy.listeners.authority_files import FileStates, certificate_pem, file_states, is_due, open_authority
from proxy.listeners.certificates import Authority, generate_key, leaf_certificate
from proxy.listeners.server_contexts import server_context

CONTEXTS: Final = 1024
"""How many hosts' contexts are kept; one is about 20 KB."""
PENDING: Final = 64
"""How many hosts may wait for their certificate; the next is told to come back."""


class _Leaf(NamedTuple):
    context: ssl.SSLContext
    fresh_until: float


class CertificateAuthority:
    """Mints leaves off the event loop, one for each host at a time, and keeps the most recently used contexts.

    All leaves share one key, which lives in memory only. `minted` counts certificates made, for the metric.
    """

    @classmethod
    def open(cls, directory: Path, required: bool, now: float) -> Self:
        """The authority of `directory`, made there if missing unless `required`. Raises ConfigurationError."""
        return cls(directory, required=required, now=now)

    def __init__(
        self,
        directory: Path,
        *,
        required: bool,
        now: float,
        clock: Callable[[], float] = time.time,
        capacity: int = CONTEXTS,
    ) -> None:
        self._directory = directory
        self._required = required
        self._clock = clock
        self._capacity = capacity
        self._leaf_key = generate_key()
        self._leaf_key_pem = self._leaf_key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,  # OpenSSL decodes it faster than PKCS 8
            serialization.NoEncryption(),
        )
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="certificates")
        self._leaves: OrderedDict[str, _Leaf] = OrderedDict()
        self._pending: dict[str, asyncio.Task[ssl.SSLContext]] = {}
        self.minted = 0
        # Taken before the files are read: what is replaced meanwhile is found by the next reload.
        self._states: FileStates | None = file_states(directory)
        self._authority: Authority = open_authority(directory, required=required, now=now)

    @property
    def certificate_pem(self) -> str:
        """The certificates that clients have to trust, PEM."""
        return certificate_pem(self._authority)

    @property
    def expires(self) -> float:
        """Epoch seconds at which the authority's certificate ends."""
        return self._authority.certificate.not_valid_after_utc.timestamp()

    def context_for(self, host: str) -> ssl.SSLContext | Awaitable[ssl.SSLContext]:
        """The server context for a canonical host name or IP literal; at once when it is there and in the first half
        of its life.

        Raises `overloaded` when too many hosts are waiting; the awaitable raises `internal` when the authority has
        expired.
        """
        leaf = self._leaves.get(host)
        if leaf is not None and self._clock() < leaf.fresh_until:
            self._leaves.move_to_end(host)
            return leaf.context
        return asyncio.shield(self._pending.get(host) or self._start(host))

    def reload(self, now: float) -> bool:
        """Takes up files replaced on disk and renews a certificate of ours near its end; True when it changed.

        Call it every few seconds. Where files are missing, or on ConfigurationError, the authority in use stays; half
        a replacement, seen between two writes, is read again at the next call.
        """
        current = file_states(self._directory)
        if current is None:
            return False
        if current == self._states and (self._required or not is_due(self._authority, now)):
            return False
        authority = open_authority(self._directory, required=self._required, now=now)
        changed = authority.certificate != self._authority.certificate
        self._authority, self._states = authority, current
        if changed:
            self._leaves.clear()
            self._pending.clear()
        return changed

    def close(self) -> None:
        """Ends the minting thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _start(self, host: str) -> asyncio.Task[ssl.SSLContext]:
        if len(self._pending) >= PENDING:
            raise GatewayError("overloaded", "Too many hosts wait for a certificate.", retry_after=1)
        task = asyncio.create_task(self._mint(host, self._authority))
        self._pending[host] = task
        task.add_done_callback(lambda done: self._forget(host, done))
        return task

    def _forget(self, host: str, task: asyncio.Task[ssl.SSLContext]) -> None:
        if self._pending.get(host) is task:
            del self._pending[host]
        if not task.cancelled():
            task.exception()  # a caller that left has nobody else to fetch it

    async def _mint(self, host: str, authority: Authority) -> ssl.SSLContext:
        now = self._clock()
        loop = asyncio.get_running_loop()
        try:
            leaf = await loop.run_in_executor(self._thread, self._make_leaf, host, authority, now)
        except ValueError:
            raise GatewayError("internal", "This proxy's certificate authority has expired.") from None
        self.minted += 1
        if authority is self._authority:
            self._keep(host, leaf)
        return leaf.context

    def _make_leaf(self, host: str, authority: Authority, now: float) -> _Leaf:
        certificate = leaf_certificate(host, self._leaf_key, authority, now)
        chain = [certificate, *(link for link in authority.chain if link.issuer != link.subject)]
        context = server_context(self._leaf_key_pem + b"".join(map(_pem, chain)))
        return _Leaf(context, (now + certificate.not_valid_after_utc.timestamp()) / 2)

    def _keep(self, host: str, leaf: _Leaf) -> None:
        self._leaves[host] = leaf
        self._leaves.move_to_end(host)
        while len(self._leaves) > self._capacity:
            self._leaves.popitem(last=False)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
