"""The path of a call: each stage in its turn, nothing sent before it is signed, one record for every end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from proxy.audit.metrics import Metrics
from proxy.audit.rendering import Clock
from proxy.errors import GatewayError
from proxy.identity.chain import Chain
from proxy.identity.static import Static
from proxy.model import AuditRecord, Call, Caller, Destination, Material, Place, RequestHead
from proxy.pipeline import CallIds, Pipeline
from proxy.responses.masking import Masks
from proxy.routing import Snapshot
from proxy.rules import load_rules
from proxy.upstream.retry import RetryPolicy
from proxy.upstream.way import Timeouts
from proxy.wire.client_connection import ClientConnection
from proxy.wire.framing import Limits
from proxy.wire.pool import Addresses, PoolKey
from proxy.wire.server_connection import ServerConnection
from proxy.wire.sweep import Sweep
from signers.placement import Injection
from tests.wire.recording import RecordingService, RecordingTransport

SECRET = b"sk-live-0123456789"
INJECTION = Injection(lines=b"X-Api-Key: %b\r\n" % SECRET, clears=frozenset({b"x-api-key"}), masks=(SECRET,))
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
ORDERS = Destination("https", "orders.test", 443)

POLICY = """
apiVersion: sluicegate/v1
kind: EgressPolicy
metadata: {name: support}
subjects: [{agent: bot, tenant: acme}]
allow:
  - {name: orders, host: orders.test, credential: {name: orders-api, header: X-Api-Key}}
  - {name: open, host: open.test}
deny:
  - {name: no-admin, host: orders.test, paths: ["/admin/**"]}
"""


class Credentials:
    """Hands out what it was told to, and remembers who asked for what."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.found: Material | Awaitable[Material] | GatewayError = material(1)
        self.newer: Material | None = None

    def resolve(self, caller: Caller, use: Any, *_: object) -> Any:
        self.asked.append((caller.tenant, use.name))
        if isinstance(self.found, GatewayError):
            raise self.found
        return self.found

    async def reread(self, *_: object) -> bool:
        if self.newer is None:
            return False
        self.found = self.newer
        return True


def material(version: int, injection: Injection = INJECTION) -> Material:
    return Material(f"orders-api@{version}", frozenset({"orders.test"}), injection, None, Masks(injection.masks))


class Audit:
    def __init__(self) -> None:
        self.clock = Clock()
        self.lines: list[tuple[str, AuditRecord]] = []

    blocks = True
    full = False
    takes = True

    def opened(self, record: AuditRecord) -> bool:
        self.lines.append(("opened", record))
        return self.takes

    def write(self, record: AuditRecord) -> None:
        self.lines.append(("closed", record))


class Pool:
    """Connections whose wire can be read."""

    def __init__(self) -> None:
        self.keys: list[PoolKey] = []
        self.transports: list[RecordingTransport] = []
        self.connections: list[ClientConnection] = []

    def take(self, key: PoolKey, addresses: Addresses, *, once: bool, fresh: bool = False) -> ClientConnection:
        connection, transport = ClientConnection(Limits(), lambda *_: None), RecordingTransport()
        connection.connection_made(transport)
        self.keys.append(key)
        self.connections.append(connection)
        self.transports.append(transport)
        return connection


