"""Whole logins at endpoints that speak each provider's documented wire format, as its file declares them.

Where a format is documented stands in `source` of the provider's file and in the comment of its row.
"""

from __future__ import annotations

import ipaddress
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import jwt
import pytest
import trustme
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from proxy.catalog import Catalog
from proxy.credentials.app_record import parse_app
from proxy.credentials.renewal import renewed_fields
from proxy.upstream.resolver import Resolver
from proxy.upstream.token_endpoint import TokenEndpoints
from signers.grants.authorization_code import authorization_code
from signers.grants.client_credentials import client_credentials
from signers.grants.jwt_bearer import JWT_BEARER, jwt_bearer
from signers.grants.model import Client, Grant, Issued, LaterStep, TokenRefused
from signers.grants.refresh_token import refresh_token
from signers.secret import Secret
from tests.token_server import Answer, TokenServer, as_json

CATALOG = Catalog.load(Catalog.builtin_dir())
NOW = time.time()
LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)
KEY = generate_private_key(65537, 2048)
PEM = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
CERTIFICATE = trustme.CA(key_type=trustme.KeyType.RSA).issue_cert("app.example", key_type=trustme.KeyType.RSA)
VARS = {"tenant": "directory-1", "account": "acme", "subdomain": "acme", "domain": "acme"}
SECRET = {"client_id": "the-client", "client_secret": "the+secret/with signs"}
GIVEN = {"access_token": "at-1"}
Form = Mapping[str, str]


def refreshed(client: Client) -> Grant:
    return refresh_token(client, Secret("rt-0"), NOW, "nonce")


def consented(client: Client) -> Grant:
    return authorization_code(client, Secret("the-code"), "http://127.0.0.1:1/callback", Secret("v"), NOW, "nonce")


def machine(client: Client) -> Grant:
    return client_credentials(client, NOW, "nonce", scopes=["https://graph.microsoft.com/.default"])


def zoom_machine(client: Client) -> Grant:
    return client_credentials(client, NOW, "nonce", parameters={"account_id": "acct-1"})


def for_subject(subject: str, **claims: str) -> Callable[[Client], Grant]:
    return lambda client: jwt_bearer(client, subject, NOW, "n" * 32, scopes=["signature"], claims=claims)


def claims_of(form: Form) -> dict[str, Any]:
    options = {"verify_aud": False, "verify_exp": False}
    return dict(jwt.decode(form["assertion"], KEY.public_key(), ["RS256"], options=options))


@dataclass(frozen=True)
class Login:
    """`answers` by the path that is asked; `sent` looks at the form and the headers of the first request."""

    provider: str
    grant: Callable[[Client], Grant]
    answers: dict[str, Any]
    sent: Callable[[Form, Form], bool]
    app: dict[str, str] = field(default_factory=lambda: dict(SECRET))
    token: str = "at-1"
    seconds: float | None = 3600
    rotated: str | None = None
    learned: dict[str, str] = field(default_factory=dict)


