"""Service and region from host names: botocore's own endpoints, and forms that it has no model of."""

from __future__ import annotations

from functools import cache

import botocore.session
import pytest

from signers.aws_endpoints import UNKNOWN, Endpoint, endpoint
from signers.aws_names import SIGNING_NAMES


@cache
def loader():  # type: ignore[no-untyped-def]
    return botocore.session.get_session().get_component("data_loader")


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("dynamodb.eu-west-1.amazonaws.com", ("dynamodb", "eu-west-1")),
        ("123456789012.ddb.us-east-1.amazonaws.com", ("dynamodb", "us-east-1")),
        ("sqs.us-gov-west-1.amazonaws.com", ("sqs", "us-gov-west-1")),
        ("us-east-1.queue.amazonaws.com", ("sqs", "us-east-1")),
        ("sts.amazonaws.com", ("sts", "us-east-1")),
        ("sts.eusc-de-east-1.amazonaws.eu", ("sts", "eusc-de-east-1")),
        ("s3.amazonaws.com", ("s3", "us-east-1")),
        ("mybucket.s3.amazonaws.com", ("s3", "us-east-1")),
        ("mybucket.s3.eu-central-1.amazonaws.com", ("s3", "eu-central-1")),
        ("my.dotted.bucket.s3.eu-central-1.amazonaws.com", ("s3", "eu-central-1")),
        ("mybucket.s3.dualstack.eu-central-1.amazonaws.com", ("s3", "eu-central-1")),
        ("mybucket.s3-fips.us-east-1.amazonaws.com", ("s3", "us-east-1")),
        ("s3-eu-west-1.amazonaws.com", ("s3", "eu-west-1")),
        ("mybucket.s3-accelerate.amazonaws.com", ("s3", "")),
        ("point-123456789012.s3-accesspoint.us-west-2.amazonaws.com", ("s3", "us-west-2")),
        ("b--use1-az4--x-s3.s3express-use1-az4.us-east-1.amazonaws.com", ("s3express", "us-east-1")),
        ("bucket.vpce-1a2b-3c.s3.us-east-1.vpce.amazonaws.com", ("s3", "us-east-1")),
        ("vpce-1a2b-3c.sqs.us-east-1.vpce.amazonaws.com", ("sqs", "us-east-1")),
        ("abc123.execute-api.ap-southeast-2.amazonaws.com", ("execute-api", "ap-southeast-2")),
        ("abc123.lambda-url.us-east-1.on.aws", ("lambda", "us-east-1")),
        ("lambda.us-east-1.api.aws", ("lambda", "us-east-1")),
        ("search-logs-abc.us-east-1.es.amazonaws.com", ("es", "us-east-1")),
        ("abc.us-east-1.aoss.amazonaws.com", ("aoss", "us-east-1")),
        ("a1b2-ats.iot.us-east-1.amazonaws.com", ("iotdata", "us-east-1")),
        ("iot.us-east-1.amazonaws.com", ("iot", "us-east-1")),
        ("bedrock-runtime.us-west-2.amazonaws.com", ("bedrock", "us-west-2")),
        ("bedrock-runtime-fips.us-west-2.amazonaws.com", ("bedrock", "us-west-2")),
        ("email.us-east-1.amazonaws.com", ("ses", "us-east-1")),
        ("runtime.sagemaker.us-east-1.amazonaws.com", ("sagemaker", "us-east-1")),
        ("iam.us-gov.amazonaws.com", ("iam", "us-gov-west-1")),
        ("iam.cn-north-1.amazonaws.com.cn", ("iam", "cn-north-1")),
        ("route53.amazonaws.com", ("route53", "us-east-1")),
        ("example.com", UNKNOWN),
        ("amazonaws.com", UNKNOWN),
        ("notamazonaws.com", UNKNOWN),
    ],
)
def test_service_and_region_are_told_from_the_host(host: str, expected: tuple[str, str]) -> None:
    assert endpoint(host) == Endpoint(*expected)


def test_the_table_of_signing_names_holds_botocores() -> None:
    """It may know services that the botocore at hand does not know yet, and says nothing else of those it knows."""
    names: dict[str, str] = {}
    for service in loader().list_available_services("service-2"):
        metadata = loader().load_service_model(service, "service-2")["metadata"]
        prefix, name = metadata["endpointPrefix"], metadata.get("signingName", metadata["endpointPrefix"])
        if metadata.get("signatureVersion") in ("v4", "s3v4", "s3") and prefix != name:
            names[prefix] = name
    assert names.items() <= SIGNING_NAMES.items()


@pytest.mark.parametrize(
    "service",
    ["s3", "dynamodb", "sqs", "sts", "lambda", "bedrock-runtime", "ses", "iam", "ecr", "kms", "secretsmanager", "sns",
     "logs", "events", "ssm", "kinesis", "stepfunctions", "cloudwatch", "athena", "glue", "route53", "iot-data",
     "sagemaker-runtime", "dynamodbstreams", "opensearch", "apigateway", "cognito-idp", "rekognition", "textract"],
)  # fmt: skip
def test_a_client_of_botocore_would_sign_for_the_same(service: str) -> None:
    session = botocore.session.get_session()
    client = session.create_client(service, "eu-west-1", aws_access_key_id="x", aws_secret_access_key="y")
    host = client.meta.endpoint_url.removeprefix("https://")
    found = endpoint(host)
    # A global service's client says so in its endpoint rules only.
    region = "us-east-1" if "eu-west-1" not in host else "eu-west-1"
    assert found == Endpoint(client.meta.service_model.signing_name, region)
