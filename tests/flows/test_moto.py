"""boto3 through the product against moto, which checks every signature and the permissions of its owner.

moto is not among the project's packages: `SLUICEGATE_MOTO` names a `moto_server` program of an environment of its own.
"""

from __future__ import annotations

import os
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.flows.product import LOOPBACK, Product, eventually, free_port, record

MOTO = os.environ.get("SLUICEGATE_MOTO", "")
HOST = "127.0.0.9"
SETTING_UP = 4
"""Calls that moto takes unsigned: they make the user whose key the product holds."""
POLICY = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}'

pytestmark = pytest.mark.skipif(not MOTO, reason="SLUICEGATE_MOTO names no moto_server")


class Moto:
    def __init__(self) -> None:
        self.port = free_port()
        environment = {**os.environ, "INITIAL_NO_AUTH_ACTION_COUNT": str(SETTING_UP)}
        self.process = subprocess.Popen(
            [MOTO, "-H", HOST, "-p", str(self.port)],
            env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        eventually(self._answers, within=30, pause=0.2)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/moto-api/data.json", timeout=1) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False

    def client(self, service: str, key: str, secret: str, proxy: str = "") -> Any:
        config = Config(
            proxies={"http": proxy} if proxy else {}, s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}
        )
        return boto3.session.Session().client(
            service, region_name="us-east-1", endpoint_url=self.url,
            aws_access_key_id=key, aws_secret_access_key=secret,
            config=config,
        )  # fmt: skip

    def user(self) -> dict[str, str]:
        iam = self.client("iam", "any", "any")
        iam.create_user(UserName="agent")
        iam.put_user_policy(UserName="agent", PolicyName="all", PolicyDocument=POLICY)
        key: dict[str, str] = iam.create_access_key(UserName="agent")["AccessKey"]
        self.client("sts", "any", "any").get_caller_identity()
        return key


@pytest.fixture(scope="module")
def moto() -> Iterator[Moto]:
    server = Moto()
    yield server
    server.process.terminate()
    server.process.wait(10)


@pytest.fixture(scope="module")
def product(moto: Moto, folder: Path) -> Iterator[Product]:
    key = moto.user()
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


def through(product: Product, moto: Moto, service: str) -> Any:
    return moto.client(service, "AKIASLUICEGATEDUMMY1", "dummy", f"http://127.0.0.1:{product.proxy}")


def test_moto_refuses_the_dummy_and_takes_what_the_product_signs(moto: Moto, product: Product) -> None:
    with pytest.raises(ClientError, match=r"InvalidAccessKeyId|InvalidClientTokenId|AuthFailure"):
        moto.client("s3", "AKIASLUICEGATEDUMMY1", "dummy").create_bucket(Bucket="bucket")
    client = through(product, moto, "s3")
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
    client = through(product, moto, "sqs")
    url = client.create_queue(QueueName="jobs")["QueueUrl"]
    client.send_message(QueueUrl=url, MessageBody="hello")
    assert client.receive_message(QueueUrl=url)["Messages"][0]["Body"] == "hello"
