"""What each grant sends: the RFCs' own examples, and each provider's peculiarities."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl

import jwt
import pytest
import trustme
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509 import load_pem_x509_certificate
from hypothesis import given
from hypothesis import strategies as st

from signers.grants.assertion import fingerprint, signed, signing_key, thumbprints
from signers.grants.authorization_code import authorization_url, challenge
from signers.grants.client_authentication import basic
from signers.grants.client_credentials import client_credentials
from signers.grants.device_code import device_authorization, device_code
from signers.grants.github_app import github_app
from signers.grants.jwt_bearer import JWT_BEARER, jwt_bearer
from signers.grants.model import (
    AssertionStyle,
    Client,
    ClientCertificate,
    Dialect,
    Grant,
    Issued,
    RemoteKey,
    SignatureRequest,
    TokenRefused,
    TokenReply,
    TokenRequest,
)
from signers.grants.refresh_token import refresh_token
from signers.grants.service_account import GOOGLE_TOKEN_ENDPOINT, service_account
from signers.grants.token_exchange import TypedToken, token_exchange
from signers.secret import Secret

NOW = 1_790_000_000.0
ENDPOINT = "https://server.example.com/token"
CLIENT = Client(ENDPOINT, "s6BhdRkqt3", Secret("gX1fBat3bV"))
ALGORITHMS = ["RS256", "RS512", "PS256", "PS384", "ES256", "ES384", "ES512", "EdDSA"]


@cache
def private_key(algorithm: str) -> Any:
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    if algorithm.startswith("ES"):
        return ec.generate_private_key(
            {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}[algorithm]
        )
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def pem(algorithm: str = "RS256") -> Secret:
    return Secret(private_key(algorithm).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())


def request_of(grant: Grant) -> TokenRequest:
    step = next(grant)
    assert isinstance(step, TokenRequest)
    return step


def form_of(grant: Grant) -> dict[str, str]:
    return dict(parse_qsl(request_of(grant).body.decode()))


def finish(grant: Grant, document: Any, status: int = 200) -> Issued:
    next(grant)
    with pytest.raises(StopIteration) as done:
        grant.send(TokenReply(status, {}, json.dumps(document).encode(), NOW))
    issued = done.value.value
    assert isinstance(issued, Issued)
    return issued


def test_a_refresh_is_the_rfcs_example() -> None:
    """RFC 6749 section 6."""
    request = request_of(refresh_token(CLIENT, Secret("tGzv3JOkF0XG5Qx2TlKWIA"), NOW, "n"))
    assert request.url == ENDPOINT
    assert request.headers["Authorization"] == "Basic czZCaGRSa3F0MzpnWDFmQmF0M2JW"
    assert request.headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert request.body == b"grant_type=refresh_token&refresh_token=tGzv3JOkF0XG5Qx2TlKWIA"
    assert "tGzv" not in repr(request)


@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_both_parts_of_basic_are_form_encoded(identity: str, secret: str) -> None:
    """RFC 6749 section 2.3.1."""
    pair = base64.b64decode(basic(identity, secret).removeprefix("Basic ")).decode()
    left, _, right = pair.partition(":")
    assert parse_qs(f"a={left}&b={right}", keep_blank_values=True) == {"a": [identity], "b": [secret]}


def test_each_way_to_prove_the_client() -> None:
    grant = lambda **more: client_credentials(Client(ENDPOINT, "me", **more), NOW, "nonce-1")  # noqa: E731
    assert form_of(grant(client_secret=Secret("s"), authentication="post")) == {
        "grant_type": "client_credentials", "client_id": "me", "client_secret": "s",
    }  # fmt: skip
    assert form_of(grant(authentication="none")) == {"grant_type": "client_credentials", "client_id": "me"}
    shown = ClientCertificate("CERT", Secret("KEY"))
    assert request_of(grant(authentication="tls_client_auth", certificate=shown)).certificate is shown
    form = form_of(grant(authentication="private_key_jwt", key=signing_key(pem(), key_id="k1")))
    claims = jwt.decode(
        form["client_assertion"], private_key("RS256").public_key(), ["RS256"], audience=ENDPOINT,
        options={"verify_exp": False, "verify_iat": False},
    )  # fmt: skip
    assert (claims["iss"], claims["sub"], claims["jti"]) == ("me", "me", "nonce-1")
    assert claims["iat"] < NOW < claims["exp"] <= NOW + 300
    assert jwt.get_unverified_header(form["client_assertion"])["kid"] == "k1"
    for method in ("basic", "post", "private_key_jwt", "tls_client_auth"):
        with pytest.raises(ValueError, match="needs"):
            next(grant(authentication=method))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_assertions_verify_with_another_library(algorithm: str) -> None:
    client = Client(ENDPOINT, "app", key=signing_key(pem(algorithm), algorithm))
    form = form_of(jwt_bearer(client, "user@example.com", NOW, "n", scopes=["a", "b"]))
    assert form["grant_type"] == JWT_BEARER
    assert form["scope"] == "a b"
    public = private_key(algorithm).public_key()
    options = {"verify_exp": False, "verify_iat": False}
    claims = jwt.decode(form["assertion"], public, [algorithm], audience=ENDPOINT, options=options)
    assert (claims["iss"], claims["sub"]) == ("app", "user@example.com")
    assert claims["iat"] == NOW - 30


def test_a_key_does_not_sign_with_an_algorithm_of_another_type() -> None:
    for key, algorithm in (
        ("RS256", "ES256"),
        ("ES256", "RS256"),
        ("ES256", "ES384"),
        ("RS256", "HS256"),
        ("EdDSA", "none"),
    ):
        with pytest.raises(ValueError, match="does not sign"):
            signing_key(pem(key), algorithm)
    with pytest.raises(ValueError, match="no unencrypted private key"):
        signing_key(Secret("-----BEGIN NOTHING-----"))


@pytest.mark.parametrize(("kind", "algorithm"), [("RS256", "RS256"), ("ES384", "ES384"), ("EdDSA", "EdDSA")])
def test_without_a_word_the_keys_usual_algorithm_is_taken(kind: str, algorithm: str) -> None:
    assert signing_key(pem(kind)).algorithm == algorithm


def test_a_remote_keys_signature_is_asked_for() -> None:
    grant = signed({"sub": "x"}, RemoteKey("tenant-key", "ES256", "k"))
    asked = next(grant)
    assert isinstance(asked, SignatureRequest)
    assert (asked.key, asked.algorithm) == ("tenant-key", "ES256")
    with pytest.raises(StopIteration) as done:
        grant.send(b"signature")
    assert done.value.value == f"{asked.signing_input.decode()}.c2lnbmF0dXJl"


def test_an_assertion_that_is_the_token_needs_no_endpoint() -> None:
    """Snowflake's key-pair authentication."""
    style = AssertionStyle(issuer="{subject}.{fingerprint}", lifetime=3540, is_token=True)
    client = Client("https://x.example/", key=signing_key(pem()), dialect=Dialect(assertion=style))
    with pytest.raises(StopIteration) as done:
        next(jwt_bearer(client, "ACCOUNT.USER", NOW, "n"))
    issued = done.value.value
    claims = jwt.decode(issued.access_token.reveal(), options={"verify_signature": False})
    assert claims["iss"] == f"ACCOUNT.USER.{fingerprint(client.key)}"
    assert claims["iss"].startswith("ACCOUNT.USER.SHA256:")
    assert issued.expires_at == NOW + 3540


