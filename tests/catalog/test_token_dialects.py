"""The built-in providers' token endpoints, each by the peculiarity that its file declares."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from proxy.catalog import Catalog
from signers.grants.assertion import signing_key
from signers.grants.client_credentials import client_credentials
from signers.grants.jwt_bearer import jwt_bearer
from signers.grants.model import Client, Grant, TokenRefused, TokenReply, TokenRequest
from signers.grants.refresh_token import refresh_token
from signers.secret import Secret
from signers.token_reply import read_reply

CATALOG = Catalog.load(Catalog.builtin_dir())
NOW = 1_790_000_000.0
VARS = {"tenant": "directory-1", "account": "acme", "subdomain": "acme", "domain": "acme"}
KEY = signing_key(
    Secret(generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())
)


def client(provider: str, **more: Any) -> Client:
    found = CATALOG.by_name(provider)
    assert found is not None
    assert found.token is not None
    secret = more.pop("client_secret", Secret("the-secret"))
    return Client(found.token.endpoint(VARS), "the-client", secret, dialect=found.token.dialect, **more)


def refresh(provider: str) -> TokenRequest:
    step = next(refresh_token(client(provider), Secret("rt"), NOW, "n"))
    assert isinstance(step, TokenRequest)
    return step


def reply(provider: str, document: dict[str, Any], status: int = 200, variant: str = "") -> Any:
    answer = TokenReply(status, {"content-type": "application/json"}, json.dumps(document).encode(), NOW)
    return read_reply(answer, client(provider).dialect, NOW, variant)


def claims(grant: Grant) -> dict[str, Any]:
    step = next(grant)
    assert isinstance(step, TokenRequest)
    form = dict(parse_qsl(step.body.decode()))
    return dict(jwt.decode(form["assertion"], options={"verify_signature": False}))


@pytest.mark.parametrize(
    ("provider", "url"),
    [
        ("microsoft-graph", "https://login.microsoftonline.com/directory-1/oauth2/v2.0/token"),
        ("snowflake", "https://acme.snowflakecomputing.com/oauth/token-request"),
        ("zendesk", "https://acme.zendesk.com/oauth/tokens"),
        ("slack", "https://slack.com/api/oauth.v2.access"),
        ("quickbooks", "https://oauth.platform.intuit.com/oauth2/v1/tokens/bearer"),
        ("xero", "https://identity.xero.com/connect/token"),
    ],
)
def test_endpoints(provider: str, url: str) -> None:
    assert refresh(provider).url == url


@pytest.mark.parametrize("provider", ["snowflake", "docusign", "zoom", "quickbooks", "xero", "airtable"])
def test_those_that_take_the_secret_in_basic(provider: str) -> None:
    request = refresh(provider)
    assert request.headers["Authorization"].startswith("Basic ")
    assert b"the-secret" not in request.body


@pytest.mark.parametrize(
    "provider", ["microsoft-graph", "salesforce", "box", "slack", "zendesk", "github", "google-drive"]
)
def test_those_that_take_it_in_the_form(provider: str) -> None:
    request = refresh(provider)
    assert "Authorization" not in request.headers
    assert dict(parse_qsl(request.body.decode()))["client_secret"] == "the-secret"


@pytest.mark.parametrize("provider", ["square", "jira", "notion"])
def test_those_that_want_json(provider: str) -> None:
    assert json.loads(refresh(provider).body)["refresh_token"] == "rt"


@pytest.mark.parametrize(
    ("provider", "fields", "seconds"),
    [
        ("salesforce", {"issued_at": "1790000000000", "instance_url": "https://acme.my.salesforce.com"}, 7200),
        ("zendesk", {"refresh_token_expires_in": 2592000}, 1800),
        ("square", {"expires_at": "2026-09-22T14:13:20Z"}, 86400),
        ("microsoft-graph", {"expires_in": 4321, "ext_expires_in": 99999}, 4321),
        ("quickbooks", {"expires_in": 3600, "x_refresh_token_expires_in": 8726400}, 3600),
        ("notion", {}, None),
        ("slack", {"ok": True}, None),
        ("slack", {"ok": True, "expires_in": 43200}, 43200),
        ("xero", {}, 1800),
    ],
)
def test_when_their_tokens_expire(provider: str, fields: dict[str, Any], seconds: float | None) -> None:
    issued = reply(provider, {"access_token": "at", **fields})
    assert issued.expires_at == (None if seconds is None else NOW + seconds)


@pytest.mark.parametrize(
    ("provider", "status", "document", "outcome"),
    [
        ("slack", 200, {"ok": False, "error": "invalid_refresh_token"}, "rejected"),
        ("slack", 200, {"ok": False, "error": "ratelimited"}, "throttled"),
        ("slack", 200, {"ok": False, "error": "fatal_error"}, "down"),
        ("github", 200, {"error": "bad_refresh_token"}, "rejected"),
        ("github", 200, {"error": "incorrect_client_credentials"}, "rejected"),
        ("docusign", 400, {"error": "consent_required"}, "rejected"),
        ("microsoft-graph", 400, {"error": "interaction_required"}, "rejected"),
        ("jira", 403, {"error": "unauthorized_client"}, "rejected"),
        ("hubspot", 429, {"status": "error"}, "throttled"),
    ],
)
def test_their_words_for_a_refusal(provider: str, status: int, document: dict[str, Any], outcome: str) -> None:
    with pytest.raises(TokenRefused) as refused:
        reply(provider, document, status)
    assert refused.value.outcome == outcome


def test_slack_gives_a_bots_and_a_users_token_at_once() -> None:
    document = {
        "ok": True,
        "access_token": "xoxe.xoxb-bot",
        "refresh_token": "bots",
        "expires_in": 43200,
        "authed_user": {"access_token": "xoxe.xoxp-user", "refresh_token": "users", "expires_in": 3600},
    }
    bot, user = reply("slack", document), reply("slack", document, variant="user")
    assert (bot.access_token.reveal(), bot.refresh_token.reveal()) == ("xoxe.xoxb-bot", "bots")
    assert (user.access_token.reveal(), user.refresh_token.reveal()) == ("xoxe.xoxp-user", "users")
    assert user.expires_at == NOW + 3600


def test_zoom_calls_client_credentials_otherwise_and_zendesk_asks_for_a_lifetime() -> None:
    step = next(client_credentials(client("zoom"), NOW, "n", parameters={"account_id": "a1"}))
    assert isinstance(step, TokenRequest)
    assert dict(parse_qsl(step.body.decode())) == {"grant_type": "account_credentials", "account_id": "a1"}
    assert dict(parse_qsl(refresh("zendesk").body.decode()))["expires_in"] == "3600"


def test_assertions_as_each_wants_them() -> None:
    signing: dict[str, Any] = {"key": KEY, "client_secret": None}
    salesforce = claims(jwt_bearer(client("salesforce", **signing), "user@acme.example", NOW, "n"))
    assert (salesforce["aud"], salesforce["exp"] - NOW) == ("https://login.salesforce.com", 180)
    docusign = claims(
        jwt_bearer(client("docusign", **signing), "user-guid", NOW, "n", scopes=["signature", "impersonation"])
    )
    assert (docusign["aud"], docusign["scope"]) == ("account.docusign.com", "signature impersonation")
    box = claims(jwt_bearer(client("box", key=KEY), "enterprise-1", NOW, "n"))
    assert (box["box_sub_type"], box["exp"] - NOW) == ("enterprise", 45)
    with pytest.raises(StopIteration) as done:
        next(jwt_bearer(client("snowflake", **signing), "ACME.ROBOT", NOW, "n"))
    snowflake = jwt.decode(done.value.value.access_token.reveal(), options={"verify_signature": False})
    assert snowflake["iss"].startswith("ACME.ROBOT.SHA256:")
    assert snowflake["sub"] == "ACME.ROBOT"


@pytest.mark.parametrize(("provider", "grace"), [("jira", 600), ("xero", 1800), ("quickbooks", 86400), ("slack", 0)])
def test_how_long_a_rotated_refresh_token_is_still_taken(provider: str, grace: float) -> None:
    assert client(provider).dialect.reuse_grace == grace
