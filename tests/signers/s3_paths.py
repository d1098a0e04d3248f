"""The s3-paths vectors: requests that S3 clients make of buckets and keys, read from where they are shared."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import pytest

from tests.signers.sigv4_vectors import SHARED

FILE: Final = SHARED / "s3-paths" / "s3.smithy"
REGION: Final = "us-west-2"
_CASES: Final = re.compile(r"@httpRequestTests\(\[(.*?)\n\]\)", re.DOTALL)
_CASE: Final = re.compile(
    r'id: "(?P<name>\w+)".*?method: "(?P<method>\w+)"\s+uri: "(?P<path>[^"]+)"\s+host: "[^"]+"\s+'
    r'resolvedHost: "(?P<host>[^"]+)"\s+body: ""\s+(?:queryParams: \["(?P<query>[^"]+)"\])?',
    re.DOTALL,
)


class S3Request(NamedTuple):
    name: str
    method: str
    host: str
    target: str


def _read(text: str) -> list[S3Request]:
    found = []
    for case in (case for block in _CASES.findall(text) for case in _CASE.finditer(block)):
        query = f"?{case['query']}" if case["query"] else ""
        found.append(S3Request(case["name"], case["method"], case["host"], case["path"] + query))
    return found


CASES: Final = _read(FILE.read_text()) if FILE.exists() else []

needs_s3_paths = pytest.mark.skipif(not CASES, reason="../shared/vectors/s3-paths is not here")
each_case = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])


def botocores(case: S3Request, key_id: str, secret: str, when: str) -> str:
    """The signature that botocore gives the request at `when`, YYYYMMDD'T'HHMMSS'Z'."""
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    auth = S3SigV4Auth(Credentials(key_id, secret), "s3", REGION)
    request = AWSRequest(case.method, f"https://{case.host}{case.target}")
    request.context["timestamp"] = when
    request.headers["X-Amz-Date"] = when
    request.headers["X-Amz-Content-SHA256"] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    return str(auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request))
