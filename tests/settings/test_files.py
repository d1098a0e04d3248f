"""The files that settings name."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme

from proxy.settings import load
from proxy.settings.files import file_faults

CONFIGURATION = """\
identity:
  - kind: session_token
    issuers:
      - {issuer: i, audience: a, algorithms: [ES256], jwks_file: keys.json, tenants: ["*"]}
listeners:
  - kind: proxy
    bind: 127.0.0.1:0
    tls:
      cert: cert.pem
      key: key.pem
      client_ca: clients.pem
store:
  kind: vault
  address: https://vault:8200
  auth:
    kind: approle
    role_id: r
    secret_id_file: secret-id
upstream:
  extra_ca_file: roots.pem
"""
PUBLIC = ("keys.json", "cert.pem", "clients.pem", "roots.pem")
SECRET = ("key.pem", "secret-id")


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    for name in (*PUBLIC, *SECRET):
        (tmp_path / name).write_text("x")
        (tmp_path / name).chmod(0o644 if name in PUBLIC else 0o600)
    trustme.CA().cert_pem.write_to_path(tmp_path / "roots.pem")
    (tmp_path / "sluicegate.yaml").write_text(CONFIGURATION)
    return tmp_path / "sluicegate.yaml"


def test_files_that_are_there_and_private_are_no_fault(configuration: Path):
    assert file_faults(load(configuration)) == []


@pytest.mark.parametrize(
    ("name", "line"),
    [("keys.json", 4), ("cert.pem", 9), ("key.pem", 10), ("clients.pem", 11), ("secret-id", 18), ("roots.pem", 20)],
)
def test_a_missing_file_is_named_at_the_line_of_its_setting(configuration: Path, name: str, line: int):
    (configuration.parent / name).unlink()
    (fault,) = file_faults(load(configuration))
    assert (fault.line, fault.file) == (line, str(configuration))
    assert name in fault.message


def test_a_bundle_of_roots_that_holds_none_is_a_fault(configuration: Path):
    (configuration.parent / "roots.pem").write_text("x")
    (fault,) = file_faults(load(configuration))
    assert (fault.line, "is no PEM file of certificates" in fault.message) == (20, True)


@pytest.mark.parametrize("name", SECRET)
def test_a_secret_file_that_others_can_read_is_a_fault(configuration: Path, name: str):
    (configuration.parent / name).chmod(0o644)
    (fault,) = file_faults(load(configuration))
    assert "chmod 600" in fault.message


def test_the_embedded_store_may_still_be_missing_but_not_shared(tmp_path: Path):
    file = tmp_path / "sluicegate.yaml"
    file.write_text("identity: [{kind: static, tenant: a, agent: b}]\nstore: {kind: file}\n")
    assert file_faults(load(file)) == []
    (tmp_path / "secrets.key").touch(0o644)
    (tmp_path / "secrets.key").chmod(0o640)
    assert [fault.line for fault in file_faults(load(file))] == [2]
