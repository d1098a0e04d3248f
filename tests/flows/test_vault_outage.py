"""B86: a login that dies and a Vault that goes away, through the whole product and a real OpenBao.

Readiness is about the start: it stays, or one Vault would take every agent of a fleet out of service. What is wrong
stands in the control socket's status and in the metrics.
"""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.credentials.stores.bao_front import counting
from tests.credentials.stores.scripted_vault import ScriptedVault
from tests.flows.product import Product, eventually, record, rule
from tests.flows.upstreams import Upstream
from tests.openbao import OpenBao, start_openbao, stop_openbao

SECRET = "sk-live-0123456789abcdef"
LOGIN = "POST /v1/auth/approle/login"


class Flow:
    def __init__(self, product: Product, upstream: Upstream, bao: OpenBao, front: ScriptedVault) -> None:
        self.product, self.upstream, self.bao, self.front = product, upstream, bao, front

    def signed(self) -> bool:
        reply = self.product.get(self.upstream)
        return reply.status == 200 and self.upstream.requests[-1].all("X-Api-Key") == [SECRET]

    def store(self) -> dict[str, Any]:
        """What the control socket's status says of the store."""
        connection = http.client.HTTPConnection("control", timeout=10)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(self.product.folder / "run" / "control.sock"))
        try:
            connection.request("GET", "/status")
            found: dict[str, Any] = json.loads(connection.getresponse().read())["store"]
            return found
        finally:
            connection.close()

    def reads(self) -> int:
        return self.front.count("GET /v1/secret/data/")


@pytest.fixture
def flow(tmp_path: Path) -> Iterator[Flow]:
    home, folder = tmp_path / "bao", tmp_path / "p"
    home.mkdir()
    folder.mkdir()
    bao = start_openbao(home)
    try:
        bao.put("tenants/acme/key", record("api_key", "127.0.0.1", value=SECRET))
        bao.ask("PUT", "sys/policies/acl/agents", {"policy": 'path "secret/*" { capabilities = ["read"] }'})
        bao.ask("POST", "sys/auth/approle", {"type": "approle"})
        role = {"token_policies": ["agents"], "token_ttl": "5s", "token_max_ttl": "10s"}
        bao.ask("POST", "auth/approle/role/agents", role)
        (folder / "secret-id").touch(0o600)
        (folder / "secret-id").write_text(bao.ask("POST", "auth/approle/role/agents/secret-id")["data"]["secret_id"])
        role_id = bao.ask("GET", "auth/approle/role/agents/role-id")["data"]["role_id"]
        auth = {"kind": "approle", "role_id": role_id, "secret_id_file": "./secret-id"}
        with counting(bao) as front, Upstream() as upstream:
            store = {"kind": "vault", "address": front.address, "ttl": 1, "stale": 600, "auth": auth}
            allow = [rule("up", upstream, credential={"name": "key", "header": "X-Api-Key"})]
            with Product(folder, allow, store=store) as product:
                yield Flow(product, upstream, bao, front)
    finally:
        stop_openbao(bao)


def test_a_revoked_login_is_replaced_by_one_and_an_outage_leaves_the_pod_ready_and_shown(flow: Flow) -> None:
    assert flow.signed()
    assert flow.store() | {"logged_in": True, "failed_logins": 0, "fault": ""} == flow.store()
    logins, reads = flow.front.count(LOGIN), flow.reads()
    token = next(request.token for request in reversed(flow.front.requests) if request.token)
    flow.bao.ask("POST", "auth/token/revoke", {"token": token})
    eventually(lambda: flow.signed() and flow.reads() > reads + 1)
    assert flow.front.count(LOGIN) == logins + 1

    flow.bao.ask("PUT", "sys/seal")
    stop_openbao(flow.bao)
    before = len(flow.front.requests)
    eventually(lambda: flow.signed() and not flow.store()["logged_in"], within=30, pause=0.1)
    assert flow.signed(), "the record that is known serves on within `stale`"
    assert flow.product.ops_get("/readyz")[0] == 200
    shown = flow.store()
    assert (shown["failed_logins"] > 0, bool(shown["fault"])) == (True, True)
    assert SECRET not in str(shown)
    assert token not in str(shown)
    assert flow.product.metric("sluicegate_store_requests_total", store="vault", result="error") > 0
    assert flow.front.count(LOGIN) - logins < 10, "no tight loop"
    assert len(flow.front.requests) - before < 20
