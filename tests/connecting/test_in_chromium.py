"""`sluicegate connect` with a real authorization server and a real browser: what its page says at the end."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from tests.flows.product import command, environment
from tests.oidc.provider import SECRET, AuthorizationServer, node_modules, oidc

__all__ = ["node_modules", "oidc"]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium"),
    pytest.mark.slow,
    pytest.mark.timeout(180),
]
PROVIDER = {
    "name": "crm", "title": "The CRM", "verified": "2026-09-30", "source": ["https://crm.example.com/docs"],
    "hosts": ["crm.example.com"], "auth": {"bearer": {"header": "Authorization", "format": "Bearer {value}"}},
}  # fmt: skip


class Desk:
    """A configuration with one application, and a browser beside it."""

    def __init__(self, folder: Path, server: AuthorizationServer) -> None:
        self.folder = folder
        (folder / "providers").mkdir()
        file = yaml.safe_dump(PROVIDER).replace("'2026-09-30'", "2026-09-30")
        (folder / "providers" / "crm.yaml").write_text(file)
        settings = {
            "identity": [{"kind": "static", "tenant": "acme", "agent": "bot"}],
            "store": {"kind": "file", "path": "./secrets.enc", "key_file": "./secrets.key"},
            "providers": ["./providers"],
        }
        (folder / "sluicegate.yaml").write_text(yaml.safe_dump(settings))
        app = {
            "client_id": "app", "client_secret": SECRET, "networks": ["127.0.0.0/8"],
            "token_endpoint": f"{server.issuer}/token", "authorization_endpoint": f"{server.issuer}/auth",
            "identity_endpoint": f"{server.issuer}/me", "scopes": ["openid", "offline_access", "api:read"],
            "authorization_parameters": {"prompt": "consent"},
        }  # fmt: skip
        self.run("secrets", "set", "apps/crm", given=json.dumps(app))

    def run(self, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(*words), input=given, capture_output=True, text=True, cwd=self.folder, env=environment(),
            timeout=60, check=False,
        )  # fmt: skip

    @contextmanager
    def connect(self, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
        """The running command and the link that it shows."""
        process = subprocess.Popen(
            command("connect", "crm", "--tenant", "acme", "--no-browser", *words),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.folder, env=environment(),
        )  # fmt: skip
        assert process.stdout is not None
        try:
            link = next(found[0] for line in process.stdout if (found := re.search(r"http://\S+", line)))
            yield process, link
        finally:
            process.kill()
            process.wait()

    def page(self, url: str) -> str:
        """What the browser shows, as its own document tree."""
        words = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        profile = f"--user-data-dir={self.folder / 'profile'}"
        shown = subprocess.run(
            [str(CHROMIUM), *words, profile, "--dump-dom", url], capture_output=True, text=True, timeout=90, check=False
        )
        return shown.stdout

    def stored(self) -> str:
        return self.run("secrets", "list").stdout


@pytest.fixture
def desk(oidc: AuthorizationServer, tmp_path: Path) -> Desk:
    return Desk(tmp_path, oidc)


def said(page: str) -> tuple[str, str]:
    """Title and text."""
    title = re.search(r"<title>(.*?)</title>", page)
    body = re.search(r"<main>(.*?)</main>", page, re.DOTALL)
    assert title is not None, page
    assert body is not None, page
    return title[1], re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body[1])).strip()


def test_the_browser_says_that_the_account_is_connected_and_the_grant_is_stored(desk: Desk) -> None:
    with desk.connect("--expect-account", "alice") as (process, link):
        page = desk.page(link)
        assert said(page) == ("Connected", "Connected crm is connected as alice. You can close this window.")
        assert "<script" not in page
        rest, _ = process.communicate(timeout=30)
        assert process.returncode == 0
        assert "version 1, connected as alice" in rest
        assert "tenants/acme/crm" in desk.stored()


def test_the_browser_says_that_it_is_another_account_and_nothing_is_stored(desk: Desk) -> None:
    with desk.connect("--expect-account", "bob") as (process, link):
        title, text = said(desk.page(link))
        assert title == "Not connected"
        assert "'alice'" in text
        assert "'bob' is expected" in text
        assert "Nothing was stored" in text
        rest, _ = process.communicate(timeout=30)
        assert process.returncode == 1
        assert "'bob' is expected" in rest
        assert "tenants/acme/crm" not in desk.stored()


def test_the_browser_says_when_access_was_denied_or_the_link_is_another_commands(desk: Desk) -> None:
    with desk.connect() as (process, link):
        asked = parse_qs(urlsplit(link).query)
        redirect, state = asked["redirect_uri"][0], asked["state"][0]
        title, text = said(desk.page(f"{redirect}?code=stolen&state=guessed"))
        assert (title, text.startswith("Not connected This link does not belong")) == ("Not connected", True)
        title, text = said(desk.page(f"{redirect}?error=access_denied&state={state}"))
        assert (title, "says that access was denied" in text) == ("Not connected", True)
        process.communicate(timeout=30)
        assert process.returncode == 1
        assert "tenants/acme/crm" not in desk.stored()
