"""Buckets and keys as S3's clients write them: the path that was sent is the one that is signed."""

from __future__ import annotations

from signers.aws import prepare_aws
from signers.secret import Secret
from signers.signing import Outgoing
from signers.sigv4 import stamp
from tests.signers.s3_paths import CASES, REGION, S3Request, botocores, each_case, needs_s3_paths

pytestmark = needs_s3_paths

NOW = 1_440_938_160.0
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
SIGNING = prepare_aws({"access_key_id": "AKIDEXAMPLE", "secret_access_key": Secret(SECRET), "region": REGION}, None)


def test_every_request_of_the_file_is_read() -> None:
    assert len(CASES) == 11
    assert {case.target for case in CASES} >= {"/../key.txt", "/foo/../key.txt", "/my%20key.txt?tagging"}


@each_case
def test_the_path_is_signed_as_it_stands_and_leaves_as_it_came(case: S3Request) -> None:
    request = Outgoing(case.method, True, case.host, case.target.encode(), ((b"host", case.host.encode()),), 0)
    signed = SIGNING.sign(request, b"", NOW)
    assert signed.target == case.target.encode()
    assert f"/{REGION}/s3/aws4_request".encode() in signed.lines
    expected = botocores(case, "AKIDEXAMPLE", SECRET, stamp(NOW).time.decode())
    assert signed.lines.endswith(f"Signature={expected}\r\n".encode())
