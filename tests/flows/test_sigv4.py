"""Requests leave signed with Signature V4, whatever the client sent in its place, and verify where they arrive."""

from __future__ import annotations

import hashlib
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.flows.aws_verifier import KEY_ID, SECRET, Verified
from tests.flows.conftest import Authority
from tests.flows.product import Product, origin, record, rule
from tests.flows.upstreams import OK, Connection, Upstream, answering

TOKEN = "FwoGZXIvYXdzEJr-session-token-of-the-tenant"
KEYS = {"access_key_id": KEY_ID, "secret_access_key": SECRET}
HOSTS = {"s3": "127.0.0.2", "dynamodb": "127.0.0.3", "session": "127.0.0.4", "plain": "127.0.0.5", "query": "127.0.0.6"}
DUMMIES = (
    b"Authorization: AWS4-HMAC-SHA256 Credential=AKIADUMMY/20150830/us-east-1/s3/aws4_request, "
    b"SignedHeaders=host;x-amz-date, Signature=" + b"0" * 64,
    b"X-Amz-Date: 20150830T123600Z",
    b"X-Amz-Security-Token: dummy-token-of-the-sdk",
)


class Flow:
    def __init__(self, product: Product, upstreams: dict[str, Upstream]) -> None:
        self.product = product
        self.upstreams = upstreams

    def ask(self, name: str, method: str, path: str, *lines: bytes, body: bytes = b""):  # type: ignore[no-untyped-def]
        upstream = self.upstreams[name]
        if upstream.tls is None:
            return self.product.get(upstream, path, *lines, method=method, body=body)
        with self.product.tunnel(upstream) as client:
            return client.ask(origin(upstream, path, *lines, method=method, body=body), method)

    def verified(self, name: str) -> Verified:
        return Verified(self.upstreams[name].requests[-1])


@pytest.fixture(scope="module")
def running(folder: Path, authority: Authority) -> Iterator[Flow]:
    with ExitStack() as stack:
        upstreams = {
            name: stack.enter_context(Upstream(host=host, tls=None if name == "plain" else authority.context(host)))
            for name, host in HOSTS.items()
        }
        credentials = {
            "s3": {"name": "keys", "service": "s3", "region": "eu-west-1"},
            "plain": {"name": "keys", "service": "s3", "region": "eu-west-1"},
            "dynamodb": {"name": "keys", "service": "dynamodb", "region": "us-west-2"},
            "session": {"name": "temporary"},
            "query": {"name": "temporary", "query": "X-Amz-Signature"},
        }
        rules = [rule(name, upstream, credential=credentials[name]) for name, upstream in upstreams.items()]
        records = {
            "keys": record("aws", *HOSTS.values(), **KEYS),
            "temporary": record("aws", *HOSTS.values(), **KEYS, session_token=TOKEN, service="sqs", region="us-east-1"),
        }
        with Product(folder, rules, records, extra_ca=authority.pem) as product:
            yield Flow(product, upstreams)


@pytest.fixture
def flow(running: Flow) -> Flow:
    for upstream in running.upstreams.values():
        upstream.forget()
    return running


