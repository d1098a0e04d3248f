"""Nothing leaves before it is signed, however long the credential takes; one tenant's wait is nobody else's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.conftest import NewFolder
from tests.flows.product import Product, absolute, compose, eventually, record, rule
from tests.flows.upstreams import Upstream
from tests.flows.vaults import TOKEN, ScriptedVault

SECRET = "sk-live-0123456789abcdef"
SIZE = 64 * 1024 * 1024


class Flow:
    def __init__(self, product: Product, vault: ScriptedVault, slow: Upstream, quick: Upstream) -> None:
        self.product = product
        self.vault = vault
        self.slow = slow
        self.quick = quick


def resident(pid: int) -> int:
    """Resident bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    raise AssertionError


@pytest.fixture
def flow(new_folder: NewFolder) -> Iterator[Flow]:
    records = {
        "tenants/acme/slow": record("api_key", "127.0.0.1", value=SECRET),
        "tenants/acme/quick": record("api_key", "127.0.0.2", value=SECRET),
    }
    folder = new_folder()
    token = folder / "vault-token"
    token.write_text(TOKEN + "\n")
    token.chmod(0o600)
    with ScriptedVault(records) as vault, Upstream() as slow, Upstream(host="127.0.0.2") as quick:
        store = {
            "kind": "vault",
            "address": vault.address,
            "mount": "secret",
            "kv": 2,
            "path": "tenants/{tenant}/{credential}",
            "auth": {"kind": "token", "token_file": "./vault-token"},
        }
        rules = [
            rule("slow", slow, credential={"name": "slow", "header": "X-Api-Key"}),
            rule("quick", quick, credential={"name": "quick", "header": "X-Api-Key"}),
        ]
        with Product(folder, rules, store=store) as product:
            yield Flow(product, vault, slow, quick)


def test_an_upload_waits_for_its_credential_in_flat_memory(flow: Flow) -> None:
    """C09: no byte upstream before it is signed; the client is held back, not buffered."""
    release = flow.vault.held["tenants/acme/slow"] = threading.Event()
    assert flow.product.process is not None
    before = resident(flow.product.process.pid)
    piece = b"x" * 65536
    sent = threading.Event()

    with flow.product.client(timeout=60) as client:
        head = compose("PUT", f"{flow.slow.url}/".encode(), flow.slow.authority, b"Content-Length: %d" % SIZE)
        client.send(head.replace(b"Content-Length: 0\r\n", b""))

        def upload() -> None:
            for _ in range(SIZE // len(piece)):
                client.send_quietly(piece)
            sent.set()

        threading.Thread(target=upload, daemon=True).start()
        assert flow.vault.read_arrived.acquire(timeout=8)
        assert not sent.wait(0.25)
        assert flow.slow.connections == [] or flow.slow.received == b""
        assert flow.product.get(flow.quick).status == 200
        assert resident(flow.product.process.pid) - before < 12 * 1024 * 1024
        release.set()
        assert client.reply().status == 200
    (request,) = flow.slow.requests
    assert request.all("X-Api-Key") == [SECRET]
    assert len(request.body) == SIZE
    assert resident(flow.product.process.pid) - before < 30 * 1024 * 1024


def test_calls_that_wait_for_one_record_share_one_read(flow: Flow) -> None:
    """Single flight: both are answered after it."""
    release = flow.vault.held["tenants/acme/slow"] = threading.Event()
    clients = [flow.product.client() for _ in range(5)]
    for client in clients:
        client.send(absolute(flow.slow, "/"))
    assert flow.vault.read_arrived.acquire(timeout=8)
    release.set()
    assert [client.reply().status for client in clients] == [200] * 5
    assert flow.vault.reads.count("tenants/acme/slow") == 1
    for client in clients:
        client.close()


def test_a_client_that_leaves_while_waiting_sends_nothing(flow: Flow) -> None:
    release = flow.vault.held["tenants/acme/slow"] = threading.Event()
    client = flow.product.client()
    client.send(absolute(flow.slow, "/", method="POST", body=b"x"))
    assert flow.vault.read_arrived.acquire(timeout=8)
    client.reset()
    eventually(lambda: flow.product.metric("sluicegate_calls_total", outcome="canceled") == 1)
    release.set()
    assert flow.product.get(flow.slow).status == 200
    assert [request.method for request in flow.slow.requests] == ["GET"]


def test_a_store_that_is_down_is_credential_unavailable_and_nothing_is_sent(flow: Flow) -> None:
    flow.vault.down = True
    reply = flow.product.get(flow.slow)
    assert (reply.status, reply.code) == (503, "credential_unavailable")
    assert reply.json()["retryable"] is True
    assert flow.slow.received == b""
    assert flow.product.ops_get("/readyz")[0] == 200


def test_fresh_material_goes_on_being_used_while_the_store_is_down(flow: Flow) -> None:
    assert flow.product.get(flow.slow).status == 200
    flow.vault.down = True
    assert flow.product.get(flow.slow).status == 200


def test_the_token_never_reaches_anything_but_the_store(flow: Flow) -> None:
    assert flow.product.get(flow.slow).status == 200
    assert TOKEN.encode() not in flow.slow.received
    assert TOKEN not in flow.product.diagnostics()
    assert TOKEN not in str(flow.product.audit())
