"""Consents that meet trouble: an endpoint that is not ready or not there, and a store that is away when tokens came."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import requests

from proxy.catalog import Catalog
from proxy.catalog.token import TokenFacts
from proxy.connecting.flows import STORE_TRIES, Consent
from proxy.connecting.loopback import ConsentError, Loopback
from proxy.connecting.plan import plan
from proxy.credentials.app_record import parse_app
from proxy.credentials.store import Fields
from proxy.credentials.stores.file import FileStore
from proxy.errors import StoreError
from proxy.upstream.resolver import Resolver
from proxy.upstream.token_endpoint import TokenEndpoints
from signers.secret import Secret
from tests.token_server import Answer, TokenServer, as_json

PATH = "tenants/acme/crm"
TOKENS = as_json(200, {"access_token": "an-access-token", "refresh_token": "a-refresh-token", "expires_in": 60})
DEVICE = as_json(
    200, {"device_code": "d", "user_code": "AB-CD", "verification_uri": "https://id.example/go", "interval": 5}
)


class Failing(FileStore):
    """A store whose next writes fail."""

    fails = 0

    async def write(self, path: str, fields: Fields, expected_version: int | None) -> int:
        if self.fails:
            self.fails -= 1
            raise StoreError("the store is away")
        return await super().write(path, fields, expected_version)


class Desk:
    """A consent whose token endpoint answers from a list; `waited` are the pauses it made."""

    def __init__(self, folder: Path, *answers: Answer | None) -> None:
        self.answers = list(answers)
        self.server = TokenServer(self.respond)
        self.store = Failing(folder / "secrets.enc", folder / "secrets.key")
        self.waited: list[float] = []

    async def respond(self, form: dict[str, str], headers: dict[str, str]) -> Answer | None:
        return self.answers.pop(0)

    async def sleep(self, seconds: float) -> None:
        self.waited.append(seconds)

    def consent(self, facts: TokenFacts | None = None) -> Consent:
        app = {
            "client_id": "c", "authentication": "none", "token_endpoint": self.server.url, "networks": ["127.0.0.0/8"],
            "device_endpoint": self.server.url, "authorization_endpoint": "https://id.example/auth",
        }  # fmt: skip
        endpoints = TokenEndpoints(Resolver(), ssl.create_default_context)
        wanted = plan(parse_app("apps/crm", app), facts, {}, (), "")
        return Consent(wanted, self.store, PATH, endpoints, "", lambda text: None, self.sleep)


async def test_a_device_asks_more_slowly_when_told_to_or_when_nobody_answers(tmp_path: Path) -> None:
    """RFC 8628 section 3.5."""
    pending, slower = as_json(400, {"error": "authorization_pending"}), as_json(400, {"error": "slow_down"})
    desk = Desk(tmp_path, DEVICE, pending, slower, pending, None, TOKENS)
    async with desk.server:
        assert (await desk.consent().on_device()).version == 1
    assert desk.waited == [5, 5, 10, 10, 15]


async def test_a_device_code_that_was_refused_ends_the_command(tmp_path: Path) -> None:
    desk = Desk(tmp_path, DEVICE, as_json(400, {"error": "access_denied"}))
    async with desk.server:
        with pytest.raises(ConsentError, match="access_denied"):
            await desk.consent().on_device()
    assert await desk.store.list("") == []


async def test_a_store_that_comes_back_gets_the_grant(tmp_path: Path) -> None:
    desk = Desk(tmp_path, DEVICE, TOKENS)
    desk.store.fails = 3
    async with desk.server:
        await desk.consent().on_device()
    assert (await desk.store.read(PATH)).fields["refresh_token"] == "a-refresh-token"
    assert desk.waited[1:] == [0.1, 0.2, 0.4]


def browser(link: str, more: str = "") -> Any:
    """The redirect that the provider sends the browser to."""
    asked = parse_qs(urlsplit(link).query)
    url = f"{asked['redirect_uri'][0]}?code=x&state={asked['state'][0]}{more}"
    return asyncio.create_task(asyncio.to_thread(requests.get, url, timeout=30))


async def test_a_store_that_stays_away_is_said_in_browser_and_terminal(tmp_path: Path) -> None:
    desk, pages = Desk(tmp_path, TOKENS), []
    desk.store.fails = STORE_TRIES
    async with desk.server:
        with pytest.raises(ConsentError, match="the store is away"):
            await desk.consent().in_browser(0, 30, lambda link: pages.append(browser(link)))
    page = await pages[0]
    assert (page.status_code, "could not be stored" in page.text) == (400, True)
    assert "an-access-token" not in page.text


async def test_what_only_the_redirect_tells_stands_in_the_record(tmp_path: Path) -> None:
    """Intuit names the company in the redirect alone; its API's paths need it (QuickBooks' `realmId`)."""
    provider = Catalog.load(Catalog.builtin_dir()).by_name("quickbooks")
    assert provider is not None
    desk, pages = Desk(tmp_path, TOKENS), []
    async with desk.server:
        await desk.consent(provider.token).in_browser(
            0, 30, lambda link: pages.append(browser(link, "&realmId=4620816365"))
        )
    assert (await pages[0]).status_code == 200
    assert (await desk.store.read(PATH)).fields["vars"] == {"realm_id": "4620816365"}


async def test_an_error_of_our_own_ends_the_command_too() -> None:
    async def broken(code: Secret, query: Any) -> str:
        raise RuntimeError("nobody thought of it")

    loopback = Loopback(broken)
    page = browser(f"https://id.example/auth?redirect_uri={loopback.redirect}&state={loopback.state}")
    with pytest.raises(RuntimeError):
        await loopback.wait(30)
    assert ((await page).status_code, "error of its own" in (await page).text) == (500, True)