PATHS = [
    "/b/JULY%2027%20TO%2031.zip", "/test%20folder/%25", "/%C3%A9", "/a%2Bb", "/a+b", "/~-_.", "/b//x//", "/a/~*'()",
    "/b/k?list-type=2&prefix=a%2Fb", "/b?z=1&a=2&a=1", "/b/k?tagging",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_an_object_key_stays_as_sent_and_is_signed_as_it_stands(flow: Flow, path: str) -> None:
    """B59."""
    assert flow.ask("s3", "GET", path).status == 200
    assert flow.verified("s3").request.target == path.encode()


@pytest.mark.parametrize("name", ["s3", "dynamodb", "session", "plain"])
def test_what_an_sdk_signed_with_dummy_keys_is_gone(flow: Flow, name: str) -> None:
    """B67."""
    assert flow.ask(name, "GET", "/x", *DUMMIES).status == 200
    verified = flow.verified(name)
    assert b"dummy" not in verified.request.head.lower()
    assert abs(time.time() - time.mktime(time.strptime(verified.time, "%Y%m%dT%H%M%SZ")) + time.timezone) < 60
    assert verified.request.all("X-Amz-Security-Token") == ([TOKEN] if name == "session" else [])


def test_only_what_no_hop_changes_is_signed(flow: Flow) -> None:
    """B61."""
    lines = (
        b"TE: trailers",
        b"X-Forwarded-For: 10.0.0.1",
        b"Accept-Encoding: gzip",
        b"User-Agent: x",
        b"X-Amz-Target: T",
    )
    assert (
        flow.ask("dynamodb", "POST", "/", *lines, b"Content-Type: application/x-amz-json-1.0", body=b"{}").status == 200
    )
    assert flow.verified("dynamodb").names == ["content-type", "host", "x-amz-date", "x-amz-target"]


def test_service_and_region_come_from_rule_or_record(flow: Flow) -> None:
    flow.ask("dynamodb", "GET", "/")
    flow.ask("session", "GET", "/")
    assert (flow.verified("dynamodb").service, flow.verified("dynamodb").region) == ("dynamodb", "us-west-2")
    assert (flow.verified("session").service, flow.verified("session").region) == ("sqs", "us-east-1")


def test_the_host_that_is_sent_is_signed_with_its_port(flow: Flow) -> None:
    """B66."""
    upstream = flow.upstreams["plain"]
    with flow.product.base_client() as client:
        head = b"GET /plain/k HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % flow.product.base
        assert client.ask(head, "GET").status == 200
    assert flow.verified("plain").request.all("Host") == [upstream.authority]


@pytest.mark.parametrize("name", ["s3", "plain", "dynamodb"])
@pytest.mark.parametrize("size", [0, 1, 65_537, 6 * 1024 * 1024 + 1])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_arrives_whole_and_covered_as_far_as_the_service_wants(
    flow: Flow, name: str, size: int, chunked: bool
) -> None:
    """B62. `plain` has no TLS to protect what is not signed, so that everything there is hashed."""
    body = b"x" * size
    if chunked:
        framed = (b"%x\r\n%b\r\n" % (size, body) if size else b"") + b"0\r\n\r\n"
        reply = send_chunked(flow, name, framed)
    else:
        reply = flow.ask(name, "PUT", "/b/k", body=body)
    assert reply.status == 200
    verified = flow.verified(name)
    assert verified.content == body
    assert verified.request.all("Content-Length") == [str(size)]
    unsigned = name == "s3" and size > 65_536 and not chunked
    assert verified.payload == ("UNSIGNED-PAYLOAD" if unsigned else hashlib.sha256(body).hexdigest())


def send_chunked(flow: Flow, name: str, framed: bytes):  # type: ignore[no-untyped-def]
    upstream = flow.upstreams[name]
    head = b"Host: %b\r\nTransfer-Encoding: chunked\r\n\r\n" % upstream.authority.encode()
    if upstream.tls is None:
        with flow.product.client() as client:
            return client.ask(b"PUT %b/b/k HTTP/1.1\r\n%b%b" % (upstream.url.encode(), head, framed), "PUT")
    with flow.product.tunnel(upstream) as client:
        return client.ask(b"PUT /b/k HTTP/1.1\r\n%b%b" % (head, framed), "PUT")


def test_a_hash_that_the_client_declares_lets_a_body_of_any_size_stream(flow: Flow) -> None:
    body = b"y" * 3_000_000
    declared = b"X-Amz-Content-SHA256: " + hashlib.sha256(body).hexdigest().encode()
    assert flow.ask("dynamodb", "POST", "/", declared, body=body).status == 200
    assert flow.verified("dynamodb").payload == hashlib.sha256(body).hexdigest()


def test_a_body_that_the_client_calls_unsigned_is_hashed_where_no_tls_protects_it(flow: Flow) -> None:
    assert flow.ask("plain", "PUT", "/b/k", b"X-Amz-Content-SHA256: UNSIGNED-PAYLOAD", body=b"hello").status == 200
    assert flow.verified("plain").payload == hashlib.sha256(b"hello").hexdigest()
    assert flow.ask("s3", "PUT", "/b/k", b"X-Amz-Content-SHA256: UNSIGNED-PAYLOAD", body=b"hello").status == 200
    assert flow.verified("s3").payload == "UNSIGNED-PAYLOAD"


def test_a_body_that_waits_for_100_continue_is_asked_for(flow: Flow) -> None:
    upstream = flow.upstreams["dynamodb"]
    with flow.product.tunnel(upstream) as client:
        head = b"POST / HTTP/1.1\r\nHost: %b\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
        client.send(head % upstream.authority.encode())
        assert client.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert client.ask(b"hello", "POST").status == 200
    verified = flow.verified("dynamodb")
    assert verified.content == b"hello"
    assert verified.request.all("Expect") == []


def chunk(data: bytes) -> bytes:
    return b"%x;chunk-signature=%b\r\n%b\r\n" % (len(data), b"0" * 64, data)


@pytest.mark.parametrize("name", ["s3", "plain"])
@pytest.mark.parametrize("sizes", [[], [1], [65_536] * 3 + [7], [1_000_000, 12]])
def test_signed_chunks_are_signed_anew(flow: Flow, name: str, sizes: list[int]) -> None:
    """B63: the client's chunk signatures come of its dummy key."""
    content = [bytes([65 + number]) * size for number, size in enumerate(sizes)]
    body = b"".join(map(chunk, content)) + chunk(b"")
    lines = (
        b"X-Amz-Content-SHA256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
        b"X-Amz-Decoded-Content-Length: %d" % sum(sizes),
        b"Content-Encoding: aws-chunked",
    )
    assert flow.ask(name, "PUT", "/b/k", *lines, *DUMMIES, body=body).status == 200
    assert flow.verified(name).content == b"".join(content)


def test_a_signed_trailer_is_kept_and_signed_anew(flow: Flow) -> None:
    body = chunk(b"hello") + b"0;chunk-signature=" + b"0" * 64 + b"\r\nx-amz-checksum-crc32:NhCmhg==\r\n"
    body += b"x-amz-trailer-signature:" + b"0" * 64 + b"\r\n\r\n"
    lines = (
        b"X-Amz-Content-SHA256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
        b"X-Amz-Decoded-Content-Length: 5",
        b"X-Amz-Trailer: x-amz-checksum-crc32",
    )
    assert flow.ask("s3", "PUT", "/b/k", *lines, body=body).status == 200
    assert flow.verified("s3").content == b"hello"
    assert b"x-amz-checksum-crc32:NhCmhg==\r\n" in flow.verified("s3").request.body


def test_an_unsigned_trailer_passes_untouched_over_tls_and_not_without(flow: Flow) -> None:
    """B63."""
    body = b"5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n"
    lines = (
        b"X-Amz-Content-SHA256: STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        b"X-Amz-Decoded-Content-Length: 5",
        b"X-Amz-Trailer: x-amz-checksum-crc32",
    )
    assert flow.ask("s3", "PUT", "/b/k", *lines, body=body).status == 200
    assert flow.verified("s3").request.body == body
    refused = flow.ask("plain", "PUT", "/b/k", *lines, body=body)
    assert (refused.status, refused.code) == (400, "malformed_request")
    assert flow.upstreams["plain"].requests == []


@pytest.mark.parametrize(
    ("declared", "body", "status"),
    [
        (b"STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD", b"x", 400),
        (b"nonsense", b"x", 400),
        (b"STREAMING-AWS4-HMAC-SHA256-PAYLOAD", b"not chunks at all\r\n", 400),
        (b"STREAMING-AWS4-HMAC-SHA256-PAYLOAD", b"%x;chunk-signature=%b\r\n" % (1 << 30, b"0" * 64), 413),
    ],
)
def test_what_cannot_be_signed_is_refused_and_says_what_to_send(
    flow: Flow, declared: bytes, body: bytes, status: int
) -> None:
    reply = flow.ask("s3", "PUT", "/b/k", b"X-Amz-Content-SHA256: " + declared, body=body)
    assert (reply.status, reply.code) == (status, "malformed_request")
    assert flow.upstreams["s3"].requests == []


def test_a_body_too_large_to_be_hashed_is_refused_before_it_is_read(flow: Flow) -> None:
    upstream = flow.upstreams["dynamodb"]
    with flow.product.tunnel(upstream) as client:
        head = b"POST / HTTP/1.1\r\nHost: %b\r\nContent-Length: 99999999\r\n\r\n" % upstream.authority.encode()
        reply = client.ask(head, "POST")
    assert (reply.status, reply.code) == (413, "malformed_request")


def test_a_signed_url_is_refused(flow: Flow) -> None:
    """B38."""
    reply = flow.ask("s3", "GET", "/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=" + "0" * 64)
    assert (reply.status, reply.code) == (403, "presigned_refused")


def test_a_rule_may_have_the_signature_in_the_query(flow: Flow) -> None:
    assert flow.ask("query", "GET", "/q?Action=X", *DUMMIES).status == 200
    request = flow.upstreams["query"].requests[-1]
    assert request.target.startswith(b"/q?Action=X&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIDEXAMPLE%2F")
    assert b"&X-Amz-Security-Token=" in request.target
    assert request.all("Authorization") == request.all("X-Amz-Date") == []


def test_a_wrong_clock_is_found_from_the_providers_date_and_the_call_signed_again(flow: Flow) -> None:
    name, seen = "session", []

    def script(connection: Connection) -> None:
        request = connection.request()
        seen.append(request.all("X-Amz-Date")[0])
        theirs = time.gmtime(time.time() + 3_600)
        if len(seen) == 1:
            date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", theirs)
            connection.send(b"HTTP/1.1 403 Forbidden\r\nDate: %b\r\nContent-Length: 0\r\n\r\n" % date.encode())
        else:
            connection.send(OK)

    flow.upstreams[name].forget(script)
    reply = flow.ask(name, "POST", "/", body=b"Action=SendMessage")
    assert reply.status == 200
    assert reply.header("Sluicegate-Attempts") == "2"
    first, second = (time.mktime(time.strptime(text, "%Y%m%dT%H%M%SZ")) for text in seen)
    assert 3_590 <= second - first <= 3_610
    assert "NTP" in flow.product.diagnostics()
    assert flow.ask(name, "GET", "/").status == 200
    third = time.mktime(time.strptime(flow.verified(name).time, "%Y%m%dT%H%M%SZ"))
    assert 3_590 <= third - first <= 3_630


@pytest.mark.parametrize("more", [b"Age: 10\r\n", b""])
def test_a_refusal_from_a_cache_or_with_the_right_time_is_the_answer(flow: Flow, more: bytes) -> None:
    ahead = 3_600 if more else 0
    date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + ahead)).encode()
    reply = b"HTTP/1.1 403 Forbidden\r\nDate: %b\r\n%bContent-Length: 0\r\n\r\n" % (date, more)
    flow.upstreams["dynamodb"].forget(answering(reply))
    assert flow.ask("dynamodb", "GET", "/").status == 403
    assert len(flow.upstreams["dynamodb"].requests) == 1


