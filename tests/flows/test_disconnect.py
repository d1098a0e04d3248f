"""`sluicegate disconnect` while the proxy runs: off within the cache's time, revoked at the provider."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.credentials.stores.scripted_vault import Request, ScriptedVault, reply, scripted_vault
from tests.flows.conftest import NewFolder
from tests.flows.product import Product, eventually, record, rule
from tests.flows.upstreams import Upstream

SECRET = "sk-live-0123456789abcdef"


class Provider:
    """A revocation endpoint that takes a form (RFC 7009) and answers as it is told."""

    def __init__(self) -> None:
        self.status = 200

    def answer(self, request: Request) -> bytes:
        return reply(self.status)


@pytest.fixture
def endpoint() -> Iterator[tuple[Provider, ScriptedVault]]:
    provider = Provider()
    with scripted_vault(provider.answer) as server:
        yield provider, server


def test_a_disconnected_credential_stops_everywhere_and_leaves_a_tombstone(new_folder: NewFolder) -> None:
    with Upstream() as upstream:
        allow = [rule("up", upstream, credential={"name": "crm", "header": "X-Api-Key"})]
        kept = {"crm": record("bearer", "127.0.0.1", token=SECRET)}
        with Product(new_folder(), allow, kept) as product:
            assert product.get(upstream).status == 200
            done = product.run("disconnect", "crm", "--tenant", "acme")
            assert b"disconnected" in done.stdout
            assert SECRET.encode() not in done.stdout + done.stderr

            def refused() -> bool:
                reply = product.get(upstream)
                return reply.status == 403 and reply.code == "credential_disabled"

            eventually(refused, within=10, pause=0.1)
            listed = json.loads(product.run("secrets", "list", "--json").stdout)
            assert [(row["path"], row["state"]) for row in listed] == [("tenants/acme/crm", "disabled")]


def test_the_exit_code_says_that_the_provider_was_not_told_and_another_run_tells_it(
    new_folder: NewFolder, endpoint: tuple[Provider, ScriptedVault]
) -> None:
    provider, server = endpoint
    product = Product(new_folder(), [], {"crm": record("bearer", "api.test", token=SECRET, app="crm")})
    product.write()
    _put_app(product.folder, {"client_id": "id", "client_secret": "cs", "revocation_endpoint": server.address + "/r"})
    provider.status = 503
    failed = product.run("disconnect", "crm", "--tenant", "acme", check=False)
    assert failed.returncode == 1
    assert b"answered 503" in failed.stderr
    provider.status = 200
    assert b"revoked 1 token" in product.run("disconnect", "crm", "--tenant", "acme").stdout
    assert [request.path for request in server.requests] == ["/r", "/r"]
    assert server.requests[0].headers["authorization"].startswith("Basic ")
    missing = product.run("disconnect", "crm", "--tenant", "nobody", check=False)
    assert (missing.returncode, b"no such record" in missing.stderr) == (1, True)


def _put_app(folder: Path, fields: dict[str, str]) -> None:
    """An application's record, which `secrets` does not take as a credential."""
    import asyncio

    from proxy.credentials.stores.file import FileStore

    async def put() -> None:
        store = FileStore(folder / "secrets.enc", folder / "secrets.key")
        await store.start()
        await store.write("apps/crm", fields, 0)

    asyncio.run(put())
