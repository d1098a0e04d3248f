"""Requests to Vault below the store: TLS, deadlines, and what stays out of errors."""

from __future__ import annotations

import ssl
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trustme

from proxy.credentials.stores import vault_transport
from proxy.credentials.stores.vault_errors import VaultRefusal, VaultUnreachable
from proxy.credentials.stores.vault_transport import TransportLimits, VaultTransport
from signers.secret import Secret
from tests.credentials.stores.scripted_vault import reply, scripted_vault

TOKEN = Secret("hvs.very-secret")


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def server_context(authority: trustme.CA, *, ask_client: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    if ask_client:
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def roots(authority: trustme.CA, folder: Path) -> Path:
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    return folder / "ca.pem"


def ask(transport: VaultTransport) -> Any:
    try:
        return transport.send("GET", "/v1/x", TOKEN, None, {})
    finally:
        transport.close()


def test_a_custom_root_is_trusted(authority: trustme.CA, tmp_path: Path) -> None:
    with scripted_vault(lambda request: reply(200, {"ok": True}), server_context(authority)) as vault:
        assert ask(VaultTransport([vault.address], ca_file=roots(authority, tmp_path))) == {"ok": True}


@pytest.mark.parametrize("own_roots", [True, False])
def test_an_untrusted_certificate_gets_no_request_and_no_token(
    authority: trustme.CA, tmp_path: Path, own_roots: bool
) -> None:
    with scripted_vault(lambda request: reply(200, {}), server_context(authority)) as vault:
        ca_file = roots(trustme.CA(), tmp_path) if own_roots else None
        with pytest.raises(VaultUnreachable, match="certificate or TLS") as caught:
            ask(VaultTransport([vault.address], ca_file=ca_file))
        assert vault.requests == []
    assert not caught.value.sent


def test_a_roots_variable_of_the_environment_is_not_used(
    authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(roots(authority, tmp_path)))
    with (
        scripted_vault(lambda request: reply(200, {}), server_context(authority)) as vault,
        pytest.raises(VaultUnreachable, match="certificate or TLS"),
    ):
        ask(VaultTransport([vault.address]))


def test_a_client_certificate_is_shown(authority: trustme.CA, tmp_path: Path) -> None:
    leaf = authority.issue_cert("sluicegate")
    leaf.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    leaf.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    with scripted_vault(lambda request: reply(200, {"ok": True}), server_context(authority, ask_client=True)) as vault:
        ca_file = roots(authority, tmp_path)
        shown = (tmp_path / "cert.pem", tmp_path / "key.pem")
        assert ask(VaultTransport([vault.address], ca_file=ca_file, client_certificate=shown)) == {"ok": True}
        with pytest.raises(VaultUnreachable):
            ask(VaultTransport([vault.address], ca_file=ca_file))


def test_a_dripping_answer_ends_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = 0.0

    def fast_forward() -> float:
        """Each look at the clock is a second later, so that a drip of bytes costs no real time."""
        nonlocal passed
        passed += 1
        return passed

    body = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + b" " * 900_000
    monkeypatch.setattr(vault_transport, "time", SimpleNamespace(monotonic=fast_forward))
    with scripted_vault(lambda request: body) as vault, pytest.raises(VaultUnreachable, match="timed out"):
        ask(VaultTransport([vault.address], limits=TransportLimits(deadline=5)))


@pytest.mark.parametrize("status", [400, 403, 500])
def test_no_error_holds_the_token_or_what_vault_said(status: int) -> None:
    with (
        scripted_vault(lambda request: reply(status, {"errors": [f"echo {request.token}"]})) as vault,
        pytest.raises(VaultRefusal) as caught,
    ):
        ask(VaultTransport([vault.address]))
    shown = "".join(map(str, (caught.value, caught.value.args, caught.value.__cause__, caught.value.__context__)))
    assert "very-secret" not in shown


def test_a_vault_without_addresses_is_said() -> None:
    with pytest.raises(VaultUnreachable, match="no Vault address"):
        ask(VaultTransport([]))