def test_a_service_account_speaks_for_itself_or_for_a_user() -> None:
    client = Client(GOOGLE_TOKEN_ENDPOINT, key=signing_key(pem(), "RS256", "kid-1"))
    options = {"verify_signature": False}
    for subject in (None, "jane@example.com"):
        grant = service_account(
            client, "robot@p.iam.gserviceaccount.com", NOW, "n", scopes=["s1", "s2"], subject=subject
        )
        form = form_of(grant)
        claims = jwt.decode(form["assertion"], options=options)
        assert claims.get("sub") == subject
        assert (claims["scope"], claims["aud"]) == ("s1 s2", GOOGLE_TOKEN_ENDPOINT)
        assert claims["exp"] - claims["iat"] == 3600
        assert claims["iat"] < NOW
        assert set(form) == {"grant_type", "assertion"}
    with pytest.raises(ValueError, match="scopes"):
        next(service_account(client, "robot@p", NOW, "n", scopes=[]))


def test_a_github_apps_token_is_narrowed() -> None:
    client = Client("https://api.github.com", "Iv1.abc", key=signing_key(pem()))
    grant = github_app(client, "4711", NOW, repositories=["one"], permissions={"contents": "read"})
    request = request_of(grant)
    assert request.url == "https://api.github.com/app/installations/4711/access_tokens"
    assert json.loads(request.body) == {"repositories": ["one"], "permissions": {"contents": "read"}}
    claims = jwt.decode(request.headers["Authorization"].removeprefix("Bearer "), options={"verify_signature": False})
    assert claims == {"iss": "Iv1.abc", "iat": int(NOW) - 60, "exp": int(NOW) + 540}
    with pytest.raises(StopIteration) as done:
        body = {"token": "ghs_x", "expires_at": "2026-09-21T15:13:20Z"}
        grant.send(TokenReply(201, {}, json.dumps(body).encode(), NOW))
    assert done.value.value.expires_at == NOW + 3600
    for odd in ("", "1/../2", "abc", "１"):
        with pytest.raises(ValueError, match="number"):
            next(github_app(client, odd, NOW))


