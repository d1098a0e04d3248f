"""Client certificates from a role of Vault's PKI engine, short-lived and renewed before they end; a real OpenBao."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.flows.product import LOOPBACK, TENANT, Product
from tests.flows.tls_servers import HOST, identity, nginx, pem
from tests.openbao import OpenBao, bao, openbao

__all__ = ["bao", "openbao"]
TTL = 120


class Issuer:
    """What nginx takes for an authority of clients: the root of the engine."""

    def __init__(self, certificate: str) -> None:
        self.cert_pem = trustme.Blob(certificate.encode())


@contextmanager
def running(bao: OpenBao, folder: Path, place: Path, ttl: int) -> Iterator[Product]:
    mount = f"pki-{folder.name}"
    bao.ask("POST", f"sys/mounts/{mount}", {"type": "pki"})
    root = bao.ask("POST", f"{mount}/root/generate/internal", {"common_name": "clients", "ttl": "1h"})
    bao.ask("POST", f"{mount}/roles/{TENANT}.agents", {"allow_any_name": True, "max_ttl": "1h", "key_type": "ec"})
    pki = {"role": f"{TENANT}.agents", "mount": mount, "common_name": "support-bot.example", "ttl": ttl}
    bao.put(f"tenants/{TENANT}/issued", {"kind": "mtls", "hosts": [HOST], "pki": pki})
    servers = trustme.CA()
    (folder / "token").write_text(bao.token)
    (folder / "token").chmod(0o600)
    store = {
        "kind": "vault", "address": bao.address, "mount": bao.mount,
        "auth": {"kind": "token", "token_file": "./token"}, "ttl": 1,
    }  # fmt: skip
    with nginx(place, identity(servers, HOST), Issuer(root["data"]["certificate"])) as server:  # type: ignore[arg-type]
        rule: dict[str, Any] = {"name": "issued", "host": HOST, "port": server.port, "networks": LOOPBACK}
        rule["credential"] = {"name": "issued"}
        with Product(folder, [rule], extra_ca=pem(servers).encode(), store=store) as product:
            yield product


def serial(product: Product) -> str:
    with product.base_client() as client:
        reply = client.ask(b"GET /issued/x HTTP/1.1\r\nHost: x\r\n\r\n")
    assert reply.status == 200, reply.body
    return reply.body.decode().split()[0]


def test_a_certificate_is_issued_once_and_shown(bao: OpenBao, tmp_path_factory: pytest.TempPathFactory) -> None:
    with running(bao, tmp_path_factory.mktemp("p"), tmp_path_factory.mktemp("s"), TTL) as product:
        first = serial(product)
        assert {serial(product) for _ in range(3)} == {first}
        left = product.metric("sluicegate_credential_expiry_seconds", provider="other")
        assert 0 < left <= TTL + 60
        assert "PRIVATE KEY" not in product.diagnostics() + (product.folder / "audit.jsonl").read_text()
