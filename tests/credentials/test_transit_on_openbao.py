"""Assertions signed by keys that never leave a real OpenBao, by every grant that makes one; the endpoint verifies."""

from __future__ import annotations

import asyncio
import inspect
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest

from proxy.credentials.resolve import Resolver
from proxy.errors import GatewayError
from proxy.model import Caller
from proxy.opening import open_issuing, open_store
from proxy.settings import settings_from
from proxy.upstream.resolver import Resolver as AddressResolver
from signers.placement import prepare
from tests.credentials.stubs import PROVIDER, SLACK, Use
from tests.openbao import OpenBao, bao, openbao
from tests.token_server import Answer, TokenServer, as_json

__all__ = ["bao", "openbao"]
PATH = "tenants/acme/slack"
KINDS = {"RS256": "rsa-2048", "PS256": "rsa-2048", "ES256": "ecdsa-p256", "ES384": "ecdsa-p384"}
Get = Callable[..., Any]


def transit_key(bao: OpenBao, algorithm: str, name: str = "app") -> tuple[str, str]:
    """A new engine with one key: its mount, and the public key in PEM."""
    mount = f"transit-{uuid.uuid4().hex[:8]}"
    bao.ask("POST", f"sys/mounts/{mount}", {"type": "transit"})
    bao.ask("POST", f"{mount}/keys/{name}", {"type": KINDS[algorithm]})
    return mount, str(bao.ask("GET", f"{mount}/keys/{name}")["data"]["keys"]["1"]["public_key"])


@asynccontextmanager
async def process(bao: OpenBao, folder: Path) -> AsyncIterator[Get]:
    """Store, issuer and resolver as `serve` opens them."""
    (folder / "token").touch(0o600)
    (folder / "token").write_text(bao.token)
    document = {
        "identity": [{"kind": "static", "tenant": "acme", "agent": "bot"}],
        "store": {
            "kind": "vault", "address": bao.address, "mount": bao.mount,
            "auth": {"kind": "token", "token_file": "./token"},
        },
    }  # fmt: skip
    settings = settings_from(json.dumps(document), folder / "sluicegate.yaml")
    store = open_store(settings.store)
    await store.start()
    issuing = open_issuing(settings, store, AddressResolver(), lambda name: None)
    resolver = Resolver(store, prepare, clock=time.time, issuing=lambda: issuing)

    async def get(tenant: str = "acme") -> str:
        found = resolver.resolve(Caller(tenant, "bot", ""), Use(), PROVIDER, SLACK, time.time())
        return str((await found if inspect.isawaitable(found) else found).injection.lines)

    try:
        yield get
    finally:
        await resolver.close()
        await store.close()


def verifying(public: str, algorithm: str, found: dict[str, Any]) -> TokenServer:
    """An endpoint that gives a token for an assertion that verifies, and keeps its claims."""

    async def respond(form: dict[str, str], headers: dict[str, str]) -> Answer:
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        assertion = form.get("assertion") or form.get("client_assertion") or bearer
        found.update(jwt.decode(assertion, public, [algorithm], options={"verify_aud": False}))
        return as_json(200, {"access_token": "issued-to-the-key", "token": "issued-to-the-key", "expires_in": 60})

    return TokenServer(respond)


@pytest.mark.parametrize(
    ("algorithm", "app", "record"),
    [
        ("ES256", {}, {"kind": "jwt_bearer", "subject": "me"}),
        ("ES384", {}, {"kind": "jwt_bearer", "subject": "me"}),
        ("RS256", {}, {"kind": "jwt_bearer", "subject": "me"}),
        ("PS256", {"authentication": "private_key_jwt"}, {"kind": "client_credentials"}),
        ("ES256", {"authentication": "private_key_jwt"}, {"kind": "client_credentials"}),
        ("RS256", {}, {"kind": "github_app", "installation_id": "4711"}),
    ],
)
async def test_a_key_in_transit_signs_the_assertions_of_an_application(
    bao: OpenBao, tmp_path: Path, algorithm: str, app: dict[str, Any], record: dict[str, Any]
) -> None:
    mount, public = transit_key(bao, algorithm)
    claims: dict[str, Any] = {}
    async with verifying(public, algorithm, claims) as endpoint, process(bao, tmp_path) as get:
        where = endpoint.url.removesuffix("/token") if record["kind"] == "github_app" else endpoint.url
        key = {"transit_key": f"{mount}/app", "algorithm": algorithm}
        bao.put("apps/crm", {"client_id": "me", "token_endpoint": where, "networks": ["127.0.0.0/8"], **key, **app})
        bao.put(PATH, {"app": "crm", **record})
        assert "issued-to-the-key" in await get()
    assert claims["iss"] == "me"


async def test_a_tenants_service_account_signs_in_transit_with_that_tenants_keys_alone(
    bao: OpenBao, tmp_path: Path
) -> None:
    if "transit/" not in bao.ask("GET", "sys/mounts"):
        bao.ask("POST", "sys/mounts/transit", {"type": "transit"})
    name = f"acme.{uuid.uuid4().hex[:8]}"
    bao.ask("POST", f"transit/keys/{name}", {"type": "rsa-2048"})
    public = str(bao.ask("GET", f"transit/keys/{name}")["data"]["keys"]["1"]["public_key"])
    claims: dict[str, Any] = {}
    record = {"kind": "service_account", "client_email": "robot@p.example", "transit_key": name, "scopes": "a b"}
    async with verifying(public, "RS256", claims) as endpoint, process(bao, tmp_path) as get:
        bao.put("apps/google", {"token_endpoint": endpoint.url, "networks": ["127.0.0.0/8"]})
        for tenant in ("acme", "globex"):
            bao.put(f"tenants/{tenant}/slack", {**record, "app": "google"})
        assert "issued-to-the-key" in await get()
        assert (claims["iss"], claims["scope"]) == ("robot@p.example", "a b")
        with pytest.raises(GatewayError) as refused:
            await get("globex")
        assert refused.value.code.name == "credential_missing"
        assert len(endpoint.forms) == 1


async def test_a_key_that_does_not_sign_leaves_the_call_without_a_token_and_asks_nobody(
    bao: OpenBao, tmp_path: Path
) -> None:
    async with verifying("", "RS256", {}) as endpoint, process(bao, tmp_path) as get:
        app = {"client_id": "me", "token_endpoint": endpoint.url, "networks": ["127.0.0.0/8"]}
        bao.put("apps/crm", {**app, "transit_key": "none-such/key", "algorithm": "ES256"})
        bao.put(PATH, {"app": "crm", "kind": "jwt_bearer", "subject": "me"})
        with pytest.raises(GatewayError) as refused:
            await asyncio.wait_for(get(), 30)
        assert refused.value.code.name == "credential_unavailable"
        assert not endpoint.forms