LOGINS = {
    # learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow
    "entra with a secret": Login(
        "microsoft-graph",
        machine,
        {"": {"token_type": "Bearer", "expires_in": 3599, "ext_expires_in": 9999, **GIVEN}},
        lambda form, head: form["client_secret"] == SECRET["client_secret"] and form["scope"].endswith("/.default"),
        seconds=3599,
    ),
    # learn.microsoft.com/entra/identity-platform/certificate-credentials
    "entra with a certificate": Login(
        "microsoft-graph",
        machine,
        {"": {"token_type": "Bearer", "expires_in": 3599, **GIVEN}},
        lambda form, head: (
            {"x5t", "x5t#S256"} <= set(jwt.get_unverified_header(form["client_assertion"]))
            and "client_secret" not in form
        ),
        {
            "client_id": "the-client",
            "authentication": "private_key_jwt",
            "algorithm": "PS256",
            "certificate": CERTIFICATE.cert_chain_pems[0].bytes().decode(),
            "private_key": CERTIFICATE.private_key_pem.bytes().decode(),
        },
        seconds=3599,
    ),
    "salesforce by assertion": Login(
        "salesforce",
        for_subject("user@acme.example"),
        {
            "": {
                **GIVEN,
                "scope": "api",
                "instance_url": "https://acme.my.salesforce.com",
                "token_type": "Bearer",
                "id": "https://login.salesforce.com/id/00D/005",
                "issued_at": "1790000000000",
            }
        },
        lambda form, head: (
            form["grant_type"] == JWT_BEARER
            and claims_of(form)["aud"] == "https://login.salesforce.com"
            and claims_of(form)["exp"] - NOW <= 180
        ),
        {"client_id": "the-client", "private_key": PEM},
        seconds=7200,
        learned={"domain": "acme"},
    ),
    # docs.snowflake.com/user-guide/oauth-custom
    "snowflake by refresh token": Login(
        "snowflake",
        refreshed,
        {"": {**GIVEN, "token_type": "Bearer", "expires_in": 600}},
        lambda form, head: head["authorization"] == "Basic dGhlLWNsaWVudDp0aGUlMkJzZWNyZXQlMkZ3aXRoK3NpZ25z",
        seconds=600,
    ),
    # developer.box.com/guides/authentication/jwt/without-sdk
    "box for the enterprise": Login(
        "box",
        for_subject("4711"),
        {"": {**GIVEN, "expires_in": 4169, "restricted_to": [], "token_type": "bearer"}},
        lambda form, head: (
            claims_of(form)["box_sub_type"] == "enterprise"
            and 16 <= len(claims_of(form)["jti"]) <= 128
            and claims_of(form)["exp"] - NOW <= 60
            and form["client_secret"] == SECRET["client_secret"]
        ),
        {**SECRET, "private_key": PEM, "key_id": "k"},
        seconds=4169,
    ),
    "box for a user": Login(
        "box",
        for_subject("23", box_sub_type="user"),
        {"": {**GIVEN, "expires_in": 4169, "token_type": "bearer"}},
        lambda form, head: (claims_of(form)["box_sub_type"], claims_of(form)["sub"]) == ("user", "23"),
        {**SECRET, "private_key": PEM},
        seconds=4169,
    ),
    # developers.docusign.com/platform/auth/jwt-get-token
    "docusign by assertion": Login(
        "docusign",
        for_subject("user-guid"),
        {"": {**GIVEN, "token_type": "Bearer", "expires_in": 3600, "scope": "signature"}},
        lambda form, head: claims_of(form)["scope"] == "signature" and claims_of(form)["aud"] == "account.docusign.com",
        {"client_id": "the-client", "private_key": PEM},
    ),
    # developers.docusign.com/platform/auth/reference/user-info
    "docusign by consent": Login(
        "docusign",
        consented,
        {
            "": {**GIVEN, "token_type": "Bearer", "refresh_token": "rt-1", "expires_in": 28800},
            "/oauth/userinfo": {
                "sub": "u",
                "accounts": [
                    {"account_id": "a", "is_default": False, "base_uri": "https://eu.docusign.net"},
                    {"account_id": "b", "is_default": True, "base_uri": "https://na3.docusign.net"},
                ],
            },
        },
        lambda form, head: form["code"] == "the-code",
        seconds=28800,
        rotated="rt-1",
        learned={"server": "na3"},
    ),
    # developers.zoom.us/docs/internal-apps/s2s-oauth
    "zoom server to server": Login(
        "zoom",
        zoom_machine,
        {"": {**GIVEN, "token_type": "bearer", "expires_in": 3599, "scope": "user:read:admin"}},
        lambda form, head: (
            (form["grant_type"], form["account_id"]) == ("account_credentials", "acct-1")
            and head["authorization"].startswith("Basic ")
        ),
        seconds=3599,
    ),
    # docs.slack.dev/authentication/using-token-rotation
    "slack's bot rotates": Login(
        "slack",
        refreshed,
        {
            "": {
                "ok": True,
                "access_token": "xoxe.xoxb-1",
                "expires_in": 43200,
                "refresh_token": "xoxe-1",
                "token_type": "bot",
            }
        },
        lambda form, head: form["refresh_token"] == "rt-0" and form["client_secret"] == SECRET["client_secret"],
        token="xoxe.xoxb-1",
        seconds=43200,
        rotated="xoxe-1",
    ),
    "slack's user rotates apart": Login(
        "slack",
        lambda client: refresh_token(client, Secret("rt-0"), NOW, "n", variant="user"),
        {
            "": {
                "ok": True,
                "access_token": "xoxe.xoxp-1",
                "expires_in": 43200,
                "refresh_token": "xoxe-2",
                "token_type": "user",
            }
        },
        lambda form, head: True,
        token="xoxe.xoxp-1",
        seconds=43200,
        rotated="xoxe-2",
    ),
    # developer.zendesk.com/api-reference/ticketing/oauth/grant_type_tokens
    "zendesk": Login(
        "zendesk",
        refreshed,
        {
            "": {
                **GIVEN,
                "refresh_token": "rt-1",
                "token_type": "bearer",
                "scope": "read",
                "refresh_token_expires_in": 7776000,
            }
        },
        lambda form, head: form["expires_in"] == "3600",
        seconds=1800,
        rotated="rt-1",
    ),
    # developer.squareup.com/reference/square/oauth-api/obtain-token
    "square": Login(
        "square",
        refreshed,
        {
            "": {
                **GIVEN,
                "token_type": "bearer",
                "merchant_id": "M",
                "refresh_token": "rt-0",
                "expires_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(NOW + 86400)),
            }
        },
        lambda form, head: (
            head["content-type"] == "application/json"
            and head["square-version"] >= "2025"
            and form["grant_type"] == "refresh_token"
        ),
        seconds=86400,
        rotated="rt-0",
    ),
    # developer.atlassian.com/cloud/jira/platform/oauth-2-3lo-apps
    "atlassian by consent": Login(
        "jira",
        consented,
        {
            "": {**GIVEN, "expires_in": 3600, "refresh_token": "rt-1", "scope": "read:jira-work offline_access"},
            "/oauth/token/accessible-resources": [
                {
                    "id": "1324a887-45db-1bf4-1e99-ef0ff456d421",
                    "name": "Acme",
                    "url": "https://acme.atlassian.net",
                    "scopes": [],
                }
            ],
        },
        lambda form, head: head["content-type"] == "application/json" and form["code_verifier"] == "v",
        rotated="rt-1",
        learned={"cloud_id": "1324a887-45db-1bf4-1e99-ef0ff456d421", "site": "acme"},
    ),
    "atlassian rotates": Login(
        "jira",
        refreshed,
        {"": {**GIVEN, "expires_in": 3600, "refresh_token": "rt-1"}},
        lambda form, head: form["refresh_token"] == "rt-0",
        rotated="rt-1",
    ),
    # developer.intuit.com/app/developer/qbo/docs/develop/authentication-and-authorization/oauth-2.0
    "quickbooks": Login(
        "quickbooks",
        refreshed,
        {
            "": {
                **GIVEN,
                "expires_in": 3600,
                "token_type": "bearer",
                "refresh_token": "rt-0",
                "x_refresh_token_expires_in": 8726400,
            }
        },
        lambda form, head: head["authorization"].startswith("Basic "),
        rotated="rt-0",
    ),
    # developer.xero.com/documentation/guides/oauth2/auth-flow
    "xero by consent": Login(
        "xero",
        consented,
        {
            "": {
                **GIVEN,
                "expires_in": 1800,
                "token_type": "Bearer",
                "refresh_token": "rt-1",
                "scope": "offline_access",
            },
            "/connections": [
                {"id": "c", "tenantId": "70784a63-d24b-46a9-a4db-0e70a274b056", "tenantType": "ORGANISATION"}
            ],
        },
        lambda form, head: head["authorization"].startswith("Basic "),
        seconds=1800,
        rotated="rt-1",
        learned={"tenant": "70784a63-d24b-46a9-a4db-0e70a274b056"},
    ),
}


