"""Client certificates that do not stand in their record: read from the operator's folder, or issued by Vault.

An issued one is renewed when two thirds of its life are over, by one request however many calls want it, while those go
on with the one that holds. Files are looked at again every few seconds, and read when they were replaced.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, NamedTuple

from proxy.credentials.tls_record import CertificateFiles, PkiRequest
from proxy.errors import GatewayError, StoreError
from signers.client_certificate import MAX_PEM, ClientCertificate, client_certificate
from signers.secret import Secret

log = logging.getLogger(__name__)

Source = CertificateFiles | PkiRequest
RENEW_AT: Final = 2 / 3
"""Of the life of an issued certificate."""
LOOK_EVERY: Final = 5.0
"""Seconds between two looks at files, and between two tries to renew."""
MAX_KNOWN: Final = 10_000
WAIT: Final = 15.0
"""Seconds that a call waits for its first certificate."""

Issue = Callable[[PkiRequest], Awaitable[ClientCertificate]]
"""Asks for a certificate. Raises StoreError, or ValueError for an answer that holds none."""


class Current(NamedTuple):
    """A certificate to be used now, and until when nobody has to ask again (epoch seconds)."""

    certificate: ClientCertificate
    until: float


class _Known:
    """What is known of one source."""

    __slots__ = ("current", "failure", "renewal", "retry_at", "seen")

    def __init__(self) -> None:
        self.current: Current | None = None
        self.renewal: asyncio.Task[Current] | None = None
        self.failure: Exception | None = None
        """What the last try came to; no other is made before `retry_at`."""
        self.retry_at = 0.0
        self.seen: tuple[object, ...] = ()


class ClientCertificates:
    """Finds the certificates of records that name files or a role.

    folder  has a folder for each tenant with its files; None where the operator names none
    issue   None where the store is no Vault
    clock   epoch seconds
    """

    def __init__(self, folder: Path | None, issue: Issue | None, clock: Callable[[], float]) -> None:
        self._folder = folder
        self._issue = issue
        self._clock = clock
        self._known: dict[tuple[str, str, Source], _Known] = {}

    def of(self, tenant: str, path: str, source: Source, now: float) -> Current | Awaitable[Current]:
        """The certificate of the tenant's record at `path`: at once when one holds. Raises (or the awaitable raises)
        GatewayError: `credential_missing` where it cannot be had at all, `credential_unavailable` for now."""
        key = (tenant, path, source)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            known = self._known[key] = _Known()
        found = known.current
        if found is not None and now < found.until:
            return found
        none = found is None or now >= found.certificate.expires
        if none and known.failure is not None and now < known.retry_at:
            raise _refusal(path, known.failure)
        renewal = self._renewal(tenant, path, source, known)
        if found is None or none:
            return self._waited(path, renewal)
        # The one in use holds while the next is fetched.
        known.current = Current(found.certificate, min(now + LOOK_EVERY, found.certificate.expires))
        return known.current

    def _renewal(self, tenant: str, path: str, source: Source, known: _Known) -> asyncio.Task[Current]:
        if known.renewal is None:
            known.renewal = asyncio.get_running_loop().create_task(self._fetched(tenant, source, known))
            known.renewal.add_done_callback(lambda task: self._renewed(path, known, task))
        return known.renewal

    def _renewed(self, path: str, known: _Known, task: asyncio.Task[Current]) -> None:
        known.renewal = None
        if task.cancelled():
            return
        failure = task.exception()
        known.failure, known.retry_at = failure if isinstance(failure, Exception) else None, self._clock() + LOOK_EVERY
        if failure is None:
            known.current = task.result()
        else:
            said = str(failure) if isinstance(failure, StoreError | ValueError | OSError) else type(failure).__name__
            log.warning("no client certificate for %s: %s", path, said)

    async def _waited(self, path: str, renewal: asyncio.Task[Current]) -> Current:
        try:
            async with asyncio.timeout(WAIT):
                return await asyncio.shield(renewal)
        except (ValueError, StoreError, OSError, TimeoutError) as failure:
            raise _refusal(path, failure) from None

    async def _fetched(self, tenant: str, source: Source, known: _Known) -> Current:
        now = self._clock()
        if isinstance(source, PkiRequest):
            if self._issue is None:
                raise ValueError("a pki role needs Vault as the store")
            if source.role.rpartition(".")[0] != tenant:  # records are the tenants' own, the login is everybody's
                raise ValueError(f"pki.role of a record of tenant {tenant} must be called {tenant}.NAME")
            issued = await self._issue(source)
            return Current(issued, now + (issued.expires - now) * RENEW_AT)
        return await asyncio.to_thread(self._read, tenant, source, known, now)

    def _read(self, tenant: str, source: CertificateFiles, known: _Known, now: float) -> Current:
        if self._folder is None:
            raise ValueError("upstream.client_certificates names no folder")
        files = [self._folder / tenant / name for name in (source.certificate, source.private_key, source.ca) if name]
        seen = tuple((stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in map(os.stat, files))
        if known.current is not None and seen == known.seen:
            return Current(known.current.certificate, now + LOOK_EVERY)
        texts = [_text(file) for file in files]
        made = client_certificate(texts[0], Secret(texts[1]), source.passphrase, texts[2] if source.ca else "")
        known.seen = seen
        if known.current is not None and made.fingerprint == known.current.certificate.fingerprint:
            made = known.current.certificate
        return Current(made, now + LOOK_EVERY)

    async def close(self) -> None:
        """Ends renewals under way."""
        tasks = [known.renewal for known in self._known.values() if known.renewal is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _refusal(path: str, failure: Exception) -> GatewayError:
    name = f"The client certificate of record {path.rpartition('/')[2]!r}"
    if isinstance(failure, ValueError):
        return GatewayError("credential_missing", f"{name} cannot be used as it is configured.")
    return GatewayError("credential_unavailable", f"{name} cannot be had just now.", retry_after=int(LOOK_EVERY))


def _text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(MAX_PEM).decode("ascii")
