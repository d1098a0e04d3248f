"""What the settings say of a Vault reaches it: certificate, namespace, mount, role."""

from __future__ import annotations

import json
import ssl
from pathlib import Path

import pytest
import trustme

from proxy.credentials.store import NotFound, Reader
from proxy.credentials.stores.vault import VaultStore
from proxy.credentials.write_back import WriteBackStore
from proxy.opening import open_store, open_vault, store_status, write_back
from proxy.settings import Settings, settings_from
from proxy.settings.store import VaultStore as VaultSettings
from tests.credentials.stores.scripted_vault import Request, login, reply, scripted_vault, secret


def private(path: Path, content: bytes) -> Path:
    path.touch(0o600)
    path.write_bytes(content)
    return path


def configured(folder: Path, **store: object) -> Settings:
    document = {
        "identity": [{"kind": "static", "tenant": "acme", "agent": "bot"}],
        "store": {"kind": "vault", "auth": {"kind": "jwt", "role": "agents", "token_file": "./jwt"}, **store},
    }
    return settings_from(json.dumps(document), folder / "sluicegate.yaml")


def answer(request: Request) -> bytes:
    if request.path.endswith("/login"):
        return login("token-1")
    return secret({"token": "t"}) if request.path.startswith("/v1/kv/data/") else reply(404, {"errors": []})


async def test_certificate_namespace_mount_and_role_are_used(tmp_path: Path) -> None:
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(server)
    server.verify_mode = ssl.CERT_REQUIRED
    client = authority.issue_cert("client@example")
    private(tmp_path / "ca.pem", authority.cert_pem.bytes())
    private(tmp_path / "cert.pem", client.cert_chain_pems[0].bytes())
    private(tmp_path / "key.pem", client.private_key_pem.bytes())
    private(tmp_path / "jwt", b"header.payload.signature\n")
    with scripted_vault(answer, server) as vault:
        settings = configured(
            tmp_path,
            address=vault.address,
            mount="kv",
            namespace="team/a",
            ca_file="./ca.pem",
            client_certificate={"cert": "./cert.pem", "key": "./key.pem"},
        )
        store = open_store(settings.store)
        assert isinstance(store, VaultStore)
        await store.start()
        await store.read_for("tenants/acme/slack", Reader(None, "call-7"))
        await store.close()
    assert vault.requests[0].body == {"role": "agents", "jwt": "header.payload.signature"}
    assert {request.headers["x-vault-namespace"] for request in vault.requests} == {"team/a"}
    assert [request.headers.get("sluicegate-call-id") for request in vault.requests] == [None, "call-7"]


async def test_a_mount_for_each_tenant_is_found_from_the_records_path(tmp_path: Path) -> None:
    private(tmp_path / "jwt", b"a.b.c")
    with scripted_vault(answer) as vault:
        more = {"mount": "{tenant}", "path": "sluice/{credential}", "app_path": "platform/apps/{app}"}
        settings = configured(tmp_path, address=vault.address, **more).store
        assert isinstance(settings, VaultSettings)
        store = open_vault(settings)
        await store.start()
        await store.read(settings.templates().path("kv", "", "slack", "tenant"))
        with pytest.raises(NotFound):
            await store.read("apps/billing")
        await store.close()
    assert [request.path for request in vault.requests[1:]] == [
        "/v1/kv/data/sluice/slack",
        "/v1/platform/data/apps/billing",
    ]


@pytest.mark.parametrize(("durability", "durable"), [("disk", True), ("memory", False)])
async def test_what_is_lost_with_the_pod_is_warned_of(
    tmp_path: Path, durability: str, durable: bool, caplog: pytest.LogCaptureFixture
) -> None:
    text = json.dumps(
        {
            "identity": [{"kind": "static", "tenant": "acme", "agent": "bot"}],
            "state": {"durability": durability},
        }
    )
    settings = settings_from(text, tmp_path / "sluicegate.yaml")
    store = write_back(open_store(settings.store), settings.state)
    assert isinstance(store, WriteBackStore)
    assert store.durable is durable
    assert ("lost with this pod" in caplog.text) is not durable
    assert store_status(settings.store, store) == {"kind": "file", "changes_waiting": 0, "changes_durable": durable}
    assert list(tmp_path.iterdir()) == []


async def test_a_state_folder_that_cannot_be_made_is_no_durable_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "state").write_text("a file")
    head = "identity: [{kind: static, tenant: acme, agent: bot}]"
    settings = settings_from(head, tmp_path / "sluicegate.yaml")
    assert not write_back(open_store(settings.store), settings.state).durable
    assert "cannot be written" in caplog.text
