"""The authority on disk, its leaves, and the contexts kept for them."""

from __future__ import annotations

import asyncio
import datetime
import inspect
import os
import ssl
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from proxy.errors import ConfigurationError, GatewayError
from proxy.listeners import server_contexts
from proxy.listeners.certificate_authority import CertificateAuthority
from proxy.listeners.certificates import authority_certificate, generate_key
from proxy.wire import key_files

DAY = 86400.0
NOW = float(int(time.time()))
REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def authorities():
    """Opens authorities and ends their threads."""
    opened = []

    def open_(directory: Path, **options) -> CertificateAuthority:
        options = {"required": False, "now": NOW, **options}
        opened.append(CertificateAuthority(directory, **options))
        return opened[-1]

    yield open_
    for authority in opened:
        authority.close()


async def context(authority: CertificateAuthority, host: str) -> ssl.SSLContext:
    made = authority.context_for(host)
    return await made if inspect.isawaitable(made) else made


def handshake(server: ssl.SSLContext, host: str, ca_pem: str, alpn: list[str] | None = None) -> ssl.SSLObject:
    """A handshake in memory with a strict client that checks names."""
    client = ssl.create_default_context(cadata=ca_pem)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    if alpn:
        client.set_alpn_protocols(alpn)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    left = client.wrap_bio(down, up, server_hostname=host)
    right = server.wrap_bio(up, down, server_side=True)
    for _ in range(4):
        for side in (left, right):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
    assert left.cipher() is not None
    return left


def leaf_of(server: ssl.SSLContext, host: str, ca_pem: str) -> x509.Certificate:
    return x509.load_der_x509_certificate(handshake(server, host, ca_pem).getpeercert(binary_form=True))


def extension(certificate: x509.Certificate, kind):
    return certificate.extensions.get_extension_for_class(kind)


def only_fault(caught) -> str:
    (fault,) = caught.value.faults
    return str(fault)


