"""boto3, unchanged, through the product: what arrives verifies, for every key and size, and carries no dummy."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from tests.flows.aws_verifier import KEY_ID, SECRET, Verified
from tests.flows.conftest import Authority
from tests.flows.product import Product, record, rule
from tests.flows.upstreams import Connection, Upstream

HOSTS = {"s3": "127.0.0.2", "dynamodb": "127.0.0.3", "sqs": "127.0.0.4", "sts": "127.0.0.5"}
ANSWERS = {
    "s3": b"<Result><UploadId>upload-1</UploadId></Result>",
    "dynamodb": b'{"Item": {"id": {"S": "7"}}}',
    "sqs": b'{"MessageId": "m-1", "MD5OfMessageBody": "5d41402abc4b2a76b9719d911017c592"}',
    "sts": b'<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult>'
    b"<Account>123456789012</Account></GetCallerIdentityResult></GetCallerIdentityResponse>",
}


class Flow:
    def __init__(self, product: Product, upstreams: dict[str, Upstream]) -> None:
        self.product = product
        self.upstreams = upstreams

    def client(self, service: str, *, signed_payload: bool = False, **more: Any) -> Any:
        """With the dummies that a sandbox has in its environment."""
        config = Config(
            proxies={"https": f"http://127.0.0.1:{self.product.proxy}"},
            s3={"addressing_style": "path", "payload_signing_enabled": signed_payload},
            retries={"total_max_attempts": 1},
            **more,
        )
        return boto3.session.Session().client(
            service,
            region_name="eu-west-1",
            endpoint_url=self.upstreams[service].url,
            aws_access_key_id="AKIASLUICEGATEDUMMY1",
            aws_secret_access_key="dummy-not-a-key",
            aws_session_token="dummy-session-token",
            verify=str(self.product.folder / "ca" / "ca.crt"),
            config=config,
        )

    def last(self, service: str) -> Verified:
        request = self.upstreams[service].requests[-1]
        assert b"dummy" not in request.head.lower().replace(b"user-agent", b"")
        verified = Verified(request)
        assert (verified.service, verified.region) == (service, "eu-west-1")
        return verified


def answering_as(service: str) -> Any:
    def script(connection: Connection) -> None:
        request = connection.head()
        if request.all("Expect"):
            connection.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        connection.body(request)
        body = b"" if request.method == "HEAD" else ANSWERS[service]
        lines = b'ETag: "5d41402abc4b2a76b9719d911017c592"\r\nContent-Type: application/x-amz-json-1.0\r\n'
        connection.send(b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n%b" % (lines, len(body), body))

    return script


@pytest.fixture(scope="module")
def running(folder: Path, authority: Authority) -> Iterator[Flow]:
    with ExitStack() as stack:
        upstreams = {
            name: stack.enter_context(Upstream(answering_as(name), tls=authority.context(host), host=host))
            for name, host in HOSTS.items()
        }
        rules = [
            rule(name, upstream, credential={"name": "keys", "service": name, "region": "eu-west-1"})
            for name, upstream in upstreams.items()
        ]
        keys = record("aws", *HOSTS.values(), access_key_id=KEY_ID, secret_access_key=SECRET)
        with Product(folder, rules, {"keys": keys}, extra_ca=authority.pem) as product:
            yield Flow(product, upstreams)


@pytest.fixture
def flow(running: Flow) -> Flow:
    for name, upstream in running.upstreams.items():
        upstream.forget(answering_as(name))
    return running


KEYS = [
    "plain",
    "with space",
    "per%cent",
    "plus+plus",
    "a//b",
    "~*'()",
    "ünïcødé/日本",
    "a&b=c?d#e",
    "dots/../x",
    "./y",
]


@pytest.mark.parametrize("key", KEYS)
def test_objects_with_any_key_are_put_and_got(flow: Flow, key: str) -> None:
    client = flow.client("s3")
    client.put_object(Bucket="reports", Key=key, Body=b"hello")
    assert flow.last("s3").content == b"hello"
    client.get_object(Bucket="reports", Key=key)
    assert flow.last("s3").request.method == "GET"


@pytest.mark.parametrize("size", [0, 1, 5 * 1024 * 1024 + 1])
def test_objects_of_any_size_arrive_whole_with_their_checksum(flow: Flow, size: int) -> None:
    """B63: SDKs send a checksum after the body by default."""
    flow.client("s3").put_object(Bucket="reports", Key="k", Body=io.BytesIO(b"z" * size))
    verified = flow.last("s3")
    assert verified.content == b"z" * size
    assert verified.payload == "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
    assert b"\r\nx-amz-checksum-crc32:" in verified.request.body


def test_a_payload_that_the_sdk_signs_is_covered_by_its_hash(flow: Flow) -> None:
    client = flow.client("s3", request_checksum_calculation="when_required", signed_payload=True)
    client.put_object(Bucket="reports", Key="k", Body=b"hello", ContentType="text/plain", Metadata={"owner": "a  b"})
    assert flow.last("s3").content == b"hello"


def test_a_multipart_upload_is_signed_part_by_part(flow: Flow) -> None:
    client = flow.client("s3")
    upload = client.create_multipart_upload(Bucket="reports", Key="big")["UploadId"]
    for number in (1, 2):
        client.upload_part(Bucket="reports", Key="big", UploadId=upload, PartNumber=number, Body=b"p" * 70_000)
    parts = [{"PartNumber": number, "ETag": "e"} for number in (1, 2)]
    client.complete_multipart_upload(Bucket="reports", Key="big", UploadId=upload, MultipartUpload={"Parts": parts})
    assert len(flow.upstreams["s3"].requests) == 4
    for request in flow.upstreams["s3"].requests:
        assert Verified(request).content is not None


def test_a_presigned_url_is_refused_with_what_to_do_instead(flow: Flow) -> None:
    """B38, C16."""
    url = flow.client("s3").generate_presigned_url("get_object", Params={"Bucket": "reports", "Key": "k"})
    upstream = flow.upstreams["s3"]
    with flow.product.tunnel(upstream) as client:
        target = url.removeprefix(upstream.url).encode()
        reply = client.ask(b"GET %b HTTP/1.1\r\nHost: %b\r\n\r\n" % (target, upstream.authority.encode()), "GET")
    assert (reply.status, reply.code) == (403, "presigned_refused")
    assert upstream.requests == []


def test_dynamodb_sqs_and_sts_take_the_signature(flow: Flow) -> None:
    assert flow.client("dynamodb").get_item(TableName="t", Key={"id": {"S": "7"}})["Item"]["id"] == {"S": "7"}
    assert json.loads(flow.last("dynamodb").content)["TableName"] == "t"
    queue = f"{flow.upstreams['sqs'].url}/123456789012/jobs"
    assert flow.client("sqs").send_message(QueueUrl=queue, MessageBody="hello")["MessageId"] == "m-1"
    assert json.loads(flow.last("sqs").content)["MessageBody"] == "hello"
    assert flow.client("sts").get_caller_identity()["Account"] == "123456789012"
    assert b"Action=GetCallerIdentity" in flow.last("sts").content
