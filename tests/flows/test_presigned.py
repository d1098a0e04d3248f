"""A URL that is signed already gets no credential of ours, and leaves only where the rule allows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.conftest import NewFolder
from tests.flows.product import Product, record, rule
from tests.flows.upstreams import Upstream, answering
from tests.flows.ways import PLAIN_WAYS, enter

SECRET = "sk-live-0123456789abcdef"
SIGNED = [
    "/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=c&X-Amz-Signature=abc",
    "/k?x-amz-signature=abc",
    "/k?X-Goog-Algorithm=GOOG4-RSA-SHA256&X-Goog-Signature=abc",
    "/k?sv=2022-11-02&sr=b&sig=abc%3D",
    "/k?a=1&X-%41mz-Signature=abc",
]


class Flow:
    def __init__(self, product: Product, refusing: Upstream, allowing: Upstream) -> None:
        self.product = product
        self.refusing = refusing
        self.allowing = allowing


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Flow]:
    credential = {"name": "key", "header": "Authorization", "format": "Bearer {value}"}
    with Upstream() as refusing, Upstream(host="127.0.0.2") as allowing:
        rules = [
            rule("refusing", refusing, credential=credential),
            rule("allowing", allowing, credential=credential, presigned="allow"),
        ]
        records = {"key": record("api_key", "127.0.0.1", "127.0.0.2", value=SECRET)}
        with Product(folder, rules, records) as product:
            yield Flow(product, refusing, allowing)


@pytest.fixture
def flow(running: Flow) -> Flow:
    running.refusing.forget()
    running.allowing.forget()
    return running


@pytest.mark.parametrize("way", PLAIN_WAYS)
@pytest.mark.parametrize("target", SIGNED)
def test_a_signed_url_is_refused_by_default(flow: Flow, way: str, target: str) -> None:
    """B38, C16."""
    with enter(flow.product, way, flow.refusing, "refusing") as session:
        reply = session.ask("GET", target)
    assert (reply.status, reply.code) == (403, "presigned_refused")
    assert flow.refusing.received == b""


@pytest.mark.parametrize("way", PLAIN_WAYS)
@pytest.mark.parametrize("target", SIGNED)
def test_a_signed_url_leaves_without_a_credential_where_the_rule_allows_it(flow: Flow, way: str, target: str) -> None:
    """B38: the header is absent, not empty."""
    with enter(flow.product, way, flow.allowing, "allowing") as session:
        reply = session.ask("GET", target)
    assert reply.status == 200
    (request,) = flow.allowing.requests
    assert request.all("Authorization") == []
    assert request.target == target.encode()
    assert SECRET.encode() not in flow.allowing.received
    assert not flow.product.audited(reply.call_id)["credential"].startswith("key@")


def test_a_url_that_is_not_signed_gets_the_credential(flow: Flow) -> None:
    for target in ("/k?signature=1", "/k?signed=1", "/sig=1"):
        assert flow.product.get(flow.allowing, target).status == 200
    assert [request.all("Authorization") for request in flow.allowing.requests] == [[f"Bearer {SECRET}"]] * 3


def test_a_token_realm_at_another_host_gets_no_credential(flow: Flow) -> None:
    """C16: the challenge passes; no login dance of ours follows."""
    challenge = b'Bearer realm="http://127.0.0.2:%d/token",service="registry"' % flow.allowing.port
    flow.refusing.forget(
        answering(b"HTTP/1.1 401 No\r\nWWW-Authenticate: " + challenge + b"\r\nContent-Length: 0\r\n\r\n")
    )
    flow.product.get(flow.refusing)
    assert len(flow.refusing.requests) == 1
    assert flow.allowing.connections == [] or flow.allowing.received == b""


def test_a_credential_never_goes_to_a_host_its_record_does_not_name(new_folder: NewFolder) -> None:
    """C16: refused when the rule is loaded or when the call is made; nothing upstream."""
    with Upstream(host="127.0.0.3") as unbound:
        rules = [rule("unbound", unbound, credential={"name": "key", "header": "X-Api-Key"})]
        with Product(new_folder(), rules, {"key": record("api_key", "127.0.0.1", value=SECRET)}) as product:
            reply = product.get(unbound)
        assert (reply.status, reply.code) == (403, "credential_unbound")
        assert unbound.received == b""


def test_a_missing_record_is_refused_and_nothing_is_sent(new_folder: NewFolder) -> None:
    """C11's kind: fails closed, naming tenant and credential."""
    with Upstream() as upstream:
        rules = [rule("up", upstream, credential={"name": "absent", "header": "X-Api-Key"})]
        with Product(new_folder(), rules, {"key": record("api_key", "127.0.0.1", value=SECRET)}) as product:
            reply = product.get(upstream)
        assert (reply.status, reply.code) == (403, "credential_missing")
        assert "absent" in reply.json()["detail"]
        assert "acme" in reply.json()["detail"]
        assert upstream.received == b""


def test_a_disabled_record_is_refused(new_folder: NewFolder) -> None:
    with Upstream() as upstream:
        rules = [rule("up", upstream, credential={"name": "key", "header": "X-Api-Key"})]
        records = {"key": record("api_key", "127.0.0.1", value=SECRET, disabled=True)}
        with Product(new_folder(), rules, records) as product:
            reply = product.get(upstream)
        assert (reply.status, reply.code) == (403, "credential_disabled")
        assert upstream.received == b""
