"""A marked secret of every kind is driven through success, error, cut and crash; no output holds it in any rendering.

Outputs: replies, diagnostics at debug (libraries' loggers included), audit lines, metrics, the operator's socket, and
every file of the instance's folder, the ledger and the encrypted store among them. A new kind adds one row to KINDS.
"""

from __future__ import annotations

import base64
import http.client
import json
import signal
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
import trustme

from signers.masks import renderings
from signers.table import SIGNERS
from tests.flows.product import LOOPBACK, Product, absolute, as_yaml, eventually, record, rule
from tests.flows.tls_servers import PAST, identity, pem
from tests.flows.upstreams import Connection, Upstream

HOST, SECURE, ENDPOINT, DEAD = "127.0.0.31", "127.0.0.32", "127.0.0.33", "127.0.0.34"
PH = "sluicegate:canary"


@dataclass
class Kind:
    """One row: the fields of a record whose values are marked, and how a rule uses it.

    canaries   values that must never be seen; the texts in `fields` that hold "canary" beside them
    use        keys of the rule's credential besides its name
    more       keys of the rule
    lines      the request's own lines, body and path, where the kind wants some
    secure     it needs an upstream with TLS
    """

    kind: str
    fields: Mapping[str, Any]
    canaries: tuple[str, ...] = ()
    use: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    lines: tuple[bytes, ...] = ()
    body: bytes = b"{}"
    path: str = "/x"
    secure: bool = False

    @property
    def marked(self) -> list[str]:
        texts = _texts(self.fields)
        return [*self.canaries, *(text for text in texts if "canary" in text and text != PH)]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)


CLIENTS, SERVERS = trustme.CA(), trustme.CA()
CLIENT, EXPIRED = identity(CLIENTS, "one.example"), identity(CLIENTS, "old.example", not_after=PAST)
PASSPHRASE = "canary-passphrase-of-the-key"


def key_lines(pem_text: str) -> tuple[str, ...]:
    """Pieces of a private key, long enough to be told from chance."""
    return tuple(line for line in pem_text.splitlines() if len(line) > 40)


KINDS: dict[str, Kind] = {
    "bearer": Kind("bearer", {"token": "canary-bearer+token/0123456789=="}),
    "api-key": Kind("api_key", {"value": 'canary&key"of<acme>/0123'}, use={"header": "X-Api-Key"}),
    "api-key-query": Kind("api_key", {"value": "canary=key+in&query/0123"}, use={"query": "key"}),
    "api-key-cookie": Kind("api_key", {"value": "canary-key-in-cookie-0123"}, use={"cookie": "session"}),
    "basic": Kind("basic", {"username": "the-user", "password": "canary:password/ä0123456"}),
    "headers": Kind("headers", {"headers": {"X-One": "Token canary-one-0123456", "X-Two": "canary-two-01234567"}}),
    "aws": Kind(
        "aws",
        {"access_key_id": "AKIDEXAMPLE", "secret_access_key": "canary/aws+secret/0123456789", "region": "eu-west-1",
         "session_token": "canary+session/token0123456789==", "service": "sqs"},
    ),
    "hmac": Kind(
        "hmac",
        {"key_id": "canary-key-id-0123456", "secret": base64.b64encode(b"canary-hmac-secret-01234").decode()},
        canaries=(base64.b64encode(b"canary-hmac-secret-01234").decode(),),
        more={"provider": "exchange"},
    ),
    "client-credentials": Kind("client_credentials", {"app": "machine"}, canaries=("canary-issued-access-token-01",)),
    "oauth2": Kind(
        "oauth2",
        {"app": "machine", "refresh_token": "canary-refresh-token-0123", "access_token": "canary-spent-token-012345",
         "expires_at": 1},
        canaries=("canary-issued-access-token-01",),
    ),
    "mtls": Kind("mtls", CLIENT.encrypted(PASSPHRASE), canaries=(PASSPHRASE, *key_lines(CLIENT.key)), secure=True),
    "mtls-expired": Kind("mtls", EXPIRED.fields, canaries=key_lines(EXPIRED.key), secure=True),
    "mtls-and-bearer": Kind(
        "bearer", {"token": "canary-token-beside-mtls", "mtls": CLIENT.fields},
        canaries=key_lines(CLIENT.key), secure=True,
    ),
    "placeholders": Kind(
        "api_key", {"value": 'canary+placed/"value"=0123'},
        use={"placeholders": [{"header": "X-Api-Key"}, {"json": "/secret"}, {"query": "k"}, {"basic": "password"}]},
        lines=(b"X-Api-Key: " + PH.encode(), b"Content-Type: application/json",
               b"Authorization: Basic " + base64.b64encode(b"u:" + PH.encode())),
        body=json.dumps({"secret": PH}).encode(), path=f"/x?k={PH}",
    ),
}  # fmt: skip

