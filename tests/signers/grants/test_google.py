"""Workload identities of Google and Azure: the requests are those of google-auth and of Entra's page, byte for byte
where that can be; google-auth is asked to make its own beside ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import google.auth.identity_pool
import google.oauth2.service_account
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from signers.grants.assertion import signing_key
from signers.grants.client_credentials import client_credentials
from signers.grants.google import GOOGLE_STS, federated
from signers.grants.model import Client, Grant, Issued, Step, TokenRefused, TokenReply, TokenRequest, WorkloadToken
from signers.grants.service_account import GOOGLE_TOKEN_ENDPOINT, service_account
from signers.grants.token_exchange import TypedToken
from signers.secret import Secret

NOW = 1_700_000_000.0
POOL = "//iam.googleapis.com/projects/123/locations/global/workloadIdentityPools/p/providers/k8s"
ACCOUNT = "robot@project.iam.gserviceaccount.com"
IMPERSONATION = f"https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/{ACCOUNT}:generateAccessToken"
STORAGE = "https://www.googleapis.com/auth/devstorage.read_only"
CLIENT = Client(GOOGLE_STS, authentication="none", audience=POOL)
SUBJECT = TypedToken(Secret("eyJ.projected.token"))
FEDERATED = {"access_token": "federated", "issued_token_type": "x", "token_type": "Bearer", "expires_in": 3600}
OF_ACCOUNT = {"accessToken": "of-the-account", "expireTime": "2023-11-14T23:13:20Z"}
PEM = generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def run(grant: Grant, *answers: Any) -> tuple[list[Step], Issued]:
    """The steps of a grant, answered with JSON documents, (status, document) or bytes."""
    asked, left = [], list(answers)
    try:
        step = next(grant)
        while True:
            asked.append(step)
            answer = left.pop(0)
            if not isinstance(answer, bytes):
                status, document = answer if isinstance(answer, tuple) else (200, answer)
                answer = TokenReply(status, {"content-type": "application/json"}, json.dumps(document).encode(), NOW)
            step = grant.send(answer)
    except StopIteration as done:
        assert not left
        return asked, done.value


def form(step: Step) -> dict[str, str]:
    assert isinstance(step, TokenRequest)
    return dict(parse_qsl(step.body.decode(), strict_parsing=True))


class Recorded:
    """google-auth's transport: keeps what it is asked to send, and answers in turn."""

    def __init__(self, *answers: Any) -> None:
        self.sent: list[tuple[str, bytes, dict[str, str]]] = []
        self._answers = list(answers)

    def __call__(self, url: str, method: str = "GET", body: Any = None, headers: Any = None, **_: Any) -> Any:
        self.sent.append((url, body if isinstance(body, bytes) else str(body).encode(), dict(headers)))

        class Response:
            status = 200
            headers: dict[str, str] = {}  # noqa: RUF012
            data = json.dumps(self._answers.pop(0)).encode()

        return Response()


def googles(tmp_path: Path, impersonation: str | None, scope: str) -> Recorded:
    """What google-auth sends for a projected token in a file."""
    file = tmp_path / "token"
    file.write_text("eyJ.projected.token")
    credentials = google.auth.identity_pool.Credentials(
        audience=POOL,
        subject_token_type="urn:ietf:params:oauth:token-type:jwt",
        token_url=GOOGLE_STS,
        credential_source={"file": str(file)},
        service_account_impersonation_url=impersonation,
        scopes=[scope],
    )
    transport = Recorded(FEDERATED, OF_ACCOUNT)
    credentials.refresh(transport)
    return transport


def test_a_workloads_own_identity_is_exchanged_as_google_auth_does(tmp_path: Path) -> None:
    (asked,), issued = run(federated(CLIENT, SUBJECT, NOW, "n", scopes=[STORAGE]), FEDERATED)
    ((url, body, _),) = googles(tmp_path, None, STORAGE).sent
    assert isinstance(asked, TokenRequest)
    assert asked.url == url
    assert form(asked) == dict(parse_qsl(body.decode()))
    assert "Authorization" not in asked.headers
    assert (issued.access_token.reveal(), issued.expires_at) == ("federated", NOW + 3600)


def test_it_acts_as_a_service_account_as_google_auth_does(tmp_path: Path) -> None:
    grant = federated(CLIENT, SUBJECT, NOW, "n", scopes=[STORAGE], account=ACCOUNT)
    (exchange, impersonation), issued = run(grant, FEDERATED, OF_ACCOUNT)
    (_, first, _), (url, second, headers) = googles(tmp_path, IMPERSONATION, STORAGE).sent
    assert form(exchange)["scope"] == "https://www.googleapis.com/auth/cloud-platform"
    assert {**form(exchange), "scope": ""} == {**dict(parse_qsl(first.decode())), "scope": ""}
    assert isinstance(impersonation, TokenRequest)
    assert impersonation.url == url
    theirs = json.loads(second)
    assert json.loads(impersonation.body) == {"scope": theirs["scope"], "lifetime": theirs["lifetime"]}
    sent = {name.lower(): value for name, value in headers.items()}
    assert impersonation.headers["Authorization"] == sent["authorization"] == "Bearer federated"
    assert (issued.access_token.reveal(), issued.expires_at) == ("of-the-account", NOW + 3600)


