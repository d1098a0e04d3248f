"""A credential rotated in the store is found when the provider refuses the old one: one read, one replay."""

from __future__ import annotations

from pathlib import Path

from tests.credentials.stores.bao_front import counting
from tests.flows.product import Product, record, rule
from tests.flows.upstreams import Connection, Upstream
from tests.openbao import OpenBao, bao, openbao

__all__ = ["bao", "openbao"]

OLD, NEW = "sk-live-old-0123456789", "sk-live-new-0123456789"


class RefusesTheOld:
    """A provider that answers 401 to what it has revoked."""

    def __init__(self) -> None:
        self.revoked: set[str] = set()

    def __call__(self, connection: Connection) -> None:
        request = connection.request()
        refused = bool(self.revoked & set(request.all("X-Api-Key")))
        status = b"401 Unauthorized" if refused else b"200 OK"
        connection.send(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n")


def vault_store(address: str, bao: OpenBao, folder: Path) -> dict[str, object]:
    token = folder / "token"
    token.touch(0o600)
    token.write_text(bao.token)
    auth = {"kind": "token", "token_file": "./token"}
    return {"kind": "vault", "address": address, "mount": bao.mount, "ttl": 3600, "auth": auth, "login_spread": 0}


def test_a_rotation_in_the_vault_costs_the_call_nothing_but_a_read(bao: OpenBao, tmp_path: Path) -> None:
    provider = RefusesTheOld()
    bao.put("tenants/acme/key", record("api_key", "127.0.0.1", value=OLD))
    with counting(bao) as front, Upstream(provider) as upstream:
        allow = [rule("up", upstream, credential={"name": "key", "header": "X-Api-Key"})]
        with Product(tmp_path, allow, store=vault_store(front.address, bao, tmp_path)) as product:
            assert product.get(upstream).status == 200
            bao.put("tenants/acme/key", record("api_key", "127.0.0.1", value=NEW))
            provider.revoked.add(OLD)
            reply = product.get(upstream, "/", method="POST", body=b"{}")
            assert reply.status == 200, reply.body
            assert product.audited(reply.call_id)["credential"] == "key@2"
            assert [request.all("X-Api-Key") for request in upstream.requests] == [[OLD], [OLD], [NEW]]
            assert front.count(f"GET /v1/{bao.mount}/data/tenants/acme/key") == 2
            provider.revoked.add(NEW)
            for _ in range(3):
                assert product.get(upstream).status == 401
            # Provoked refusals do not become a storm of reads: one for each second at most.
            assert front.count(f"GET /v1/{bao.mount}/data/tenants/acme/key") <= 5


def test_a_deleted_record_is_missing_at_once_after_a_401(bao: OpenBao, tmp_path: Path) -> None:
    provider = RefusesTheOld()
    bao.put("tenants/acme/key", record("api_key", "127.0.0.1", value=OLD))
    with Upstream(provider) as upstream:
        allow = [rule("up", upstream, credential={"name": "key", "header": "X-Api-Key"})]
        with Product(tmp_path, allow, store=vault_store(bao.address, bao, tmp_path)) as product:
            assert product.get(upstream).status == 200
            bao.ask("DELETE", f"{bao.mount}/data/tenants/acme/key")
            provider.revoked.add(OLD)
            first, second = product.get(upstream), product.get(upstream)
            assert (second.status, second.code) == (403, "credential_missing")
            assert first.status in (401, 403)
