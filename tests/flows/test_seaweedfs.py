"""boto3 through the product against SeaweedFS over TLS, which checks signatures, payload hashes and signed chunks."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.flows.aws_servers import DUMMY, Seaweed, needs
from tests.flows.conftest import Authority
from tests.flows.product import LOOPBACK, Product, record

HOST = "127.0.0.51"

pytestmark = needs("weed")


@pytest.fixture(scope="module")
def seaweed(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Seaweed]:
    folder = tmp_path_factory.mktemp("weed")
    with Seaweed(folder, HOST, *authority.files(folder, HOST)) as server:
        yield server


@pytest.fixture(scope="module")
def product(seaweed: Seaweed, folder: Path, authority: Authority) -> Iterator[Product]:
    keys = record("aws", HOST, access_key_id=seaweed.key[0], secret_access_key=seaweed.key[1], region="us-east-1")
    allow = [{"name": "s3", "host": HOST, "port": seaweed.port, "networks": LOOPBACK,
              "paths": ["/bucket", "/bucket/**"], "credential": {"name": "keys", "service": "s3"}}]  # fmt: skip
    with Product(folder, allow, {"keys": keys}, extra_ca=authority.pem) as running:
        yield running


@pytest.fixture(scope="module")
def client(seaweed: Seaweed, product: Product) -> Any:
    found = seaweed.through(product, "s3")
    found.create_bucket(Bucket="bucket")
    return found


def test_it_refuses_the_dummy(seaweed: Seaweed, client: Any) -> None:
    with pytest.raises(ClientError, match=r"InvalidAccessKeyId|SignatureDoesNotMatch|AccessDenied"):
        seaweed.client("s3", DUMMY).get_object(Bucket="bucket", Key="k")


def test_objects_with_any_key_come_back(client: Any) -> None:
    for key in ("plain", "with space", "100%", "plus+plus", "a/b+c d/100%", "~*'()", "ünïcødé/日本", "a&b=c?d"):
        client.put_object(Bucket="bucket", Key=key, Body=key.encode())
        assert client.get_object(Bucket="bucket", Key=key)["Body"].read() == key.encode()
        listed = client.list_objects_v2(Bucket="bucket", Prefix=key[:1])
        assert key in [one["Key"] for one in listed["Contents"]]


def test_objects_of_any_size_come_back(seaweed: Seaweed, product: Product, client: Any) -> None:
    """B62, B63. Unhashed, the SDK sends chunks and a checksum behind them."""
    for hashed in (False, True):
        sender = seaweed.through(product, "s3", payload_signing_enabled=hashed)
        for size in (0, 1, 5 * 1024 * 1024 + 1):
            content = bytes(range(256)) * (size // 256) + b"z" * (size % 256)
            sender.put_object(Bucket="bucket", Key=f"of-{size}", Body=io.BytesIO(content))
            found = client.get_object(Bucket="bucket", Key=f"of-{size}")["Body"].read()
            assert hashlib.sha256(found).digest() == hashlib.sha256(content).digest()


def test_an_upload_in_parts_comes_back(client: Any) -> None:
    upload = client.create_multipart_upload(Bucket="bucket", Key="in/parts")["UploadId"]
    parts = [b"a" * (5 * 1024 * 1024), b"b" * 7]
    tags = [
        {"PartNumber": number, "ETag": client.upload_part(
            Bucket="bucket", Key="in/parts", UploadId=upload, PartNumber=number, Body=part)["ETag"]}
        for number, part in enumerate(parts, 1)
    ]  # fmt: skip
    client.complete_multipart_upload(Bucket="bucket", Key="in/parts", UploadId=upload, MultipartUpload={"Parts": tags})
    assert client.get_object(Bucket="bucket", Key="in/parts")["Body"].read() == b"".join(parts)
    ranged = client.get_object(Bucket="bucket", Key="in/parts", Range="bytes=5242878-5242882")["Body"].read()
    assert ranged == b"aabbb"