def test_a_token_exchange_is_the_rfcs_example() -> None:
    """RFC 8693 section 2.3."""
    subject = TypedToken(
        Secret("accVkjcJyb4BWCxGsndESCJQbdFMogUC5PbRDqceLTC"), "urn:ietf:params:oauth:token-type:access_token"
    )
    client = Client("https://as.example.com/as/token.oauth2", "rs08", Secret("long-secure-random-secret"))
    request = request_of(token_exchange(client, subject, NOW, "n", resources=["https://backend.example.com/api"]))
    assert request.headers["Authorization"] == "Basic cnMwODpsb25nLXNlY3VyZS1yYW5kb20tc2VjcmV0"
    assert dict(parse_qsl(request.body.decode())) == {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "resource": "https://backend.example.com/api",
        "subject_token": "accVkjcJyb4BWCxGsndESCJQbdFMogUC5PbRDqceLTC",
        "subject_token_type": "urn:ietf:params:oauth:token-type:access_token",
    }


def test_an_exchange_names_actor_audiences_and_scopes() -> None:
    grant = token_exchange(
        CLIENT, TypedToken(Secret("subject")), NOW, "n", actor=TypedToken(Secret("actor")),
        audiences=["a", "b"], resources=["r"], scopes=["x", "y"], requested_type="t",
    )  # fmt: skip
    form = parse_qs(request_of(grant).body.decode())
    assert form["audience"] == ["a", "b"]
    assert (form["actor_token"], form["scope"], form["requested_token_type"]) == (["actor"], ["x y"], ["t"])


def test_a_dialect_changes_body_names_and_parameters() -> None:
    dialect = Dialect(
        authentication="post", body="json", scope_separator=",", headers={"X-Version": "1"},
        parameters={"*": {"a": "1"}, "client_credentials": {"account_id": "9"}},
        grant_types={"client_credentials": "account_credentials"},
    )  # fmt: skip
    client = Client(ENDPOINT, "me", Secret("s"), dialect=dialect)
    request = request_of(client_credentials(client, NOW, "n", scopes=["x", "y"]))
    assert request.headers["Content-Type"] == "application/json"
    assert request.headers["X-Version"] == "1"
    assert json.loads(request.body) == {
        "grant_type": "account_credentials", "scope": "x,y", "a": "1", "account_id": "9",
        "client_id": "me", "client_secret": "s",
    }  # fmt: skip