def write_authority(directory: Path, key, certificate: x509.Certificate, mode: int = 0o600) -> None:
    directory.mkdir(exist_ok=True)
    key_file = directory / "ca.key"
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    key_file.chmod(mode)
    (directory / "ca.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def operators_authority(key, *, ca: bool = True, days: int = 365, begin: float = NOW - DAY) -> x509.Certificate:
    """A certificate as an operator's own tooling would issue it."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Example Corp CA")])
    start = datetime.datetime.fromtimestamp(begin, datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), start,
                                      start + datetime.timedelta(days=days))  # fmt: skip
    usage = dict.fromkeys(("content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
                           "encipher_only", "decipher_only", "digital_signature"), False)  # fmt: skip
    builder = builder.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    builder = builder.add_extension(x509.KeyUsage(key_cert_sign=ca, crl_sign=ca, **usage), critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier(b"chosen by others"), critical=False)
    return builder.sign(key, None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256())


def test_a_new_authority_signs_servers_only_for_thirty_days(tmp_path, authorities):
    authority = authorities(tmp_path / "ca")
    certificate = x509.load_pem_x509_certificate(authority.certificate_pem.encode())
    constraints, usage = extension(certificate, x509.BasicConstraints), extension(certificate, x509.KeyUsage)
    assert (constraints.critical, constraints.value) == (True, x509.BasicConstraints(ca=True, path_length=0))
    assert usage.critical
    assert usage.value.key_cert_sign
    assert not usage.value.digital_signature
    assert list(extension(certificate, x509.ExtendedKeyUsage).value) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert certificate.not_valid_after_utc - certificate.not_valid_before_utc <= datetime.timedelta(days=30)
    assert extension(certificate, x509.SubjectKeyIdentifier)
    assert isinstance(certificate.public_key(), ec.EllipticCurvePublicKey)
    assert authority.expires == certificate.not_valid_after_utc.timestamp()


def test_the_key_is_private_whatever_the_umask_and_nothing_else_is_left(tmp_path, authorities):
    before = os.umask(0)
    try:
        authorities(tmp_path / "ca")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "ca").iterdir()}
    assert modes == {"ca.key": 0o600, "ca.crt": 0o644, ".lock": 0o600}
    assert stat.S_IMODE((tmp_path / "ca").stat().st_mode) == 0o700


def test_an_authority_survives_a_restart(tmp_path, authorities):
    assert authorities(tmp_path).certificate_pem == authorities(tmp_path).certificate_pem


def test_processes_that_start_together_share_one_authority(tmp_path):
    program = (
        "import sys, time, pathlib\n"
        "from proxy.listeners.certificate_authority import CertificateAuthority\n"
        "sys.stdin.readline()\n"
        "print(CertificateAuthority.open(pathlib.Path(sys.argv[1]), False, time.time()).certificate_pem)\n"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", program, tmp_path / "ca"], cwd=REPOSITORY, text=True,
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(4)
    ]  # fmt: skip
    for process in started:
        process.stdin.write("\n")
        process.stdin.flush()
    printed = {process.communicate()[0] for process in started}
    assert len(printed) == 1
    assert "BEGIN CERTIFICATE" in printed.pop()


def test_an_authority_near_its_end_is_renewed_with_the_same_key_and_name(tmp_path, authorities):
    first = authorities(tmp_path, now=NOW - 20 * DAY)
    same = authorities(tmp_path, now=NOW)
    renewed = authorities(tmp_path, now=NOW + 6 * DAY)
    assert same.certificate_pem == first.certificate_pem
    assert renewed.certificate_pem != first.certificate_pem
    assert renewed.expires > NOW + 30 * DAY
    old, new = (x509.load_pem_x509_certificate(a.certificate_pem.encode()) for a in (first, renewed))
    assert (old.subject, old.public_key()) == (new.subject, new.public_key())


async def test_a_client_that_trusts_the_certificate_before_renewal_goes_on(tmp_path, authorities):
    old = authorities(tmp_path, now=NOW - 26 * DAY).certificate_pem
    renewed = authorities(tmp_path, now=NOW, clock=lambda: NOW)
    assert renewed.certificate_pem != old
    handshake(await context(renewed, "api.test"), "api.test", old)


def test_a_required_authority_is_never_made_nor_renewed(tmp_path, authorities):
    with pytest.raises(ConfigurationError, match="forbids making"):
        authorities(tmp_path / "none", required=True)
    assert not (tmp_path / "none").exists()
    made = authorities(tmp_path, now=NOW - 26 * DAY)
    assert authorities(tmp_path, required=True).certificate_pem == made.certificate_pem
    with pytest.raises(ConfigurationError, match="expired"):
        authorities(tmp_path, required=True, now=NOW + 10 * DAY)


def test_an_operators_authority_is_never_overwritten(tmp_path, authorities):
    key = generate_key()
    write_authority(tmp_path, key, operators_authority(key, days=3))
    before = (tmp_path / "ca.crt").read_bytes()
    assert authorities(tmp_path).certificate_pem.encode() == before
    with pytest.raises(ConfigurationError, match="expired"):
        authorities(tmp_path, now=NOW + 30 * DAY)
    assert (tmp_path / "ca.crt").read_bytes() == before


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660])
def test_a_key_that_others_can_read_is_refused(tmp_path, authorities, mode):
    authorities(tmp_path)
    (tmp_path / "ca.key").chmod(mode)
    with pytest.raises(ConfigurationError) as caught:
        authorities(tmp_path)
    assert "ca.key" in only_fault(caught)
    assert "0600" in only_fault(caught)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a file of root's")
def test_a_mounted_secret_of_roots_may_be_read_through_our_group(tmp_path, authorities, monkeypatch):
    authorities(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    (tmp_path / "ca.key").chmod(0o440)
    authorities(tmp_path, required=True)
    (tmp_path / "ca.key").chmod(0o444)
    with pytest.raises(ConfigurationError, match="read by others"):
        authorities(tmp_path, required=True)


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda d: (d / "ca.key").unlink(), "ca.key"),
        (lambda d: (d / "ca.key").write_text("no key"), "ca.key"),
        (lambda d: (d / "ca.crt").write_text("no certificate"), "ca.crt"),
        (lambda d: write_authority(d, generate_key(), operators_authority(generate_key())), "does not belong"),
        (lambda d: (key := generate_key(), write_authority(d, key, operators_authority(key, ca=False))), "authority"),
        (lambda d: (key := generate_key(), write_authority(d, key, operators_authority(key, begin=NOW + DAY))),
         "before"),
        (lambda d: (key := ed25519.Ed25519PrivateKey.generate(), write_authority(d, key, operators_authority(key))),
         "ECDSA"),
    ],
)  # fmt: skip
def test_a_damaged_authority_is_reported_and_left_alone(tmp_path, authorities, damage, named):
    authorities(tmp_path)
    damage(tmp_path)
    files = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ConfigurationError) as caught:
        authorities(tmp_path)
    assert named in only_fault(caught)
    assert "PRIVATE" not in only_fault(caught)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == files


def test_a_key_left_alone_by_a_process_that_ended_gets_its_certificate(tmp_path, authorities):
    authorities(tmp_path)
    key = (tmp_path / "ca.key").read_bytes()
    (tmp_path / "ca.crt").unlink()
    authorities(tmp_path)
    assert (tmp_path / "ca.key").read_bytes() == key


def test_a_directory_that_cannot_be_written_is_a_configuration_fault(tmp_path, authorities):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot hold"):
        authorities(tmp_path / "file" / "ca")


@pytest.mark.parametrize("host", ["api.test", "my_host.test", "203.0.113.7", "2001:db8::7", "x" * 60 + ".long.test"])
async def test_a_leaf_passes_strict_verification_of_its_name(tmp_path, authorities, host):
    authority = authorities(tmp_path)
    leaf = leaf_of(await context(authority, host), host, authority.certificate_pem)
    ca = x509.load_pem_x509_certificate(authority.certificate_pem.encode())
    names = extension(leaf, x509.SubjectAlternativeName)
    assert [str(name.value) for name in names.value] == [host]
    assert names.critical == (len(host) > 64) == (not list(leaf.subject))
    assert extension(leaf, x509.ExtendedKeyUsage).value == x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    assert extension(leaf, x509.AuthorityKeyIdentifier).value.key_identifier == (
        extension(ca, x509.SubjectKeyIdentifier).value.digest
    )
    assert extension(leaf, x509.SubjectKeyIdentifier)
    assert not extension(leaf, x509.BasicConstraints).value.ca
    assert leaf.not_valid_before_utc.timestamp() <= time.time() - 3590
    assert leaf.not_valid_after_utc.timestamp() <= time.time() + DAY + 1


async def test_a_leaf_does_not_pass_for_another_name(tmp_path, authorities):
    authority = authorities(tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(await context(authority, "api.test"), "other.test", authority.certificate_pem)


async def test_an_operators_authority_signs_leaves_that_verify(tmp_path, authorities):
    key = generate_key()
    write_authority(tmp_path, key, operators_authority(key))
    authority = authorities(tmp_path, required=True)
    handshake(await context(authority, "api.test"), "api.test", authority.certificate_pem)


async def test_leaves_share_one_key_and_differ_in_serial_number(tmp_path, authorities):
    authority = authorities(tmp_path)
    first, second = [
        leaf_of(await context(authority, host), host, authority.certificate_pem) for host in ("a.test", "b.test")
    ]
    assert first.public_key() == second.public_key()
    assert first.serial_number != second.serial_number


async def test_a_context_speaks_http_1_1_over_modern_tls_without_tickets(tmp_path, authorities):
    authority = authorities(tmp_path)
    server = await context(authority, "api.test")
    assert server.minimum_version == ssl.TLSVersion.TLSv1_2
    assert server.num_tickets == 0
    assert server.options & ssl.OP_NO_COMPRESSION
    pem = authority.certificate_pem
    assert handshake(server, "api.test", pem, ["h2", "http/1.1"]).selected_alpn_protocol() == "http/1.1"
    assert handshake(server, "api.test", pem).version() == "TLSv1.3"


async def test_a_known_host_is_answered_at_once_and_minted_once(tmp_path, authorities):
    authority = authorities(tmp_path)
    first = await asyncio.gather(*(context(authority, "api.test") for _ in range(8)))
    assert authority.context_for("api.test") is first[0]
    assert set(first) == {first[0]}
    assert authority.minted == 1


async def test_a_caller_that_leaves_does_not_end_the_minting_for_others(tmp_path, authorities):
    authority = authorities(tmp_path)
    waiting = [asyncio.ensure_future(authority.context_for("api.test")) for _ in range(2)]
    waiting[0].cancel()
    assert isinstance(await waiting[1], ssl.SSLContext)


async def test_a_leaf_is_minted_again_at_half_its_life(tmp_path, authorities):
    moment = [NOW]
    authority = authorities(tmp_path, clock=lambda: moment[0])
    first = await context(authority, "api.test")
    moment[0] = NOW + DAY / 2 - 1
    assert authority.context_for("api.test") is first
    moment[0] = NOW + DAY / 2
    assert await context(authority, "api.test") is not first


async def test_contexts_kept_are_bounded_and_the_least_recently_used_goes(tmp_path, authorities):
    authority = authorities(tmp_path, capacity=2)
    first = await context(authority, "a.test")
    await context(authority, "b.test")
    assert authority.context_for("a.test") is first
    await context(authority, "c.test")
    assert authority.context_for("a.test") is first
    gone = authority.context_for("b.test")
    assert inspect.isawaitable(gone)
    await gone


async def test_too_many_hosts_waiting_are_told_to_come_back(tmp_path, authorities):
    authority = authorities(tmp_path)
    waiting = [asyncio.ensure_future(authority.context_for(f"n{number}.test")) for number in range(64)]
    with pytest.raises(GatewayError) as caught:
        authority.context_for("one-more.test")
    assert (caught.value.code.name, caught.value.retry_after) == ("overloaded", 1)
    await asyncio.gather(*waiting)


async def test_an_expired_authority_signs_nothing(tmp_path, authorities):
    key = generate_key()
    write_authority(tmp_path, key, operators_authority(key, days=2))
    authority = authorities(tmp_path, clock=lambda: NOW + 3 * DAY)
    with pytest.raises(GatewayError, match="expired"):
        await context(authority, "api.test")


async def test_a_leaf_does_not_outlive_its_authority(tmp_path, authorities):
    key = generate_key()
    write_authority(tmp_path, key, operators_authority(key, days=2))
    moment = [NOW + DAY - 3600]
    authority = authorities(tmp_path, clock=lambda: moment[0])
    first = await context(authority, "api.test")
    moment[0] += 1800
    assert await context(authority, "api.test") is not first


async def test_an_authority_replaced_on_disk_is_taken_up(tmp_path, authorities):
    authority = authorities(tmp_path)
    before = await context(authority, "api.test")
    assert authority.reload(NOW) is False
    key = generate_key()
    write_authority(tmp_path, key, operators_authority(key))
    assert authority.reload(NOW) is True
    assert authority.reload(NOW) is False
    after = await context(authority, "api.test")
    assert after is not before
    handshake(after, "api.test", (tmp_path / "ca.crt").read_text())


async def test_a_replacement_that_cannot_be_used_leaves_the_authority_in_use(tmp_path, authorities):
    authority = authorities(tmp_path)
    pem, key = authority.certificate_pem, generate_key()
    (tmp_path / "ca.crt").write_bytes(operators_authority(key).public_bytes(serialization.Encoding.PEM))
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="does not belong"):
            authority.reload(NOW)
    handshake(await context(authority, "api.test"), "api.test", pem)
    write_authority(tmp_path, key, operators_authority(key))
    assert authority.reload(NOW) is True


def test_files_that_vanish_while_they_are_replaced_are_not_made_anew(tmp_path, authorities):
    authority = authorities(tmp_path)
    (tmp_path / "ca.crt").unlink()
    assert authority.reload(NOW) is False
    (tmp_path / "ca.key").unlink()
    assert authority.reload(NOW + 40 * DAY) is False
    assert not (tmp_path / "ca.crt").exists()


async def test_a_leaf_being_minted_during_a_replacement_is_not_kept(tmp_path, authorities):
    authority = authorities(tmp_path)
    under_way = asyncio.ensure_future(authority.context_for("api.test"))
    await asyncio.sleep(0)
    key = generate_key()
    write_authority(tmp_path, key, operators_authority(key))
    authority.reload(NOW)
    old = await under_way
    fresh = await context(authority, "api.test")
    assert fresh is not old
    handshake(fresh, "api.test", authority.certificate_pem)


def test_a_running_authority_is_renewed_by_reload_unless_required(tmp_path, authorities):
    mine = authorities(tmp_path / "mine")
    assert mine.reload(NOW + 26 * DAY) is True
    assert mine.expires > NOW + 50 * DAY
    authorities(tmp_path / "other")
    other = authorities(tmp_path / "other", required=True)
    assert other.reload(NOW + 26 * DAY) is False


async def test_an_intermediate_authority_is_presented_to_clients_that_trust_its_root(tmp_path, authorities):
    root = trustme.CA()
    intermediate = root.create_child_ca()
    pem = intermediate.cert_pem.bytes() + root.cert_pem.bytes()
    (tmp_path / "ca.crt").write_bytes(pem)
    (tmp_path / "ca.key").touch(0o600)
    (tmp_path / "ca.key").write_bytes(intermediate.private_key_pem.bytes())
    authority = authorities(tmp_path, required=True)
    assert authority.certificate_pem.encode() == pem
    handshake(await context(authority, "api.test"), "api.test", root.cert_pem.bytes().decode())


def test_the_key_shows_in_no_representation(tmp_path, authorities):
    authority = authorities(tmp_path)
    assert "PRIVATE" not in repr(authority)


def test_a_context_can_be_loaded_without_memfd(monkeypatch, tmp_path, authorities):
    def refused(*_):
        raise PermissionError(1, "not in this sandbox")

    monkeypatch.setattr(os, "memfd_create", refused)
    monkeypatch.setattr(key_files, "SHARED_MEMORY", tmp_path)
    key = generate_key()
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ) + authority_certificate(key, NOW).public_bytes(serialization.Encoding.PEM)
    server_contexts.server_context(pem)
    assert list(tmp_path.iterdir()) == []


NOT_DUMPABLE = """
import asyncio, ctypes, os, pathlib, sys, time
from proxy.listeners.certificate_authority import CertificateAuthority
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
assert ctypes.CDLL(None).prctl(4, 0, 0, 0, 0) == 0  # PR_SET_DUMPABLE
from proxy.wire import key_files
key_files.SHARED_MEMORY = pathlib.Path("/nonexistent")  # so that only memory can have served
authority = CertificateAuthority.open(pathlib.Path(sys.argv[1]), False, time.time())
async def main():
    print(type(await authority.context_for("api.test")).__name__, os.geteuid())
asyncio.run(main())
"""


def test_contexts_load_from_memory_in_a_process_that_is_neither_root_nor_dumpable():
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o777)  # the process gives up its rights before it writes here
        command = [sys.executable, "-c", NOT_DUMPABLE, Path(directory) / "ca"]
        done = subprocess.run(command, cwd=REPOSITORY, text=True, capture_output=True, timeout=30)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("SSLContext")
    assert not done.stdout.endswith(" 0\n")