EXCHANGE = {
    "name": "exchange", "title": "Signs with HMAC", "verified": "2026-12-01", "source": ["https://example.com"],
    "hosts": [HOST],
    "auth": {"hmac": {"algorithm": "sha256", "message": "{timestamp}{method}{target}{body}", "key": "base64",
                      "headers": {"ACCESS-KEY": "{key_id}", "ACCESS-SIGN": "{signature}"}}},
}  # fmt: skip


def test_every_signer_of_the_table_is_swept() -> None:
    swept = {kind.kind for kind in KINDS.values()} | {key for kind in KINDS.values() for key in kind.use}
    assert set(SIGNERS) <= swept


# What upstreams do.


def echo(connection: Connection) -> None:
    """Every byte of the request comes back: in a header, and in the body as it is, in base64 and in JSON."""
    request = connection.request()
    text = request.head + request.body
    login = b" ".join(value.encode("latin-1") for value in request.all("Authorization"))
    forms = [text, base64.b64encode(text), json.dumps(text.decode("latin-1")).encode()]
    body = b"\n".join(forms)
    connection.send(b"HTTP/1.1 200 OK\r\nX-Echo: %b\r\nContent-Length: %d\r\n\r\n%b" % (login, len(body), body))


def refusing(status: int) -> Callable[[Connection], None]:
    def script(connection: Connection) -> None:
        request = connection.request()
        body = json.dumps({"error": {"message": (request.head + request.body).decode("latin-1")}}).encode()
        connection.send(b"HTTP/1.1 %d Refused\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))

    return script


def cut(connection: Connection) -> None:
    """The echo breaks off in the middle."""
    text = connection.request().head
    connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + text)
    connection.drop()


def broken(connection: Connection) -> None:
    """The echo stands where no reader can take it."""
    text = connection.request().head.replace(b"\r\n", b" ")
    connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\nX-Echo: %b\r\n\r\n" % text)
    connection.end()


def silent(connection: Connection) -> None:
    connection.request()
    connection.drop()


SCRIPTS: dict[str, Callable[[Connection], None]] = {
    "success": echo, "400": refusing(400), "401": refusing(401), "403": refusing(403), "500": refusing(500),
    "cut": cut, "broken": broken, "silent": silent,
}  # fmt: skip


def issuing(connection: Connection) -> None:
    """A token endpoint that answers with a marked token, its own request in the answer."""
    request = connection.request()
    answer = {"access_token": "canary-issued-access-token-01", "expires_in": 3600, "echo": request.body.decode()}
    body = json.dumps(answer).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    connection.send(head + body)


class Sweep:
    def __init__(self, product: Product, plain: Upstream, secure: Upstream) -> None:
        self.product = product
        self.upstreams = {False: plain, True: secure}

    def run(self, name: str, script: Callable[[Connection], None], *lines: bytes, by: str = "") -> bytes:
        """One call, whatever comes of it; every byte that the client got."""
        kind = KINDS[name]
        self.upstreams[kind.secure].script = script
        path = f"/{by or name}/{name}{kind.path}"
        length = b"Content-Length: %d" % len(kind.body)
        head = [f"POST {path} HTTP/1.1".encode(), b"Host: x", b"Connection: close", *kind.lines, *lines, length]
        with self.product.base_client(20) as client:
            client.send(b"\r\n".join(head) + b"\r\n\r\n" + kind.body)
            return client.rest()

    def control(self, *words: str) -> str:
        connection = http.client.HTTPConnection("control")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(self.product.folder / "run" / "control.sock"))
        connection.request(*words)
        try:
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    def outputs(self) -> Iterator[tuple[str, bytes]]:
        for path in sorted(self.product.folder.rglob("*")):
            if path.is_file() and path.name != "records.json":
                yield path.name, path.read_bytes()
        yield "metrics", self.product.ops_get("/metrics")[1].encode()
        yield "control", self.control("GET", "/status").encode()


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sweep]:
    folder = tmp_path_factory.mktemp("p")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    SERVERS.issue_cert(SECURE).configure_cert(context)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=pem(CLIENTS))
    with ExitStack() as stack:
        plain = stack.enter_context(Upstream(host=HOST))
        secure = stack.enter_context(Upstream(host=SECURE, tls=context))
        endpoint = stack.enter_context(Upstream(issuing, host=ENDPOINT))
        with Upstream(host=DEAD) as dead:
            pass
        rules = [one for name, kind in KINDS.items() for one in _rules(name, kind, plain, secure, dead)]
        records = {name: record(kind.kind, HOST, SECURE, DEAD, **kind.fields) for name, kind in KINDS.items()}
        records["canary"] = records.pop("placeholders")
        records["apps/machine"] = {
            "client_id": "the-client", "client_secret": "canary-client-secret-01234",
            "token_endpoint": f"http://{endpoint.authority}/token", "networks": LOOPBACK,
        }  # fmt: skip
        (folder / "providers").mkdir()
        (folder / "providers" / "exchange.yaml").write_text(as_yaml(EXCHANGE).replace("'2026-12-01'", "2026-12-01"))
        settings = {"log": {"level": "debug", "format": "auto"}, "providers": ["./providers"]}
        with Product(folder, rules, records, extra_ca=pem(SERVERS).encode(), **settings) as product:
            yield Sweep(product, plain, secure)