def test_an_id_token_of_an_account_is_asked_for_with_the_federated_token() -> None:
    token = jwt.encode({"exp": int(NOW) + 3000}, "k" * 32)
    grant = federated(CLIENT, SUBJECT, NOW, "n", scopes=[], account=ACCOUNT, target_audience="https://run.example")
    (_, asked), issued = run(grant, FEDERATED, {"token": token})
    assert isinstance(asked, TokenRequest)
    assert asked.url == IMPERSONATION.replace("AccessToken", "IdToken")
    assert json.loads(asked.body) == {"audience": "https://run.example", "includeEmail": True}
    assert (issued.access_token.reveal(), issued.expires_at) == (token, NOW + 3000)


def test_an_id_token_of_a_key_is_asked_for_as_google_auth_does() -> None:
    token = jwt.encode({"exp": int(NOW) + 3000}, "k" * 32)
    client = Client(GOOGLE_TOKEN_ENDPOINT, key=signing_key(Secret(PEM)))
    grant = service_account(client, ACCOUNT, NOW, "n", scopes=[], target_audience="https://run.example")
    (asked,), issued = run(grant, {"id_token": token})
    facts = {"client_email": ACCOUNT, "private_key": PEM, "token_uri": GOOGLE_TOKEN_ENDPOINT}
    theirs = google.oauth2.service_account.IDTokenCredentials.from_service_account_info(
        facts, target_audience="https://run.example"
    )
    transport = Recorded({"id_token": token})
    theirs.refresh(transport)
    url, body, _ = transport.sent[0]
    expected, ours = dict(parse_qsl(body.decode())), form(asked)
    assert isinstance(asked, TokenRequest)
    assert (asked.url, ours["grant_type"]) == (url, expected["grant_type"])
    claims, others = (jwt.decode(each["assertion"], options={"verify_signature": False}) for each in (ours, expected))
    assert {name: value for name, value in claims.items() if name not in ("iat", "exp")} == {
        name: value for name, value in others.items() if name not in ("iat", "exp")
    }
    assert (issued.access_token.reveal(), issued.expires_at) == (token, NOW + 3000)


@pytest.mark.parametrize(
    ("answers", "outcome", "error"),
    [
        ([(400, {"error": "invalid_grant", "error_description": "private"})], "rejected", "invalid_grant"),
        ([(503, {})], "down", "status 503"),
        (
            [FEDERATED, (403, {"error": {"code": 403, "status": "PERMISSION_DENIED"}})],
            "rejected",
            "unauthorized_client",
        ),
        ([FEDERATED, (500, {"error": {"code": 500, "status": "INTERNAL"}})], "down", "INTERNAL"),
        ([FEDERATED, {"accessToken": 7}], "unknown", "no_access_token"),
    ],
)
def test_refusals_are_told_apart(answers: list[Any], outcome: str, error: str) -> None:
    with pytest.raises(TokenRefused) as refused:
        run(federated(CLIENT, SUBJECT, NOW, "n", scopes=[STORAGE], account=ACCOUNT), *answers)
    assert (refused.value.outcome, refused.value.error) == (outcome, error)


@pytest.mark.parametrize(
    ("client", "scopes"),
    [(Client(GOOGLE_STS, audience="https://evil.example"), [STORAGE]), (Client(GOOGLE_STS), [STORAGE]), (CLIENT, [])],
)
def test_what_is_lacking_is_said(client: Client, scopes: list[str]) -> None:
    with pytest.raises(ValueError, match="needs"):
        next(federated(client, SUBJECT, NOW, "n", scopes=scopes))


def test_a_workload_of_entra_proves_its_client_with_the_token_in_its_file() -> None:
    """learn.microsoft.com, "OAuth 2.0 client credentials flow": third case, access token request with a federated
    credential."""
    endpoint = "https://login.microsoftonline.com/contoso/oauth2/v2.0/token"
    client = Client(endpoint, "client-1", assertion_file="/var/run/azure/token")
    grant = client_credentials(client, NOW, "n", scopes=["https://graph.microsoft.com/.default"])
    (file, asked), issued = run(grant, b"eyJ.projected.token", {"access_token": "t", "expires_in": 3599})
    assert file == WorkloadToken("/var/run/azure/token")
    assert form(asked) == {
        "grant_type": "client_credentials",
        "scope": "https://graph.microsoft.com/.default",
        "client_id": "client-1",
        "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        "client_assertion": "eyJ.projected.token",
    }
    assert issued.access_token.reveal() == "t"
    with pytest.raises(ValueError, match="client_assertion_file"):
        next(client_credentials(Client(endpoint, "client-1", authentication="client_assertion"), NOW, "n"))
