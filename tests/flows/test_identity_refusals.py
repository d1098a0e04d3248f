"""Who is not known is refused in the way of the listener; who is known goes through, whoever failed before."""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.flows.conftest import NewFolder
from tests.flows.product import Product, absolute, origin, record, rule
from tests.flows.upstreams import Upstream
from tests.flows.ways import enter
from tests.flows.wire import Reply

ISSUER = "https://idp.test"
SECRETS = {tenant: f"sk-live-{tenant}-0123456789" for tenant in ("acme", "globex")}


class Flow:
    def __init__(self, product: Product, upstream: Upstream, key: str) -> None:
        self.product = product
        self.upstream = upstream
        self.key = key

    def token(self, tenant: str = "acme", **claims: Any) -> str:
        now = int(time.time())
        body = {
            "iss": ISSUER,
            "aud": "sluicegate",
            "iat": now,
            "exp": now + 600,
            "tenant": tenant,
            "agent": "support-bot",
        }
        return jwt.encode({**body, **claims}, self.key, algorithm="ES256", headers={"kid": "k1"})


def basic(user: str, password: str) -> bytes:
    return b"Proxy-Authorization: Basic " + base64.b64encode(f"{user}:{password}".encode())


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Flow]:
    private = ec.generate_private_key(ec.SECP256R1())
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(private.public_key()))
    (folder / "keys.json").write_text(json.dumps({"keys": [{**public, "kid": "k1", "alg": "ES256", "use": "sig"}]}))
    issuer = {
        "issuer": ISSUER,
        "audience": "sluicegate",
        "algorithms": ["ES256"],
        "jwks_file": "./keys.json",
        "tenants": ["*"],
    }
    identity = [{"kind": "session_token", "leeway": 60, "issuers": [issuer]}]
    with Upstream() as upstream:
        rules = [rule("up", upstream, credential={"name": "key", "header": "X-Api-Key"})]
        records = {
            f"tenants/{tenant}/key": record("api_key", "127.0.0.1", value=value) for tenant, value in SECRETS.items()
        }
        with Product(folder, rules, records, identity=identity) as product:
            yield Flow(product, upstream, pem)


@pytest.fixture
def flow(running: Flow) -> Flow:
    running.upstream.forget()
    return running


def assert_407(reply: Reply, code: str) -> None:
    assert (reply.status, reply.code) == (407, code)
    assert (reply.header("Proxy-Authenticate") or "").startswith("Basic")


def test_without_a_token_the_proxy_listener_answers_407_and_keeps_the_connection(flow: Flow) -> None:
    """C08: the client answers the challenge on the same connection."""
    with flow.product.client() as client:
        assert_407(client.ask(absolute(flow.upstream, "/")), "identity_missing")
        assert client.ask(absolute(flow.upstream, "/", basic("agent", flow.token()))).status == 200


def test_a_connect_without_a_token_answers_407_and_keeps_the_connection(flow: Flow) -> None:
    """C08."""
    with flow.product.client() as client:
        assert_407(client.connect(flow.upstream.authority), "identity_missing")
        assert client.connect(flow.upstream.authority, basic("agent", flow.token())).status == 200
        assert client.ask(origin(flow.upstream, "/")).status == 200
    assert flow.upstream.requests[0].all("X-Api-Key") == [SECRETS["acme"]]
    assert flow.upstream.requests[0].all("Proxy-Authorization") == []


def test_the_base_url_listener_answers_401(flow: Flow) -> None:
    with enter(flow.product, "base-url", flow.upstream, "up") as session:
        reply = session.ask("GET", "/")
        assert (reply.status, reply.code) == (401, "identity_missing")
        assert (reply.header("WWW-Authenticate") or "").startswith("Bearer")
        dummy = session.ask("GET", "/", b"Authorization: Bearer sk-dummy-of-an-sdk")
        assert (dummy.status, dummy.code) == (401, "identity_missing")
        good = session.ask("GET", "/", b"Authorization: Bearer " + flow.token().encode())
    assert good.status == 200
    assert flow.upstream.requests[0].all("Authorization") == []


def test_a_session_header_that_is_invalid_answers_403_on_every_listener(flow: Flow) -> None:
    expired = flow.token(exp=int(time.time()) - 4000, iat=int(time.time()) - 5000)
    line = b"Sluicegate-Session: " + expired.encode()
    for way in ("absolute-form", "base-url"):
        with enter(flow.product, way, flow.upstream, "up") as session:
            reply = session.ask("GET", "/", line)
        assert (reply.status, reply.code) == (403, "identity_invalid")
    assert flow.upstream.received == b""


@pytest.mark.parametrize(
    "line",
    [
        lambda token: b"Proxy-Authorization: Bearer " + token.encode(),
        lambda token: b"Proxy-Authorization: bearer " + token.encode(),
        lambda token: basic("agent", token),
        lambda token: basic("", token),
        lambda token: b"Sluicegate-Session: " + token.encode(),
    ],
)
def test_a_token_is_found_where_the_docs_name_it_and_never_leaves(flow: Flow, line: Callable[[str], bytes]) -> None:
    """C08, B36."""
    token = flow.token()
    assert flow.product.get(flow.upstream, "/", line(token)).status == 200
    assert token.encode() not in flow.upstream.received
    assert token not in flow.product.diagnostics()
    assert token not in str(flow.product.audit())


