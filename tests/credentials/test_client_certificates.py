"""Certificates from files and from a role: asked for once, renewed at two thirds, used until they end."""

from __future__ import annotations

import asyncio
import datetime
import os
from collections.abc import Awaitable
from pathlib import Path

import pytest
import trustme

from proxy.credentials.client_certificates import LOOK_EVERY, ClientCertificates, Current
from proxy.credentials.tls_record import CertificateFiles, PkiRequest
from proxy.errors import GatewayError, StoreError
from signers.client_certificate import ClientCertificate, client_certificate
from signers.secret import Secret
from tests.credentials.stubs import Clock

TENANT, PATH = "acme", "tenants/acme/orders"
ROLE = PkiRequest("acme.agents", "pki", "bot.example", 300)
FILES = CertificateFiles("tls.crt", "tls.key")
CA = trustme.CA()
START = 1_900_000_000.0


class Issuer:
    """A PKI engine; each certificate lasts 300 seconds from the clock's now."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.asked = 0
        self.down: Exception | None = None
        self.gate: asyncio.Event | None = None

    async def __call__(self, request: PkiRequest) -> ClientCertificate:
        self.asked += 1
        if self.gate is not None:
            await self.gate.wait()
        await asyncio.sleep(0)
        if self.down is not None:
            raise self.down
        end = datetime.datetime.fromtimestamp(self.clock.now + request.ttl, datetime.UTC)
        leaf = CA.issue_cert(f"n{self.asked}.example", not_after=end)
        chain = "".join(part.bytes().decode() for part in leaf.cert_chain_pems)
        return client_certificate(chain, Secret(leaf.private_key_pem.bytes().decode()))


@pytest.fixture
def clock() -> Clock:
    return Clock(START)


@pytest.fixture
def issuer(clock: Clock) -> Issuer:
    return Issuer(clock)


async def shown(certificates: ClientCertificates, now: float, source: PkiRequest | CertificateFiles = ROLE) -> Current:
    found = certificates.of(TENANT, PATH, source, now)
    return await found if isinstance(found, Awaitable) else found


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_calls_that_come_together_ask_once(clock: Clock, issuer: Issuer) -> None:
    certificates = ClientCertificates(None, issuer, clock)
    found = await asyncio.gather(*(shown(certificates, START) for _ in range(20)))
    assert issuer.asked == 1
    assert len({current.certificate.fingerprint for current in found}) == 1
    assert (await shown(certificates, START + 100)).certificate is found[0].certificate
    assert issuer.asked == 1


async def test_it_is_renewed_at_two_thirds_while_the_old_one_is_used(clock: Clock, issuer: Issuer) -> None:
    certificates = ClientCertificates(None, issuer, clock)
    first = await shown(certificates, START)
    assert START + 190 < first.until < START + 201
    clock.now = START + 201
    during = certificates.of(TENANT, PATH, ROLE, clock.now)
    assert isinstance(during, Current)  # no call waits
    assert during.certificate is first.certificate
    await settled()
    after = await shown(certificates, clock.now)
    assert after.certificate is not first.certificate
    assert issuer.asked == 2


async def test_while_renewals_fail_it_is_used_until_it_ends_and_no_longer(clock: Clock, issuer: Issuer) -> None:
    certificates = ClientCertificates(None, issuer, clock)
    first = await shown(certificates, START)
    issuer.down = StoreError("sealed")
    for age in (201, 202, 203, 299):
        assert (await shown(certificates, START + age)).certificate is first.certificate
        await settled()
    assert issuer.asked <= 4  # a failed one is not asked for again at once
    with pytest.raises(GatewayError) as refused:
        await shown(certificates, START + 301)
    assert (refused.value.code.name, refused.value.retry_after) == ("credential_unavailable", int(LOOK_EVERY))
    issuer.down, clock.now = None, START + 310
    assert (await shown(certificates, clock.now)).certificate is not first.certificate


@pytest.mark.parametrize(
    ("down", "code"), [(StoreError("sealed"), "credential_unavailable"), (ValueError("none"), "credential_missing")]
)
async def test_a_first_one_that_cannot_be_had_is_not_asked_for_at_every_call(
    clock: Clock, issuer: Issuer, down: Exception, code: str
) -> None:
    certificates = ClientCertificates(None, issuer, clock)
    issuer.down = down
    for _ in range(3):
        with pytest.raises(GatewayError) as refused:
            await shown(certificates, clock.now)
        assert refused.value.code.name == code
    assert issuer.asked == 1
    issuer.down = None
    clock.now += LOOK_EVERY
    assert (await shown(certificates, clock.now)).certificate is not None


async def test_a_caller_that_leaves_does_not_end_the_request(clock: Clock, issuer: Issuer) -> None:
    issuer.gate = asyncio.Event()
    certificates = ClientCertificates(None, issuer, clock)
    first = asyncio.ensure_future(shown(certificates, START))
    second = asyncio.ensure_future(shown(certificates, START))
    await settled()
    first.cancel()
    issuer.gate.set()
    assert (await second).certificate is not None
    assert issuer.asked == 1
    await certificates.close()


async def test_another_record_or_role_is_another_certificate(clock: Clock, issuer: Issuer) -> None:
    certificates = ClientCertificates(None, issuer, clock)
    first = await shown(certificates, START)
    other = await shown(certificates, START, PkiRequest("acme.agents", "pki", "other.example", 300))
    elsewhere = certificates.of(TENANT, "tenants/acme/others", ROLE, START)
    assert isinstance(elsewhere, Awaitable)
    assert len({found.certificate.fingerprint for found in (first, other, await elsewhere)}) == 3


async def test_without_vault_a_role_is_refused(clock: Clock) -> None:
    with pytest.raises(GatewayError) as refused:
        await shown(ClientCertificates(None, None, clock), START)
    assert refused.value.code.name == "credential_missing"


@pytest.mark.parametrize("tenant", ["globex", "acm", "acme.agents", ""])
async def test_a_role_called_after_another_tenant_is_refused(clock: Clock, issuer: Issuer, tenant: str) -> None:
    certificates = ClientCertificates(None, issuer, clock)
    await shown(certificates, START)
    found = certificates.of(tenant, PATH, ROLE, START)
    assert isinstance(found, Awaitable)
    with pytest.raises(GatewayError) as refused:
        await found
    assert refused.value.code.name == "credential_missing"
    assert issuer.asked == 1


async def test_files_of_another_tenant_are_not_looked_at(tmp_path: Path, clock: Clock) -> None:
    certificates = ClientCertificates(tmp_path, None, clock)
    written(tmp_path, "one.example")
    await shown(certificates, START, FILES)
    found = certificates.of("globex", PATH, FILES, START)
    assert isinstance(found, Awaitable)
    with pytest.raises(GatewayError) as refused:
        await found
    assert refused.value.code.name == "credential_unavailable"


def written(folder: Path, name: str) -> None:
    folder = folder / TENANT
    folder.mkdir(exist_ok=True)
    leaf = CA.issue_cert(name)
    (folder / "tls.crt").write_text("".join(part.bytes().decode() for part in leaf.cert_chain_pems))
    (folder / "tls.key").write_text(leaf.private_key_pem.bytes().decode())
    for file in ("tls.crt", "tls.key"):
        os.utime(folder / file, ns=(len(name), len(name)))


async def test_files_are_read_when_they_were_replaced(tmp_path: Path, clock: Clock) -> None:
    certificates = ClientCertificates(tmp_path, None, clock)
    written(tmp_path, "one.example")
    first = await shown(certificates, START, FILES)
    clock.now = START + LOOK_EVERY + 1
    await shown(certificates, clock.now, FILES)
    await certificates_idle(certificates)
    assert (await shown(certificates, clock.now, FILES)).certificate is first.certificate
    written(tmp_path, "another.example")
    clock.now += LOOK_EVERY + 1
    assert (await shown(certificates, clock.now, FILES)).certificate is first.certificate  # looked at meanwhile
    await certificates_idle(certificates)
    assert (await shown(certificates, clock.now, FILES)).certificate is not first.certificate


async def certificates_idle(certificates: ClientCertificates) -> None:
    tasks = [known.renewal for known in certificates._known.values() if known.renewal is not None]
    await asyncio.gather(*tasks)
    await settled()


async def test_files_that_are_replaced_by_halves_leave_the_good_pair(tmp_path: Path, clock: Clock) -> None:
    certificates = ClientCertificates(tmp_path, None, clock)
    written(tmp_path, "one.example")
    first = await shown(certificates, START, FILES)
    (tmp_path / TENANT / "tls.key").write_text(CA.issue_cert("x.example").private_key_pem.bytes().decode())
    clock.now += LOOK_EVERY + 1
    await shown(certificates, clock.now, FILES)
    with pytest.raises(ValueError, match="not the key"):
        await certificates_idle(certificates)
    assert (await shown(certificates, clock.now + 1, FILES)).certificate is first.certificate


@pytest.mark.parametrize(("folder", "code"), [(False, "credential_missing"), (True, "credential_unavailable")])
async def test_files_that_are_not_there(tmp_path: Path, clock: Clock, folder: bool, code: str) -> None:
    with pytest.raises(GatewayError) as refused:
        await shown(ClientCertificates(tmp_path if folder else None, None, clock), START, FILES)
    assert refused.value.code.name == code
