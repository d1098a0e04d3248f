"""Grants against a real authorization server: every client authentication, rotation, and the end of a reused grant."""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import requests

from proxy.connecting.flows import Consent
from proxy.connecting.loopback import ConsentError
from proxy.connecting.plan import plan
from proxy.credentials.app_record import App, parse_app
from proxy.credentials.stores.file import FileStore
from proxy.upstream.resolver import Resolver
from proxy.upstream.token_endpoint import TokenEndpoints
from signers.grants.client_credentials import client_credentials
from signers.grants.model import TokenRefused
from signers.grants.refresh_token import refresh_token
from signers.secret import Secret
from tests.oidc.provider import KEY_PEM, SECRET, AuthorizationServer, node_modules, oidc, start

__all__ = ["node_modules", "oidc"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
PATH = "tenants/acme/crm"


def app(server: AuthorizationServer, client_id: str, **more: Any) -> App:
    fields = {
        "client_id": client_id, "token_endpoint": f"{server.issuer}/token", "networks": ["127.0.0.0/8"],
        "authorization_endpoint": f"{server.issuer}/auth", "device_endpoint": f"{server.issuer}/device/auth",
        "identity_endpoint": f"{server.issuer}/me", "scopes": ["openid", "offline_access", "api:read"],
        "authorization_parameters": {"prompt": "consent"},
    }  # fmt: skip
    return parse_app(f"apps/{client_id}", {**fields, **more})


def endpoints(server: AuthorizationServer) -> TokenEndpoints:
    return TokenEndpoints(Resolver(), lambda: ssl.create_default_context(cadata=server.pem.decode()))


@pytest.mark.parametrize(
    ("client_id", "more"),
    [
        ("basic", {"client_secret": SECRET}),
        ("post", {"client_secret": SECRET, "authentication": "post"}),
        ("key", {"private_key": KEY_PEM, "key_id": "k1", "authentication": "private_key_jwt"}),
    ],
)
async def test_client_credentials_with_each_proof(
    oidc: AuthorizationServer, client_id: str, more: dict[str, Any]
) -> None:
    known = app(oidc, client_id, **more)
    issued = await endpoints(oidc).ask(
        client_credentials(known.client(None, {}), time.time(), f"nonce-{client_id}"), known.networks
    )
    assert issued.expires_at is not None
    assert 295 <= issued.expires_at - time.time() <= 300


async def test_a_clients_certificate_is_its_proof(oidc: AuthorizationServer) -> None:
    more = {"authentication": "tls_client_auth", "token_endpoint": f"{oidc.tls_issuer}/token"}
    shown = app(oidc, "tls", certificate=oidc.certificate, private_key=oidc.key, **more)
    grant = client_credentials(shown.client(None, {}), time.time(), "n")
    assert (await endpoints(oidc).ask(grant, shown.networks)).access_token
    unproven = app(oidc, "tls", token_endpoint=f"{oidc.tls_issuer}/token", authentication="none")
    with pytest.raises(TokenRefused) as refused:
        await endpoints(oidc).ask(client_credentials(unproven.client(None, {}), time.time(), "n"), unproven.networks)
    assert (refused.value.outcome, refused.value.error) == ("rejected", "invalid_client")


async def test_a_server_of_another_authority_is_not_spoken_to(oidc: AuthorizationServer) -> None:
    known = app(oidc, "basic", client_secret=SECRET, token_endpoint=f"{oidc.tls_issuer}/token")
    strangers = TokenEndpoints(Resolver(), ssl.create_default_context)
    with pytest.raises(TokenRefused) as refused:
        await strangers.ask(client_credentials(known.client(None, {}), time.time(), "n"), known.networks)
    assert refused.value.outcome == "down"


async def test_a_wrong_secret_is_a_rejected_client(oidc: AuthorizationServer) -> None:
    known = app(oidc, "basic", client_secret="not-the-secret")
    with pytest.raises(TokenRefused) as refused:
        await endpoints(oidc).ask(client_credentials(known.client(None, {}), time.time(), "n"), known.networks)
    assert (refused.value.outcome, refused.value.error) == ("rejected", "invalid_client")


class Browser:
    """Follows redirects as a person's browser does, agreeing to everything, and keeps the page at the end."""

    def __init__(self) -> None:
        self.page: asyncio.Task[requests.Response] | None = None
        self.url = ""

    def __call__(self, url: str) -> None:
        self.url = url
        self.page = asyncio.create_task(asyncio.to_thread(lambda: requests.Session().get(url, timeout=20)))


class Connecting:
    """A consent on a file store."""

    def __init__(self, folder: Path, server: AuthorizationServer, known: App, expect: str = "") -> None:
        self.store = FileStore(folder / "secrets.enc", folder / "secrets.key")
        self.shown: list[str] = []
        self.server = server
        self.consent = Consent(
            plan(known, None, {}, (), ""), self.store, PATH, endpoints(server), expect, self.shown.append
        )

    async def fields(self) -> Any:
        return (await self.store.read(PATH)).fields


async def test_consent_in_a_browser_is_stored_and_renewed_and_a_reused_token_ends_it(
    oidc: AuthorizationServer, tmp_path: Path
) -> None:
    known = app(oidc, "app", client_secret=SECRET)
    connecting, browser = Connecting(tmp_path, oidc, known, expect="alice"), Browser()
    connected = await connecting.consent.in_browser(0, 30, browser)
    assert browser.page is not None
    page = await browser.page
    assert (page.status_code, connected.account, connected.missing) == (200, "alice", ())
    assert "Connected" in page.text
    assert "alice" in page.text
    stored = await connecting.fields()
    for secret in (stored["access_token"], stored["refresh_token"]):
        assert secret not in page.text + page.url + "".join(connecting.shown)
    assert stored["granted_scopes"] == ["openid", "offline_access", "api:read"]
    client, first = known.client(None, {}), Secret(stored["refresh_token"])
    renewed = await endpoints(oidc).ask(refresh_token(client, first, time.time(), "n"), known.networks)
    assert renewed.refresh_token not in (None, first)
    for spent in (first, renewed.refresh_token):
        assert spent is not None
        with pytest.raises(TokenRefused) as refused:
            await endpoints(oidc).ask(refresh_token(client, spent, time.time(), "n"), known.networks)
        assert (refused.value.outcome, refused.value.error) == ("rejected", "invalid_grant")


async def test_another_account_than_the_expected_one_is_not_stored(oidc: AuthorizationServer, tmp_path: Path) -> None:
    known = app(oidc, "app", client_secret=SECRET)
    connecting, browser = Connecting(tmp_path, oidc, known, expect="bob"), Browser()
    with pytest.raises(ConsentError, match="'alice'"):
        await connecting.consent.in_browser(0, 30, browser)
    assert browser.page is not None
    page = await browser.page
    assert (page.status_code, "Not connected" in page.text) == (400, True)
    assert await connecting.store.list("") == []


async def test_scopes_that_were_not_granted_are_named(node_modules: Path, tmp_path: Path) -> None:
    process, server = start(tmp_path, node_modules, withheld="api:read")
    try:
        connecting = Connecting(tmp_path, server, app(server, "app", client_secret=SECRET))
        connected = await connecting.consent.in_browser(0, 30, Browser())
        assert connected.missing == ("api:read",)
        assert (await connecting.fields())["scopes"] == ["openid", "offline_access", "api:read"]
    finally:
        process.kill()
        process.wait()


async def test_a_code_on_another_device(oidc: AuthorizationServer, tmp_path: Path) -> None:
    known = app(oidc, "device", authentication="none")
    connecting = Connecting(tmp_path, oidc, known)
    running = asyncio.create_task(connecting.consent.on_device())
    while not connecting.shown and not running.done():
        await asyncio.sleep(0.01)
    where, code = re.fullmatch(r"Go to (\S+) and enter the code (\S+)", connecting.shown[0]).groups()  # type: ignore[union-attr]
    await asyncio.to_thread(agree, where, code)
    connected = await running
    assert connected.account == "alice"
    assert (await connecting.fields())["refresh_token"]


def agree(where: str, code: str) -> None:
    """What the person does on the other device: enter the code, confirm it, log in, consent."""
    session = requests.Session()
    form = session.get(where, timeout=10).text
    xsrf = re.search(r'name="xsrf" value="(\w+)"', form)
    assert xsrf is not None
    session.post(where, data={"xsrf": xsrf[1], "user_code": code}, timeout=10)
    session.post(where, data={"xsrf": xsrf[1], "user_code": code, "confirm": "yes"}, timeout=10)


async def test_the_redirect_is_exact_and_bound_to_its_state(oidc: AuthorizationServer, tmp_path: Path) -> None:
    connecting = Connecting(tmp_path, oidc, app(oidc, "app", client_secret=SECRET))
    links: list[str] = []
    running = asyncio.create_task(connecting.consent.in_browser(0, 30, links.append))
    while not links:
        await asyncio.sleep(0.01)
    asked = parse_qs(urlsplit(links[0]).query)
    redirect, state = asked["redirect_uri"][0], asked["state"][0]
    assert redirect.startswith("http://127.0.0.1:")
    assert asked["code_challenge_method"] == ["S256"]

    def get(url: str, **headers: str) -> requests.Response:
        return requests.get(url, headers=headers, timeout=10, allow_redirects=False)

    assert (await asyncio.to_thread(get, redirect + "?code=stolen&state=guessed")).status_code == 400
    assert (await asyncio.to_thread(get, redirect + "?code=stolen")).status_code == 400
    assert (await asyncio.to_thread(get, f"{redirect}/more?code=x&state={state}")).status_code == 404
    assert (
        await asyncio.to_thread(lambda: get(f"{redirect}?code=x&state={state}", Host="evil.example"))
    ).status_code == 404
    assert not running.done()
    page = await asyncio.to_thread(get, f"{redirect}?error=access_denied&state={state}")
    assert (page.status_code, "access was denied" in page.text) == (400, True)
    assert page.headers["Content-Security-Policy"].startswith("default-src 'none'")
    with pytest.raises(ConsentError, match="denied"):
        await running