def test_pkce_is_the_rfcs_example() -> None:
    """RFC 7636 appendix B."""
    verifier = Secret("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk")
    assert challenge(verifier) == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
    url = authorization_url(
        CLIENT, "https://as.example/auth", "http://127.0.0.1:1/cb", "st", verifier, ["a"], {"p": "q"}
    )
    query = parse_qs(url.partition("?")[2])
    assert query["code_challenge_method"] == ["S256"]
    assert query["p"] == ["q"]
    assert "dBjftJ" not in url


def test_a_device_is_shown_a_code() -> None:
    grant = device_authorization(
        Client(ENDPOINT, "tv", authentication="none"), "https://as.example/device", ["a"], NOW, "n"
    )
    assert isinstance(request := next(grant), TokenRequest)
    assert request.body == b"client_id=tv&scope=a"
    with pytest.raises(StopIteration) as done:
        body = {"device_code": "d", "user_code": "AB-CD", "verification_uri": "https://as.example/go", "interval": 7}
        grant.send(TokenReply(200, {}, json.dumps(body).encode(), NOW))
    shown = done.value.value
    assert (shown.user_code, shown.interval, shown.expires_in) == ("AB-CD", 7, 600)
    polled = device_code(Client(ENDPOINT, "tv", authentication="none"), shown.device_code, NOW, "n")
    next(polled)
    with pytest.raises(TokenRefused) as refused:
        polled.send(TokenReply(400, {}, b'{"error": "authorization_pending"}', NOW))
    assert refused.value.error == "authorization_pending"


def rfc_examples() -> list[Any]:
    here = Path(__file__).resolve().parents[3].parent / "shared" / "vectors"
    file = Path(os.environ.get("SLUICEGATE_VECTORS", here)) / "oauth-examples" / "rfc_examples.json"
    if not file.exists():
        return []
    return [case for case in json.loads(file.read_text())["cases"] if "request" in case]


BUILDERS: dict[str, Callable[[], Grant]] = {
    "client_credentials request": lambda: client_credentials(CLIENT, NOW, "n"),
    "refresh request": lambda: refresh_token(CLIENT, Secret("tGzv3JOkF0XG5Qx2TlKWIA"), NOW, "n"),
    "token exchange request": lambda: token_exchange(
        Client("https://as.example.com/as/token.oauth2", "rs08", Secret("long-secure-random-secret")),
        TypedToken(
            Secret("accVkjcJyb4BWCxGsndESCJQbdFMogUC5PbRDqceLTC"), "urn:ietf:params:oauth:token-type:access_token"
        ),
        NOW,
        "n",
        resources=["https://backend.example.com/api"],
    ),
}


@pytest.mark.parametrize("what", BUILDERS)
def test_requests_of_the_rfcs(what: str) -> None:
    found = [case for case in rfc_examples() if case["what"] == what]
    if not found:
        pytest.skip("published vectors are not here")
    head, _, body = found[0]["request"].partition("\r\n\r\n")
    request = request_of(BUILDERS[what]())
    assert f"Authorization: {request.headers['Authorization']}" in head
    assert dict(parse_qsl(request.body.decode())) == dict(parse_qsl(body))


def test_an_assertion_names_the_certificate_of_its_key() -> None:
    """RFC 7515 sections 4.1.7 and 4.1.8; learn.microsoft.com/entra/identity-platform/certificate-credentials."""
    certificate = trustme.CA().issue_cert("app.example").cert_chain_pems[0].bytes().decode()
    key = replace(signing_key(pem(), "PS256"), header=thumbprints(certificate))
    form = form_of(client_credentials(Client(ENDPOINT, "me", authentication="private_key_jwt", key=key), NOW, "n"))
    header = jwt.get_unverified_header(form["client_assertion"])
    der = load_pem_x509_certificate(certificate.encode()).public_bytes(Encoding.DER)
    for name, digest in (("x5t", hashlib.sha1(der)), ("x5t#S256", hashlib.sha256(der))):
        assert header[name] == base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()
    with pytest.raises(ValueError, match="certificate"):
        thumbprints("nothing")
