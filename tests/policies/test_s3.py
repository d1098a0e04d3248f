"""Rules that lend a credential to S3 say to which bucket."""

from __future__ import annotations

import pytest

from policies.s3 import unnamed_bucket


@pytest.mark.parametrize(
    ("host", "paths"),
    [
        ("s3.amazonaws.com", None),
        ("s3.eu-west-1.amazonaws.com", ()),
        ("S3.eu-west-1.AmazonAWS.com.", ("/**",)),
        ("s3.eu-west-1.amazonaws.com", ("/reports/**", "/*/public/**")),
        ("s3.eu-west-1.amazonaws.com", ("/",)),
        ("s3.eu-west-1.amazonaws.com", ("/rep*/**",)),
        ("s3.dualstack.eu-west-1.amazonaws.com", None),
        ("s3-fips.us-east-1.amazonaws.com", None),
        ("s3-eu-west-1.amazonaws.com", None),
        ("s3.cn-north-1.amazonaws.com.cn", None),
    ],
)
def test_a_rule_for_every_bucket_is_refused(host: str, paths: tuple[str, ...] | None) -> None:
    assert "bucket" in (unnamed_bucket(host, paths) or "")


@pytest.mark.parametrize(
    ("host", "paths"),
    [
        ("reports.s3.eu-west-1.amazonaws.com", None),
        ("s3-logs.s3.eu-west-1.amazonaws.com", None),
        ("my.dotted.bucket.s3.amazonaws.com", None),
        ("s3.eu-west-1.amazonaws.com", ("/reports", "/reports/**", "/my.logs/2026/**")),
        ("dynamodb.eu-west-1.amazonaws.com", None),
        ("s3.example.com", None),
        ("amazonaws.com", None),
    ],
)
def test_a_rule_that_names_its_buckets_or_is_not_for_s3_is_not(host: str, paths: tuple[str, ...] | None) -> None:
    assert unnamed_bucket(host, paths) is None