class Guard:
    """The guarded resolver."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def resolve(self, host: str, port: int, networks: object) -> Addresses:
        self.asked.append(host)
        return ("192.0.2.1",)


class Routes:
    def timeouts(self, provider: str, host: str) -> Timeouts:
        return Timeouts()

    def retries(self, provider: str, host: str) -> RetryPolicy:
        return RetryPolicy(1)


class Product:
    """A pipeline with recorded ends behind one client connection."""

    def __init__(self, policies: Path, in_flight: int = 100, identity: Any = None) -> None:
        rules = load_rules([policies], None, [], "deny")
        self.credentials, self.audit, self.pool, self.addresses = Credentials(), Audit(), Pool(), Guard()
        self.chain: Any = Chain([Static("acme", "bot")], "proxy") if identity is None else identity
        self.pipeline = Pipeline(
            Snapshot(rules.policies, rules.catalog),
            self.credentials,  # type: ignore[arg-type]
            self.addresses,  # type: ignore[arg-type]
            self.pool,  # type: ignore[arg-type]
            Routes(),
            self.audit,  # type: ignore[arg-type]
            Metrics("test"),
            in_flight,
            Sweep(),
        )
        self.client = RecordingTransport()
        self.connection = ServerConnection(RecordingService(self._begin))
        self.connection.connection_made(self.client)
        self.destination = ORDERS

    def _begin(self, head: RequestHead, connection: ServerConnection) -> None:
        path = head.line.target.partition(b"?")[0].decode()
        place = Place(self.destination, head.line.target, path)
        self.pipeline.begin(
            Call(
                self.pipeline.call_ids.next(),
                "proxy",
                head.line.method,
                place.destination,
                place,
                head.section,
                time.monotonic(),
                head.line.minor,
                head.section.presented,
            ),
            connection,
            self.chain,
        )

    def ask(self, line: str = "GET /v1", *lines: str) -> None:
        self.connection.data_received("\r\n".join([f"{line} HTTP/1.1", "Host: h", *lines, "", ""]).encode())

    def answer(self, reply: bytes = OK) -> None:
        self.pool.connections[-1].data_received(reply)

    @property
    def sent(self) -> bytes:
        return bytes(self.pool.transports[-1].written)

    @property
    def received(self) -> bytes:
        return bytes(self.client.written)

    @property
    def record(self) -> AuditRecord:
        """Of the only call; fails when it has none or more."""
        (closed,) = [record for event, record in self.audit.lines if event == "closed"]
        return closed


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    (tmp_path / "support.yaml").write_text(POLICY)
    return tmp_path


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_known_caller_with_a_cached_credential_is_sent_without_a_task(policies: Path) -> None:
    product = Product(policies)
    tasks = asyncio.all_tasks()
    product.ask("GET /v1?a", "X-Api-Key: dummy", "X: y")
    assert asyncio.all_tasks() == tasks
    assert product.sent == b"GET /v1?a HTTP/1.1\r\nHost: orders.test\r\nX: y\r\nX-Api-Key: %b\r\n\r\n" % SECRET
    product.answer()
    record = product.record
    assert (record.status, record.outcome, record.stage, record.attempts) == (200, "ok", "exchange", 1)
    assert (record.tenant, record.agent, record.rule, record.policy) == ("acme", "bot", "orders", "support")
    assert (record.credential, record.blame, record.bytes_out) == ("orders-api@1", "none", 2)
    assert product.pipeline.running == set()


async def test_a_rule_without_credential_resolves_none_and_passes_the_callers_own(policies: Path) -> None:
    product = Product(policies)
    product.destination = Destination("https", "open.test", 443)
    product.ask("GET /", "X-Api-Key: own")
    assert product.credentials.asked == []
    assert b"X-Api-Key: own\r\n" in product.sent


@pytest.mark.parametrize(
    ("line", "host"), [("GET /v1", "other.test"), ("GET /admin/x", "orders.test"), ("DELETE /admin/x", "orders.test")]
)
async def test_a_denied_call_asks_for_no_credential_no_address_and_no_connection(
    policies: Path, line: str, host: str
) -> None:
    product = Product(policies)
    product.destination = Destination("https", host, 443)
    product.ask(line)
    assert product.received.startswith(b"HTTP/1.1 403 ")
    assert (product.credentials.asked, product.addresses.asked, product.pool.keys) == ([], [], [])
    record = product.record
    assert (record.outcome, record.code, record.stage, record.blame) == ("denied", "policy_denied", "policy", "policy")
    assert b"Connection: keep-alive" in product.received


async def test_a_caller_that_is_not_known_is_refused_before_policy(policies: Path) -> None:
    class Nobody:
        is_session = staticmethod(lambda _: False)

        def identify(self, *_: object) -> Caller:
            raise GatewayError("identity_missing", "Who?", status=407, challenge=("Proxy-Authenticate", "Basic"))

    product = Product(policies, identity=Nobody())
    product.ask()
    assert product.received.startswith(b"HTTP/1.1 407 ")
    assert b"Proxy-Authenticate: Basic\r\n" in product.received
    assert (product.record.stage, product.record.tenant) == ("identity", "")


@pytest.mark.parametrize("query", ["X-Amz-Signature=a&X-Amz-Credential=b", "sv=1&sig=a"])
async def test_a_signed_url_gets_no_credential_beside_its_signature(policies: Path, query: str) -> None:
    product = Product(policies)
    product.ask(f"GET /v1?{query}")
    assert product.record.code == "presigned_refused"
    assert product.pool.keys == []


@pytest.mark.parametrize(
    ("code", "status", "outcome"),
    [
        ("credential_missing", 403, "error"),
        ("credential_unbound", 403, "denied"),
        ("credential_unavailable", 503, "error"),
    ],
)
@pytest.mark.parametrize("waits", [False, True])
async def test_without_its_credential_nothing_is_sent(
    policies: Path, code: str, status: int, outcome: str, waits: bool
) -> None:
    product, error = Product(policies), GatewayError(code, "x")

    async def later() -> Material:
        raise error

    product.credentials.found = later() if waits else error
    product.ask("POST /v1", "Content-Length: 0")
    await settled()
    assert product.received.startswith(b"HTTP/1.1 %d " % status)
    assert product.pool.keys == []
    assert (product.record.code, product.record.outcome, product.record.stage) == (code, outcome, "credential")


@pytest.mark.parametrize("lines", [("Content-Length: 70000",), ("Transfer-Encoding: chunked",)])
async def test_not_a_byte_leaves_before_the_credential_is_there(policies: Path, lines: tuple[str, ...]) -> None:
    product = Product(policies)
    ready: asyncio.Future[Material] = asyncio.get_running_loop().create_future()
    product.credentials.found = ready
    product.ask("PUT /v1", *lines)
    await settled()
    product.connection.data_received(b"5\r\nhello\r\n")
    assert (product.pool.keys, product.received) == ([], b"")
    ready.set_result(material(2))
    await settled()
    assert b"X-Api-Key: %b\r\n" % SECRET in product.sent
    assert product.sent.endswith(b"\r\n\r\n5\r\nhello\r\n")


async def test_a_client_that_leaves_while_a_stage_waits_ends_the_call(policies: Path) -> None:
    product = Product(policies)
    product.credentials.found = asyncio.get_running_loop().create_future()
    product.ask()
    await settled()
    product.connection.connection_lost(None)
    await settled()
    assert (product.record.outcome, product.record.blame, product.record.stage) == ("canceled", "caller", "credential")
    assert product.pipeline.running == set()


async def test_what_nobody_expected_is_an_internal_error_that_tells_nothing(
    policies: Path, caplog: pytest.LogCaptureFixture
) -> None:
    product = Product(policies)
    product.credentials.resolve = lambda *_: 1 / 0  # type: ignore[method-assign]
    product.ask()
    assert product.received.startswith(b"HTTP/1.1 500 ")
    assert b"division" not in product.received
    assert (product.record.code, product.record.blame) == ("internal", "gateway")
    assert "internal error" in caplog.text


async def test_more_calls_than_allowed_are_turned_away(policies: Path) -> None:
    product = Product(policies, in_flight=1)
    product.ask()
    other = ServerConnection(RecordingService(product._begin))
    client = RecordingTransport()
    other.connection_made(client)
    other.data_received(b"GET /v1 HTTP/1.1\r\nHost: h\r\n\r\n")
    assert bytes(client.written).startswith(b"HTTP/1.1 503 ")
    assert b"Retry-After: 1\r\n" in client.written
    product.answer()
    other.data_received(b"GET /v1 HTTP/1.1\r\nHost: h\r\n\r\n")
    assert len(product.pool.keys) == 2


@pytest.mark.parametrize(("line", "opened"), [("GET /v1", False), ("POST /v1", True), ("DELETE /v1", True)])
async def test_a_write_is_on_record_before_its_first_byte(policies: Path, line: str, opened: bool) -> None:
    product = Product(policies)
    seen: list[int] = []
    product.audit.opened = lambda _: seen.append(len(product.pool.keys))  # type: ignore[method-assign]
    product.ask(line)
    assert seen == ([0] if opened else [])


async def test_the_credential_is_masked_in_the_reply(policies: Path) -> None:
    product = Product(policies)
    product.ask()
    product.answer(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(SECRET), SECRET))
    assert SECRET not in product.received
    assert product.received.endswith(b"*" * len(SECRET))


async def test_a_401_is_answered_with_the_record_as_it_is_now(policies: Path) -> None:
    product = Product(policies)
    newer = Injection(lines=b"X-Api-Key: sk-live-newer-00001\r\n", clears=INJECTION.clears)
    product.credentials.newer = material(2, newer)
    product.ask()
    product.answer(b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n")
    await settled()
    assert b"sk-live-newer-00001" in product.sent
    assert SECRET not in product.sent
    product.answer()
    assert (product.record.credential, product.record.attempts, product.record.status) == ("orders-api@2", 2, 200)


async def test_a_401_with_nothing_newer_is_the_credentials_fault(policies: Path) -> None:
    product = Product(policies)
    product.ask()
    product.answer(b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n")
    await settled()
    assert (product.record.code, product.record.blame, product.record.attempts) == (
        "credential_rejected",
        "credential",
        1,
    )


@pytest.mark.parametrize(
    ("status", "kind", "blame"),
    [(404, "not_found", "caller"), (429, "rate_limit", "provider"), (500, "unavailable", "provider")],
)
async def test_a_providers_error_is_recorded_as_such(policies: Path, status: int, kind: str, blame: str) -> None:
    product = Product(policies)
    product.ask()
    product.answer(b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % status)
    record = product.record
    assert (record.outcome, record.kind, record.code, record.blame) == ("error", kind, "provider_error", blame)


async def test_a_reload_holds_from_the_next_call_on(policies: Path) -> None:
    product = Product(policies)
    product.ask()
    (policies / "support.yaml").write_text(
        POLICY.replace("host: orders.test, credential", "host: gone.test, credential")
    )
    rules = load_rules([policies], None, [], "deny")
    product.pipeline.snapshot = Snapshot(rules.policies, rules.catalog)
    product.answer()
    product.ask()
    assert [record.outcome for event, record in product.audit.lines if event == "closed"] == ["ok", "denied"]


async def test_no_record_holds_a_value_of_header_query_or_body(policies: Path) -> None:
    product = Product(policies)
    product.ask("POST /v1?token=query-value", "X-Header: header-value", "Content-Length: 10")
    product.connection.data_received(b"body-value")
    product.answer()
    assert len(product.audit.lines) == 2
    for _, record in product.audit.lines:
        shown = repr(record)
        for value in ("query-value", "header-value", "body-value", SECRET.decode()):
            assert value not in shown


def test_call_ids_are_unique_also_between_processes() -> None:
    first, second = CallIds(), CallIds()
    ids = [one.next() for one in (first, first, second, second)]
    assert len(set(ids)) == 4


async def test_what_no_call_could_be_made_of_is_answered_and_on_record(policies: Path) -> None:
    product = Product(policies)
    error = GatewayError("malformed_request", "No.")

    def answer(_: RequestHead, connection: ServerConnection) -> None:
        product.pipeline.reject(error, connection, "proxy", None)

    connection, client = ServerConnection(RecordingService(answer)), RecordingTransport()
    connection.connection_made(client)
    connection.data_received(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    assert bytes(client.written).startswith(b"HTTP/1.1 400 ")
    record = product.record
    assert (record.code, record.stage, record.bytes_out) == ("malformed_request", "listener", len(client.written))


def test_a_call_whose_line_might_be_lost_does_not_leave(policies: Path) -> None:
    product = Product(policies)
    product.audit.full = True
    product.ask()
    assert b" 503 " in product.received
    assert b'"code":"overloaded"' in product.received
    assert not product.pool.keys


def test_a_write_that_cannot_be_recorded_does_not_leave(policies: Path) -> None:
    product = Product(policies)
    product.audit.takes = False
    product.ask("DELETE /v1")
    assert b'"code":"overloaded"' in product.received
    assert not product.pool.transports or not product.sent


def test_a_record_names_the_policies_that_decided(policies: Path) -> None:
    product = Product(policies)
    product.ask()
    product.answer()
    (_, record) = product.audit.lines[-1]
    assert record.policy_hash == product.pipeline.snapshot.policies.hash
