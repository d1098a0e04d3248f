"""boto3 through the product against moto, which checks every signature and the permissions of its owner."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from tests.flows.aws_servers import DUMMY, Moto, needs
from tests.flows.product import LOOPBACK, Product, record

HOST = "127.0.0.9"
POLICY = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}'

pytestmark = needs("moto_server")


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moto]:
    with Moto(tmp_path_factory.mktemp("moto"), HOST) as server:
        yield server


def user(moto: Moto) -> dict[str, str]:
    """A user with a key; its calls are those that moto takes unsigned."""
    iam = moto.client("iam", ("any", "any"))
    iam.create_user(UserName="agent")
    iam.put_user_policy(UserName="agent", PolicyName="all", PolicyDocument=POLICY)
    key: dict[str, str] = iam.create_access_key(UserName="agent")["AccessKey"]
    moto.client("sts", ("any", "any")).get_caller_identity()
    return key


@pytest.fixture(scope="module")
def product(moto: Moto, folder: Path) -> Iterator[Product]:
    key = user(moto)
    keys = record(
        "aws", HOST, access_key_id=key["AccessKeyId"], secret_access_key=key["SecretAccessKey"], region="us-east-1"
    )
    common = {"host": HOST, "port": moto.port, "plaintext": True, "networks": LOOPBACK}
    # moto serves all services at one address: what the path does not tell, the rules do.
    allow = [
        {"name": "s3", **common, "paths": ["/bucket", "/bucket/**"], "credential": {"name": "keys", "service": "s3"}},
        {"name": "sqs", **common, "credential": {"name": "keys", "service": "sqs"}},
    ]
    with Product(folder, allow, {"keys": keys}) as running:
        yield running


def test_moto_refuses_the_dummy_and_takes_what_the_product_signs(moto: Moto, product: Product) -> None:
    with pytest.raises(ClientError, match=r"InvalidAccessKeyId|InvalidClientTokenId|AuthFailure"):
        moto.client("s3", DUMMY).create_bucket(Bucket="bucket")
    client = moto.through(product, "s3")
    client.create_bucket(Bucket="bucket")
    for key in ("plain", "with space", "100%", "plus+plus", "~*'()", "ünïcødé"):
        client.put_object(Bucket="bucket", Key=key, Body=key.encode())
        assert client.get_object(Bucket="bucket", Key=key)["Body"].read() == key.encode()
    upload = client.create_multipart_upload(Bucket="bucket", Key="big")["UploadId"]
    part = client.upload_part(
        Bucket="bucket", Key="big", UploadId=upload, PartNumber=1, Body=b"p" * (5 * 1024 * 1024 + 1)
    )
    client.complete_multipart_upload(
        Bucket="bucket", Key="big", UploadId=upload,
        MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]},
    )  # fmt: skip
    assert client.head_object(Bucket="bucket", Key="big")["ContentLength"] == 5 * 1024 * 1024 + 1


def test_queues_work_too(moto: Moto, product: Product) -> None:
    client = moto.through(product, "sqs")
    url = client.create_queue(QueueName="jobs")["QueueUrl"]
    client.send_message(QueueUrl=url, MessageBody="hello")
    assert client.receive_message(QueueUrl=url)["Messages"][0]["Body"] == "hello"