def _rules(name: str, kind: Kind, plain: Upstream, secure: Upstream, dead: Upstream) -> Iterator[dict[str, Any]]:
    """One to the upstream of the kind, one to where nobody answers."""
    upstream = secure if kind.secure else plain
    credential = {"name": "canary" if name == "placeholders" else name, **kind.use}
    for label, place in ((name, upstream), (f"dead-{name}", dead)):
        scheme = {} if place.tls else {"plaintext": True}
        yield {
            "name": label, "host": place.host, "port": place.port, "networks": LOOPBACK, **scheme, **kind.more,
            "paths": [f"/{name}/**"], "credential": credential,
        }  # fmt: skip


def assert_unseen(name: str, where: str, output: bytes) -> None:
    for text in (*KINDS[name].marked, "canary-client-secret-01234"):
        for form in renderings([text]):
            assert form not in output, (name, where, form[:12])


@pytest.mark.parametrize("name", KINDS)
def test_a_marked_secret_is_in_no_output(sweep: Sweep, name: str) -> None:
    for what, script in SCRIPTS.items():
        reply = sweep.run(name, script)
        assert reply.startswith(b"HTTP/1.1 200 ") == (what in ("success", "cut") and name != "mtls-expired"), reply
        assert_unseen(name, f"reply to {what}", reply)
    assert_unseen(name, "kept reply", sweep.run(name, echo, b"Idempotency-Key: canary-of-%b" % name.encode()))
    assert_unseen(name, "kept reply again", sweep.run(name, echo, b"Idempotency-Key: canary-of-%b" % name.encode()))
    assert_unseen(name, "reply of nobody", sweep.run(name, echo, by=f"dead-{name}"))
    eventually(lambda: len([line for line in sweep.product.audit() if f"/{name}/" in line.get("path", "")]) > 1)
    for where, output in sweep.outputs():
        assert_unseen(name, where, output)


def test_the_sweep_would_find_what_it_looks_for(sweep: Sweep) -> None:
    """The upstream got every secret that travels, and the outputs are not empty."""
    sweep.run("bearer", echo)
    assert KINDS["bearer"].marked[0].encode() in sweep.upstreams[False].received
    named = dict(sweep.outputs())
    assert {"diagnostics.log", "audit.jsonl", "metrics", "control", "secrets.enc"} <= set(named)
    assert any("ledger" in name for name in named), sorted(named)
    assert all(named[name] for name in ("diagnostics.log", "audit.jsonl", "metrics", "control"))


def test_a_crash_shows_none_either(tmp_path_factory: pytest.TempPathFactory) -> None:
    """SIGABRT in the middle of a call: no dump, no traceback with values."""
    kind, folder = KINDS["bearer"], tmp_path_factory.mktemp("p")
    with Upstream(lambda connection: connection.wait_for_end(), host=HOST) as upstream:
        rules = [rule("crash", upstream, credential={"name": "crash"})]
        product = Product(folder, rules, {"crash": record(kind.kind, HOST, **kind.fields)})
        with product, product.client() as client:
            client.send(absolute(upstream, "/x"))
            eventually(lambda: kind.marked[0].encode() in upstream.received)
            assert product.process is not None
            product.process.send_signal(signal.SIGABRT)
            assert_unseen("bearer", "reply", client.rest())
            assert product.process.wait(10) != 0
    for path in folder.rglob("*"):
        if path.is_file():
            assert_unseen("bearer", path.name, path.read_bytes())