class Endpoint:
    """One server for the token endpoint and what is asked after it."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.server = TokenServer(self.respond)

    async def respond(self, form: dict[str, str], headers: dict[str, str]) -> Answer:
        path = self.server.targets[-1].split()[1]
        answer = self.answers["" if path == "/token" else path]
        return answer if isinstance(answer, tuple) else as_json(200, answer)

    def client(self, provider: str, app: dict[str, str]) -> Client:
        """As a record's, its endpoints moved here."""
        facts = getattr(CATALOG.by_name(provider), "token", None)
        assert facts is not None
        client = parse_app("apps/x", {**app, "provider": provider}).client(facts, VARS)
        assert client.token_endpoint.startswith("https://")
        steps = tuple(replace(step, url=self.here(urlsplit(step.url).path)) for step in client.steps)
        return replace(client, token_endpoint=self.server.url, steps=steps)

    def here(self, path: str) -> str:
        return self.server.url.removesuffix("/token") + path


async def asked(grant: Grant) -> Issued:
    return await TokenEndpoints(Resolver(), ssl.create_default_context).ask(grant, LOOPBACK)


@pytest.mark.parametrize("name", LOGINS)
async def test_logins(name: str) -> None:
    login = LOGINS[name]
    endpoint = Endpoint(login.answers)
    async with endpoint.server as server:
        issued = await asked(login.grant(endpoint.client(login.provider, login.app)))
        assert login.sent(server.forms[0], server.heads[0])
        for head in server.heads[1:]:
            assert head["authorization"] == f"Bearer {login.token}"
    assert issued.access_token.reveal() == login.token
    lasts = None if issued.expires_at is None else issued.expires_at - NOW
    assert lasts == pytest.approx(login.seconds, abs=2)
    assert (issued.refresh_token.reveal() if issued.refresh_token else None) == login.rotated
    assert issued.learned == login.learned


