"""A real OpenBao: token and AppRole logins, KV v2 records, a rotated one, a missing one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.flows.conftest import NewFolder
from tests.flows.product import Product, eventually, free_port, record, rule
from tests.flows.upstreams import Upstream

BAO = Path(sys.executable).parent / "bao"
ROOT = "root-token-of-the-test"
SECRET = "sk-live-0123456789abcdef"


class Bao:
    """A dev server with an `agents` policy and an AppRole of that name."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
        words = [str(BAO), "server", "-dev", f"-dev-root-token-id={ROOT}", f"-dev-listen-address=127.0.0.1:{self.port}"]
        self._log = (folder / "bao.log").open("wb")
        self._process = subprocess.Popen(words, stdout=self._log, stderr=self._log, env=environment, cwd=folder)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            f"{self.address}/v1/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"X-Vault-Token": ROOT},
        )
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=5) as reply:
            return json.loads(reply.read() or b"null")

    def _up(self) -> bool:
        assert self._process.poll() is None
        try:
            self.ask("GET", "sys/health")
        except OSError:
            return False
        return True

    def __enter__(self) -> Bao:
        eventually(self._up, within=20)
        rules = "\n".join(
            f'path "secret/{kind}/tenants/*" {{capabilities = ["read", "list"]}}' for kind in ("data", "metadata")
        )
        self.ask("PUT", "sys/policies/acl/agents", {"policy": rules})
        self.ask("POST", "sys/auth/approle", {"type": "approle"})
        self.ask("POST", "auth/approle/role/agents", {"token_policies": ["agents"], "token_ttl": "1h"})
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(10)
        self._log.close()


@pytest.fixture(scope="module")
def bao(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bao]:
    if not BAO.exists():
        pytest.skip("no OpenBao binary beside the interpreter")
    with Bao(tmp_path_factory.mktemp("bao")) as server:
        yield server


def login(bao: Bao, kind: str, folder: Path) -> dict[str, Any]:
    if kind == "token":
        token = bao.ask("POST", "auth/token/create", {"policies": ["agents"], "ttl": "1h"})["auth"]["client_token"]
        secret, settings = token, {"kind": "token", "token_file": "./vault-secret"}
    else:
        role = bao.ask("GET", "auth/approle/role/agents/role-id")["data"]["role_id"]
        secret = bao.ask("POST", "auth/approle/role/agents/secret-id")["data"]["secret_id"]
        settings = {"kind": "approle", "role_id": role, "secret_id_file": "./vault-secret"}
    (folder / "vault-secret").write_text(secret)
    (folder / "vault-secret").chmod(0o600)
    return settings


@pytest.fixture(scope="module", params=["token", "approle"])
def flow(
    request: pytest.FixtureRequest, bao: Bao, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Product, Upstream, Upstream]]:
    folder = tmp_path_factory.mktemp("p")
    bao.ask("POST", "secret/data/tenants/acme/key", {"data": record("api_key", "127.0.0.1", value=SECRET)})
    store = {
        "kind": "vault",
        "address": bao.address,
        "mount": "secret",
        "kv": 2,
        "path": "tenants/{tenant}/{credential}",
        "ttl": 1,
        "auth": login(bao, request.param, folder),
    }
    with Upstream() as upstream, Upstream(host="127.0.0.2") as bare:
        rules = [
            rule("up", upstream, credential={"name": "key", "header": "X-Api-Key"}),
            rule("bare", bare, credential={"name": "absent", "header": "X-Api-Key"}),
        ]
        with Product(folder, rules, store=store) as product:
            yield product, upstream, bare


def test_a_call_leaves_with_the_credential_that_the_vault_holds(flow: tuple[Product, Upstream, Upstream]) -> None:
    product, upstream, _ = flow
    upstream.forget()
    reply = product.get(upstream, "/", b"X-Api-Key: placeholder")
    assert reply.status == 200, reply.body
    assert upstream.requests[0].all("X-Api-Key") == [SECRET]
    assert product.audited(reply.call_id)["credential"].startswith("key@")


def test_a_rotated_value_is_used_within_the_ttl(flow: tuple[Product, Upstream, Upstream], bao: Bao) -> None:
    product, upstream, _ = flow
    upstream.forget()
    new = SECRET + "-rotated"
    bao.ask("POST", "secret/data/tenants/acme/key", {"data": record("api_key", "127.0.0.1", value=new)})

    def rotated() -> bool:
        assert product.get(upstream).status == 200
        return upstream.requests[-1].all("X-Api-Key") == [new]

    eventually(rotated, within=10, pause=0.1)
    bao.ask("POST", "secret/data/tenants/acme/key", {"data": record("api_key", "127.0.0.1", value=SECRET)})


def test_an_absent_record_is_credential_missing(flow: tuple[Product, Upstream, Upstream]) -> None:
    product, _, bare = flow
    reply = product.get(bare)
    assert (reply.status, reply.code) == (403, "credential_missing")
    assert bare.received == b""


def test_the_vault_itself_cannot_be_called(
    flow: tuple[Product, Upstream, Upstream], bao: Bao, new_folder: NewFolder
) -> None:
    """Our back ends are refused whatever a policy says."""
    folder = new_folder()
    store = {
        "kind": "vault", "address": bao.address, "mount": "secret", "kv": 2,
        "path": "tenants/{tenant}/{credential}", "auth": login(bao, "token", folder),
    }  # fmt: skip
    allow = [{"name": "vault", "host": "127.0.0.1", "port": bao.port, "plaintext": True, "networks": ["127.0.0.0/8"]}]
    with Product(folder, allow, store=store) as product, product.client() as client:
        authority = f"127.0.0.1:{bao.port}"
        reply = client.ask(f"GET http://{authority}/v1/sys/health HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
    assert (reply.status, reply.code) == (403, "destination_refused")


def test_secrets_commands_work_on_the_vault(bao: Bao, new_folder: NewFolder) -> None:
    folder = new_folder()
    (folder / "vault-secret").write_text(ROOT)
    (folder / "vault-secret").chmod(0o600)
    store = {
        "kind": "vault", "address": bao.address, "mount": "secret", "kv": 2,
        "path": "tenants/{tenant}/{credential}", "auth": {"kind": "token", "token_file": "./vault-secret"},
    }  # fmt: skip
    product = Product(folder, [], {"tenants/acme/imported": record("bearer", "api.test", token=SECRET)}, store=store)
    product.write()
    assert bao.ask("GET", "secret/data/tenants/acme/imported")["data"]["data"]["token"] == SECRET
    listed = product.run("secrets", "list").stdout
    assert b"tenants/acme/imported" in listed
    assert SECRET.encode() not in listed
