"""The set-up of docs/vault.md, run as it stands there against a real OpenBao; then a call, a block, a disconnect."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy.settings import settings_from
from tests.flows.product import REPOSITORY, Product, eventually, rule
from tests.flows.upstreams import Upstream
from tests.openbao import OpenBao, binary, start_openbao, stop_openbao

PAGE = (REPOSITORY / "docs" / "vault.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenBao]:
    started = start_openbao(tmp_path_factory.mktemp("bao"))
    yield started
    stop_openbao(started)


def shell(script: str, server: OpenBao, folder: Path) -> None:
    command = binary()
    assert command is not None
    environment = {
        "PATH": f"{Path(command).parent}:{os.environ['PATH']}",
        "HOME": str(folder),
        "BAO_ADDR": server.address,
        "BAO_TOKEN": server.token,
    }
    words = ["sh", "-eu", "-c", script]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()


@pytest.fixture(scope="module")
def folder(server: OpenBao, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("p")
    shell(blocks("sh")[0], server, place)
    shell(blocks("sh")[0], server, place)
    return place


def documented(server: OpenBao, folder: Path) -> dict[str, Any]:
    """The page's configuration with this server's address and role id."""
    (text,) = blocks("yaml")
    settings: dict[str, Any] = yaml.safe_load(text.replace("ROLE_ID", (folder / "role-id").read_text()))
    settings["store"] |= {"address": server.address, "ttl": 1, "login_spread": 0}
    settings["blocks"]["every"] = 1
    return settings


def test_the_documented_configuration_loads() -> None:
    assert settings_from(blocks("yaml")[0], Path("sluicegate.yaml")).store.kind == "vault"


def test_the_set_up_serves_calls_and_the_doctor_finds_no_fault(server: OpenBao, folder: Path) -> None:
    record = {"kind": "bearer", "token": "xoxb-documented", "hosts": ["127.0.0.1"]}
    server.ask("POST", "sluicegate/data/tenants/acme/slack", {"data": record})
    with Upstream() as upstream:
        allow = [
            rule("up", upstream, credential={"name": "slack", "header": "Authorization", "format": "Bearer {value}"})
        ]
        with Product(folder, allow, **documented(server, folder)) as product:
            reply = product.get(upstream)
            assert reply.status == 200, reply.body
            assert upstream.requests[0].all("Authorization") == ["Bearer xoxb-documented"]
            read = eventually(
                lambda: next((line for line in product.audit() if line["outcome"] == "credential_read"), None)
            )
            assert (read["record"], read["call_id"]) == ("tenants/acme/slack", reply.call_id)
            assert product.metric("sluicegate_spool_durable") == 1
            assert b"FAULT" not in product.run("doctor", "--vault").stdout
            # The page's own command; it stops the tenant's calls everywhere, and deleting the record lets them go.
            shell(blocks("sh")[2].replace("slack", "other"), server, folder)
            assert product.get(upstream).status == 200
            shell(blocks("sh")[2].replace(', "provider": "slack"', ""), server, folder)
            eventually(lambda: product.get(upstream).status == 403, within=10, pause=0.1)
            assert product.get(upstream).code == "policy_denied"
            server.ask("DELETE", "sluicegate/data/fleet/blocks")
            eventually(lambda: product.get(upstream).status == 200, within=10, pause=0.1)


def test_an_operator_of_the_documented_policy_can_disconnect(server: OpenBao, folder: Path) -> None:
    server.ask(
        "POST", "sluicegate/data/tenants/acme/crm", {"data": {"kind": "bearer", "token": "t", "hosts": ["a.test"]}}
    )
    operator = folder / "operator"
    operator.mkdir()
    token = operator / "token"
    token.touch(0o600)
    token.write_text(server.new_token(policies=["sluicegate-operator"], ttl="10m"))
    settings = documented(server, folder)
    settings["store"]["auth"] = {"kind": "token", "token_file": "./token"}
    product = Product(operator, [], **settings)
    product.write()
    done = product.run("disconnect", "crm", "--tenant", "acme")
    assert b"still hold secrets" not in done.stderr
    versions = server.ask("GET", "sluicegate/metadata/tenants/acme/crm")["data"]["versions"]
    assert [versions[number]["destroyed"] for number in ("1", "2", "3")] == [True, True, False]
    left = server.ask("GET", "sluicegate/data/tenants/acme/crm")["data"]["data"]
    assert left.keys() == {"kind", "hosts", "disabled", "disconnected_at"}
    shell("bao kv get -mount=sluicegate tenants/acme/crm", server, folder)


def test_the_callers_role_reads_its_own_tenant_only(server: OpenBao, folder: Path) -> None:
    import time

    import jwt
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (folder / "issuer.pem").write_bytes(public)
    shell(blocks("sh")[1], server, folder)
    now = int(time.time())
    claims = {"sub": "ann", "aud": "sluicegate", "tenant": "acme", "iat": now, "nbf": now - 5, "exp": now + 600}
    body = {"role": "callers", "jwt": jwt.encode(claims, key, algorithm="ES256")}
    token = server.ask("POST", "auth/sluicegate-callers/login", body)["auth"]["client_token"]
    server.ask("POST", "sluicegate/data/tenants/rival/slack", {"data": {"token": "of-the-rival"}})
    assert server.ask("GET", "sluicegate/data/tenants/acme/slack", token=token)
    with pytest.raises(Exception, match="403"):
        server.ask("GET", "sluicegate/data/tenants/rival/slack", token=token)


def test_vault_keeps_the_header_once_told(server: OpenBao, folder: Path) -> None:
    shell(blocks("sh")[3], server, folder)
    headers = server.ask("GET", "sys/config/auditing/request-headers")["data"]["headers"]
    assert headers == {"sluicegate-call-id": {"hmac": False}}
