"""What clients are given in order to trust the instance."""

from __future__ import annotations

import datetime
import shutil
import subprocess
from pathlib import Path

import pytest
import trustme
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, pkcs12

from proxy.ca_cli import AuthoritySettings, ca_group
from proxy.errors import ConfigurationError
from proxy.listeners.certificates import authority_certificate, generate_key
from proxy.listeners.trust import combined_bundle, export, pkcs12_truststore, system_roots

NOW = datetime.datetime.now(datetime.UTC).timestamp()


def authority_pem() -> str:
    return authority_certificate(generate_key(), NOW).public_bytes(Encoding.PEM).decode()


@pytest.fixture(scope="module")
def roots() -> str:
    """Two roots with the comments and odd spacing that bundles have."""
    first, second = (trustme.CA().cert_pem.bytes().decode() for _ in range(2))
    return f"# Example Root\n{first}\n\n# Another\n{second}"


def test_a_bundle_holds_our_authority_first_and_every_root_once(roots):
    ours = authority_pem()
    bundle = combined_bundle(ours, roots, roots)
    assert bundle.startswith(ours.strip())
    assert bundle.count("BEGIN CERTIFICATE") == 3
    assert len(x509.load_pem_x509_certificates(bundle.encode())) == 3


def test_a_bundle_holds_nothing_but_certificates(roots):
    with_key = roots + trustme.CA().private_key_pem.bytes().decode()
    assert "PRIVATE" not in combined_bundle(authority_pem(), with_key)


def test_system_roots_are_the_first_file_that_holds_certificates(tmp_path, roots):
    (tmp_path / "empty.pem").write_text("")
    (tmp_path / "roots.pem").write_text(roots)
    found = system_roots([tmp_path / "none.pem", tmp_path / "empty.pem", tmp_path / "roots.pem"])
    assert found == roots


def test_the_environment_does_not_choose_the_roots(tmp_path, monkeypatch, roots):
    (tmp_path / "mine.pem").write_text(roots)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "mine.pem"))
    try:
        assert system_roots([tmp_path / "none.pem"]) != roots
    except ConfigurationError as error:
        assert "ca-certificates" in str(error)


def test_a_trust_store_holds_each_certificate_under_its_own_name(roots):
    pem = combined_bundle(authority_pem(), roots, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----")
    store = pkcs12.load_pkcs12(pkcs12_truststore(pem, b"changeit"), b"changeit")
    assert store.key is None
    assert len({entry.friendly_name for entry in store.additional_certs}) == 3


@pytest.mark.skipif(shutil.which("keytool") is None, reason="keytool is not here")
def test_java_reads_the_trust_store_as_trusted_certificates(tmp_path, roots):
    store = tmp_path / "trust.p12"
    store.write_bytes(export("pkcs12", authority_pem(), roots))
    command = ["keytool", "-list", "-keystore", store, "-storepass", "changeit"]
    listed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert listed.count("trustedCertEntry") == 3
    assert "sluicegate ca" in listed


def commands(directory: Path, *, required: bool = False, extra: Path | None = None):
    return ca_group(lambda _: AuthoritySettings(directory, required, extra))


def test_export_hands_out_the_certificate_and_never_the_key(tmp_path):
    group, runner = commands(tmp_path / "ca"), CliRunner()
    shown = runner.invoke(group, ["export"])
    assert shown.exit_code == 0
    assert shown.stdout == (tmp_path / "ca" / "ca.crt").read_text()
    for kind in ("pem", "bundle", "pkcs12"):
        assert b"PRIVATE" not in runner.invoke(group, ["export", "--format", kind]).stdout_bytes


def test_export_writes_a_file(tmp_path):
    output = tmp_path / "bundle.pem"
    done = CliRunner().invoke(commands(tmp_path / "ca"), ["export", "--format", "bundle", "--output", str(output)])
    assert done.exit_code == 0
    assert output.read_text().startswith((tmp_path / "ca" / "ca.crt").read_text())


def test_export_needs_no_access_to_the_key(tmp_path):
    (tmp_path / "ca.crt").write_text(authority_pem())
    assert CliRunner().invoke(commands(tmp_path, required=True), ["export"]).exit_code == 0


def test_export_makes_no_authority_where_one_is_required(tmp_path):
    done = CliRunner().invoke(commands(tmp_path, required=True), ["export"])
    assert isinstance(done.exception, ConfigurationError)
    assert list(tmp_path.iterdir()) == []


def test_export_adds_the_extra_roots_of_the_configuration(tmp_path, roots):
    extra = tmp_path / "extra.pem"
    extra.write_text(roots)
    command = ["export", "--format", "bundle"]
    bundle = CliRunner().invoke(commands(tmp_path / "ca", extra=extra), command).stdout
    loaded = x509.load_pem_x509_certificates(roots.encode())
    assert all(certificate.public_bytes(Encoding.PEM).decode() in bundle for certificate in loaded)
    done = CliRunner().invoke(commands(tmp_path / "ca", extra=tmp_path / "none.pem"), command)
    assert "none.pem" in str(done.exception)