@pytest.mark.parametrize("pair", ["agent:{token}", "{token}:", "{token}:x-oauth-basic"])
def test_a_token_inside_basic_credentials_does_not_leave(flow: Flow, pair: str) -> None:
    token = flow.token()
    hidden = b"Basic " + base64.b64encode(pair.format(token=token).encode())
    session = b"Sluicegate-Session: " + token.encode()
    assert flow.product.get(flow.upstream, "/", session, b"Authorization: " + hidden).status == 200
    assert flow.upstream.requests[0].all("Authorization") == []
    others = b"Authorization: Basic " + base64.b64encode(b"user:a-password-of-the-callers-own")
    assert flow.product.get(flow.upstream, "/", session, others).status == 200
    assert len(flow.upstream.requests[1].all("Authorization")) == 1


def test_a_session_header_inside_a_tunnel_wins_for_its_one_call(flow: Flow) -> None:
    with flow.product.client() as client:
        assert client.connect(flow.upstream.authority, basic("agent", flow.token("acme"))).status == 200
        for tenant in ("acme", "globex", "acme", "globex"):
            line = b"Sluicegate-Session: " + flow.token("globex").encode()
            lines = [line] if tenant == "globex" else []
            assert client.ask(origin(flow.upstream, "/", *lines)).status == 200
    got = [request.all("X-Api-Key")[0] for request in flow.upstream.requests]
    assert got == [SECRETS[tenant] for tenant in ("acme", "globex", "acme", "globex")]
    assert not [name for name in flow.upstream.requests[1].names if name.lower().startswith("sluicegate")]


def test_bad_tokens_from_one_address_do_not_lock_out_a_good_one(flow: Flow) -> None:
    """C07."""
    with flow.product.client() as client:
        for number in range(100):
            assert_407(
                client.ask(absolute(flow.upstream, "/", basic("agent", flow.token()[:-4] + f"{number:04d}"))),
                "identity_invalid",
            )
        assert client.ask(absolute(flow.upstream, "/", basic("agent", flow.token()))).status == 200


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "other"},
        {"iss": "https://evil.test"},
        {"tenant": None},
        {"tenant": "../x"},
        {"tenant": ""},
        {"exp": None},
        {"exp": 4102444800},
        {"nbf": 4102444800},
    ],
)
def test_a_token_that_proves_too_little_is_refused(flow: Flow, claims: dict[str, Any]) -> None:
    token = flow.token(**claims)
    if claims.get("exp", 1) is None:
        body = {
            key: value for key, value in jwt.decode(token, options={"verify_signature": False}).items() if key != "exp"
        }
        token = jwt.encode(body, flow.key, algorithm="ES256", headers={"kid": "k1"})
    reply = flow.product.get(flow.upstream, "/", basic("agent", token))
    assert reply.status in (403, 407)
    assert reply.code in ("identity_invalid", "identity_missing")
    assert flow.upstream.received == b""


def test_an_unsigned_token_is_refused(flow: Flow) -> None:
    claims = jwt.decode(flow.token(), options={"verify_signature": False})
    reply = flow.product.get(flow.upstream, "/", basic("agent", jwt.encode(claims, "", algorithm="none")))
    assert reply.status == 407
    assert flow.upstream.received == b""


def test_curl_answers_the_challenge(flow: Flow) -> None:
    """C08: --proxy-anyauth waits for the 407 and goes on over the same connection."""
    proxy = f"http://agent:{flow.token()}@127.0.0.1:{flow.product.proxy}"
    for tunnel in ([], ["-p"]):
        done = subprocess.run(
            ["curl", "-sS", "--fail", "--noproxy", "", "--proxy-anyauth", *tunnel, "-x", proxy, flow.upstream.url],
            capture_output=True, timeout=20,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (0, b"ok"), done.stderr


def test_an_empty_chain_knows_nobody_or_is_refused_at_start(new_folder: NewFolder) -> None:
    with Upstream() as upstream:
        product = Product(new_folder(), [rule("up", upstream)], identity=[])
        product.write()
        if product.run("check", check=False).returncode:
            return
        with product:
            assert_407(product.get(upstream), "identity_missing")
        assert upstream.connections == []


def test_where_each_call_needs_a_session_the_connections_token_signs_nothing(flow: Flow, new_folder: NewFolder) -> None:
    """`per_call: required`: a token on the connection opens a tunnel at most; every call brings its own."""
    folder = new_folder()
    (folder / "keys.json").write_bytes((flow.product.folder / "keys.json").read_bytes())
    identity = {"chain": flow.product.settings["identity"], "per_call": "required"}
    rules = [rule("up", flow.upstream, credential={"name": "key", "header": "X-Api-Key"})]
    records = {"tenants/acme/key": record("api_key", "127.0.0.1", value=SECRETS["acme"])}
    token = flow.token().encode()
    session = b"Sluicegate-Session: " + token
    bearer = b"Authorization: Bearer " + token
    with Product(folder, rules, records, identity=identity) as product:
        with product.client() as client:
            for lines, status in ([[basic("agent", flow.token())], 403], [[session], 200]):
                assert client.ask(absolute(flow.upstream, "/", *lines)).status == status
        with product.client() as client:
            assert client.connect(flow.upstream.authority, basic("agent", flow.token())).status == 200
            assert client.ask(origin(flow.upstream, "/")).code == "identity_missing"
            assert client.ask(origin(flow.upstream, "/", session)).status == 200
        with product.base_client() as client:
            for line, status in ((bearer, 403), (session, 200)):
                asked = b"GET /up/ HTTP/1.1\r\nHost: 127.0.0.1\r\n%s\r\n\r\n" % line
                client.send(asked)
                assert client.reply("GET").status == status
    assert [request.all("X-Api-Key") for request in flow.upstream.requests] == [[SECRETS["acme"]]] * 3
