"""boto3 through the product against ministack, which checks signatures, session tokens and what a role may do:
DynamoDB, with the keys of a role that the product has assumed there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from tests.flows.aws_servers import DUMMY, Ministack, needs
from tests.flows.product import LOOPBACK, Product, record

HOST = "127.0.0.10"
ROLE = "arn:aws:iam::000000000000:role/agent"
ALLOW = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", %s}]}'
TRUST = ALLOW % '"Principal": {"AWS": "*"}, "Action": ["sts:AssumeRole", "sts:TagSession"]'
TABLES = ALLOW % '"Action": "dynamodb:*", "Resource": "arn:aws:dynamodb:*:*:table/orders"'

pytestmark = needs("ministack")


@pytest.fixture(scope="module")
def ministack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ministack]:
    with Ministack(tmp_path_factory.mktemp("ministack"), HOST) as server:
        iam = server.client("iam", server.root)
        iam.create_role(RoleName="agent", AssumeRolePolicyDocument=TRUST)
        iam.put_role_policy(RoleName="agent", PolicyName="tables", PolicyDocument=TABLES)
        yield server


@pytest.fixture(scope="module")
def product(ministack: Ministack, folder: Path) -> Iterator[Product]:
    # The token endpoint has a path of its own: where it is, agents do not reach.
    app = {"access_key_id": ministack.root[0], "secret_access_key": ministack.root[1], "networks": LOOPBACK}
    records = {
        "role": record("aws", HOST, app="aws", role_arn=ROLE, region="us-east-1", session_tags=["tenant"]),
        "apps/aws": {**app, "token_endpoint": f"{ministack.url}/sts"},
    }
    rule = {"name": "dynamodb", "host": HOST, "port": ministack.port, "plaintext": True, "networks": LOOPBACK,
            "credential": {"name": "role", "service": "dynamodb"}}  # fmt: skip
    with Product(folder, [rule], records) as running:
        yield running


def test_a_role_is_assumed_there_and_its_keys_are_taken(ministack: Ministack, product: Product) -> None:
    with pytest.raises(ClientError, match=r"UnrecognizedClient|InvalidClientTokenId|InvalidAccessKeyId|Signature"):
        ministack.client("dynamodb", DUMMY).list_tables()
    client = ministack.through(product, "dynamodb")
    client.create_table(
        TableName="orders", BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
    )  # fmt: skip
    client.put_item(TableName="orders", Item={"id": {"S": "ünïcødé +%"}, "n": {"N": "1"}})
    found = client.get_item(TableName="orders", Key={"id": {"S": "ünïcødé +%"}})
    assert found["Item"]["n"] == {"N": "1"}


def test_what_the_role_may_not_do_is_refused_by_the_server(ministack: Ministack, product: Product) -> None:
    with pytest.raises(ClientError) as refused:
        ministack.through(product, "dynamodb").describe_table(TableName="forbidden")
    lines = refused.value.response["ResponseMetadata"]["HTTPHeaders"]
    assert (lines["sluicegate-error-source"], lines["sluicegate-error-kind"]) == ("provider", "permission")