async def test_slack_says_in_a_200_that_the_refresh_token_is_spent() -> None:
    endpoint = Endpoint({"": {"ok": False, "error": "invalid_refresh_token"}})
    async with endpoint.server:
        with pytest.raises(TokenRefused) as refused:
            await asked(refreshed(endpoint.client("slack", SECRET)))
    assert (refused.value.outcome, refused.value.error) == ("rejected", "invalid_grant")


SESSION = LaterStep(
    "", "POST", {"X-Version": "2"}, {"grant": "session"}, {"access_token": ("data.token",), "expires_in": ("data.ttl",)}
)


def two_steps(endpoint: Endpoint) -> Client:
    return Client(endpoint.server.url, "c", Secret("s"), steps=(replace(SESSION, url=endpoint.here("/session")),))


async def test_a_second_step_gives_the_token_that_calls_use() -> None:
    first = {"access_token": "first", "refresh_token": "rt-1", "expires_in": 60}
    endpoint = Endpoint({"": first, "/session": {"data": {"token": "second", "ttl": "900"}}})
    async with endpoint.server as server:
        issued = await asked(refreshed(two_steps(endpoint)))
    assert server.targets[1] == "POST /session HTTP/1.1"
    assert server.forms[1] == {"grant": "session"}
    assert (server.heads[1]["authorization"], server.heads[1]["x-version"]) == ("Bearer first", "2")
    assert issued.access_token.reveal() == "second"
    assert issued.expires_at == NOW + 900
    assert issued.refresh_token == Secret("rt-1")


@pytest.mark.parametrize("answer", [(500, {}, b""), (401, {}, b'{"error": "invalid_client"}'), (200, {}, b"[]")])
async def test_a_second_step_that_fails_does_not_lose_a_rotated_refresh_token(answer: Answer) -> None:
    endpoint = Endpoint({"": {"access_token": "first", "refresh_token": "rt-1"}, "/session": answer})
    async with endpoint.server:
        issued = await asked(refreshed(two_steps(endpoint)))
        assert issued.incomplete.startswith("later_step_")
        assert renewed_fields(issued)["refresh_token"] == "rt-1"
        assert "access_token" not in renewed_fields(issued)
        endpoint.answers[""] = {"access_token": "first"}
        with pytest.raises(TokenRefused):
            await asked(refreshed(two_steps(endpoint)))


async def test_a_consent_is_kept_though_the_account_cannot_be_learned() -> None:
    login = LOGINS["xero by consent"]
    endpoint = Endpoint({**login.answers, "/connections": (503, {}, b"")})
    async with endpoint.server:
        issued = await asked(consented(endpoint.client("xero", SECRET)))
    assert (issued.refresh_token, issued.learned) == (Secret("rt-1"), {})
