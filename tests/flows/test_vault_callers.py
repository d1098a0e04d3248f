"""`caller_jwt` through the whole product: session tokens log in to a real OpenBao, whose policy keeps tenants apart."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from tests.credentials.stores.bao_front import counting
from tests.credentials.stores.scripted_vault import ScriptedVault
from tests.flows.product import Product, absolute, record, rule
from tests.flows.upstreams import Upstream
from tests.flows.wire import Reply
from tests.openbao import OpenBao, bao, openbao

__all__ = ["bao", "openbao"]

ISSUER = "https://idp.test"
SECRETS = {tenant: f"sk-live-{tenant}-0123456789" for tenant in ("acme", "globex")}


class Flow:
    def __init__(self, product: Product, upstream: Upstream, front: ScriptedVault, key: str, mount: str) -> None:
        self.product, self.upstream, self.front, self._key, self.mount = product, upstream, front, key, mount

    def call(self, tenant: str, agent: str = "bot") -> Reply:
        now = int(time.time())
        claims = {"iss": ISSUER, "aud": "sluicegate", "iat": now, "nbf": now - 5, "exp": now + 600}
        body = {**claims, "tenant": tenant, "agent": agent, "sub": agent}
        token = jwt.encode(body, self._key, algorithm="ES256", headers={"kid": "k1"})
        with self.product.client() as client:
            return client.ask(absolute(self.upstream, "/", b"Sluicegate-Session: " + token.encode()))


@pytest.fixture
def flow(bao: OpenBao, tmp_path: Path) -> Iterator[Flow]:
    private = ec.generate_private_key(ec.SECP256R1())
    key = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(private.public_key()))
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [{**public, "kid": "k1", "alg": "ES256", "use": "sig"}]}))
    pem = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    mount = f"callers-{bao.mount}"
    trust_callers(bao, mount, pem)
    for tenant, value in SECRETS.items():
        bao.put(f"tenants/{tenant}/key", record("api_key", "127.0.0.1", value=value))
    issuer = {
        "issuer": ISSUER,
        "audience": "sluicegate",
        "algorithms": ["ES256"],
        "jwks_file": "./keys.json",
        "tenants": ["*"],
    }
    with counting(bao) as front, Upstream() as upstream:
        allow = [rule("up", upstream, credential={"name": "key", "header": "X-Api-Key"})]
        auth = {"kind": "caller_jwt", "role": "callers", "mount": mount}
        store = {"kind": "vault", "address": front.address, "mount": bao.mount, "auth": auth}
        identity = [{"kind": "session_token", "issuers": [issuer]}]
        with Product(tmp_path, allow, identity=identity, store=store) as product:
            yield Flow(product, upstream, front, key, mount)


def trust_callers(bao: OpenBao, mount: str, public_key: str) -> None:
    """The role and templated policy of docs/vault.md, on a mount of the test's own."""
    bao.ask("POST", f"sys/auth/{mount}", {"type": "jwt"})
    bao.ask("POST", f"auth/{mount}/config", {"jwt_validation_pubkeys": [public_key]})
    accessor = bao.ask("GET", "sys/auth")["data"][f"{mount}/"]["accessor"]
    path = f"{bao.mount}/data/tenants/{{{{identity.entity.aliases.{accessor}.name}}}}/*"
    bao.ask("PUT", f"sys/policies/acl/{mount}", {"policy": f'path "{path}" {{ capabilities = ["read"] }}'})
    role = {"role_type": "jwt", "bound_audiences": ["sluicegate"], "user_claim": "tenant", "token_type": "batch"}
    bao.ask("POST", f"auth/{mount}/role/callers", {**role, "token_policies": [mount], "token_ttl": "10m"})


def test_each_tenants_own_token_fetches_its_credential(flow: Flow) -> None:
    for tenant in ("acme", "globex", "acme"):
        reply = flow.call(tenant)
        assert reply.status == 200, reply.body
        assert flow.upstream.requests[-1].all("X-Api-Key") == [SECRETS[tenant]]
    reads = [request for request in flow.front.requests if "/data/tenants/" in request.path]
    assert len(reads) == 2
    assert len({request.token for request in reads}) == 2
    assert flow.front.count(f"POST /v1/auth/{flow.mount}/login") == 2
    assert all(request.headers["sluicegate-call-id"] for request in reads)


def test_a_tenant_that_vault_does_not_know_gets_nothing(flow: Flow) -> None:
    reply = flow.call("initech")
    assert (reply.status, reply.code) == (403, "credential_missing")
    assert flow.upstream.received == b""


def test_the_operator_sees_how_this_store_logs_in(flow: Flow) -> None:
    checked = flow.product.run("check")
    assert b"no faults" in checked.stdout
    examined = flow.product.run("doctor", "--vault")
    assert b"only callers log in" in examined.stdout
