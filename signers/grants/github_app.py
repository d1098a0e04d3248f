"""GitHub Apps: a JWT of the app's, exchanged for a token of one installation, narrowed to repositories and permissions.

Source: docs.github.com/en/apps/creating-github-apps/authenticating-with-a-github-app.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from signers.grants.assertion import signed
from signers.grants.model import Client, Dialect, Grant, TokenReply, TokenRequest
from signers.token_reply import read_reply

GITHUB_API: Final = "https://api.github.com"
BACKDATE: Final = 60
LIFETIME: Final = 540
"""GitHub refuses an `exp` more than 600 s ahead of its own clock: the rest is for ours being ahead."""
REPLY: Final = Dialect(fields={"access_token": ("token",)})


def github_app(
    client: Client,
    installation: str,
    now: float,
    *,
    repositories: Sequence[str] = (),
    permissions: Mapping[str, str] | None = None,
) -> Grant:
    """An installation's token. `client.token_endpoint` is the API's root; without `repositories` and `permissions` the
    token may do all that the installation may. Raises ValueError for an installation that is not a number, or no key.
    """
    if client.key is None:
        raise ValueError("a GitHub App needs a private_key")
    if not (installation.isascii() and installation.isdigit()):
        raise ValueError("installation_id must be a number")
    claims = {"iss": client.client_id, "iat": int(now) - BACKDATE, "exp": int(now) + LIFETIME}
    assertion = yield from signed(claims, client.key)
    wanted: dict[str, Any] = {}
    if repositories:
        wanted["repositories"] = list(repositories)
    if permissions:
        wanted["permissions"] = dict(permissions)
    headers = {
        "Accept": "application/vnd.github+json",
        "Authorization": f"Bearer {assertion}",
        "Content-Type": "application/json",
        "User-Agent": "sluicegate",  # GitHub refuses requests without one
        "X-GitHub-Api-Version": "2022-11-28",
    }
    url = f"{client.token_endpoint.rstrip('/')}/app/installations/{installation}/access_tokens"
    reply = yield TokenRequest(url, headers, json.dumps(wanted).encode())
    assert isinstance(reply, TokenReply)
    return read_reply(reply, REPLY, now)