@pytest.mark.parametrize("status", [401, 403])
def test_a_static_key_that_is_refused_is_sent_once(flow: Flow, status: int) -> None:
    """C05."""
    flow.upstreams["session"].forget(answering(b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % status))
    assert flow.ask("session", "GET", "/").status == status
    assert len(flow.upstreams["session"].requests) == 1


@pytest.mark.parametrize("size", [0, 5])
def test_a_repeat_is_signed_anew_and_both_attempts_verify(flow: Flow, size: int) -> None:
    upstream = flow.upstreams["session"]

    def script(connection: Connection) -> None:
        connection.request()
        again = len(upstream.requests) > 1
        connection.send(OK if again else b"HTTP/1.1 503 No\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n")

    upstream.forget(script)
    reply = flow.ask("session", "GET", "/", body=b"x" * size)
    assert (reply.status, reply.header("Sluicegate-Attempts")) == (200, "2")
    first, second = map(Verified, upstream.requests)
    assert first.content == second.content == b"x" * size
    assert first.time < second.time  # a second lies between them: the first signature was not sent twice
    assert first.request.all("Authorization") != second.request.all("Authorization")


def test_a_call_on_a_connection_that_was_closed_meanwhile_is_signed_too(flow: Flow) -> None:
    upstream = flow.upstreams["dynamodb"]
    with flow.product.tunnel(upstream) as client:
        request = origin(upstream, "/", method="GET")
        assert client.ask(request, "GET").status == 200
        upstream.drop_connections()
        assert client.ask(request, "GET").status == 200
    first, second = map(Verified, upstream.requests)
    assert first.names == second.names


def test_the_secret_is_masked_where_it_comes_back_and_stands_in_no_record(flow: Flow) -> None:
    """B41, C03."""
    echo = f"{SECRET} {TOKEN}".encode()
    flow.upstreams["session"].forget(answering(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(echo), echo)))
    reply = flow.ask("session", "GET", "/")
    assert SECRET.encode() not in reply.body
    assert TOKEN.encode() not in reply.body
    said = flow.product.diagnostics() + str(flow.product.audit())
    assert SECRET not in said
    assert TOKEN not in said


def test_a_client_that_leaves_while_its_body_is_held_sends_nothing_upstream(flow: Flow) -> None:
    upstream = flow.upstreams["plain"]
    with socket.create_connection(("127.0.0.1", flow.product.proxy)) as sock:
        head = f"PUT {upstream.url}/k HTTP/1.1\r\nHost: {upstream.authority}\r\nContent-Length: 100\r\n\r\nhalf"
        sock.sendall(head.encode())
    assert flow.ask("plain", "GET", "/after").status == 200
    assert [one.target for one in upstream.requests] == [b"/after"]
