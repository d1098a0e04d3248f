"""Temporary keys of AWS roles: the requests, byte for byte what botocore would sign, and what every reply means."""

from __future__ import annotations

from collections.abc import Sequence
from email.utils import formatdate
from urllib.parse import parse_qsl

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from signers.grants.assume_role import Role, Session, Sts, assume_roles, session_of, sts_of
from signers.grants.model import Grant, Issued, TokenRefused, TokenReply, TokenRequest, WorkloadToken
from signers.grants.sts_reply import error_code
from signers.secret import Secret
from signers.sigv4 import Keys

NOW = 1_440_938_160.0
ROLE = "arn:aws:iam::123456789012:role/reader"
NEXT = "arn:aws:iam::210987654321:role/path/tenant"
EU = Sts("https://sts.eu-west-1.amazonaws.com/", "eu-west-1")
KEYS = Keys("AKIDEXAMPLE", Secret("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"))
ENDS = "2015-08-30T13:36:00Z"
XMLNS = 'xmlns="https://sts.amazonaws.com/doc/2011-06-15/"'


def keys_xml(action: str = "AssumeRole", number: int = 1, ends: str = ENDS) -> bytes:
    """As the API reference's samples have it."""
    return (
        f"<{action}Response {XMLNS}><{action}Result><SourceIdentity>x</SourceIdentity><Credentials>"
        f"<AccessKeyId>ASIAIOSFODNN7EXAMPLE{number}</AccessKeyId>"
        f"<SecretAccessKey>secret-of-the-session-{number}/K7MDENG</SecretAccessKey>"
        f"<SessionToken>token-of-the-session-{number}+/=</SessionToken><Expiration>{ends}</Expiration>"
        f"</Credentials></{action}Result><ResponseMetadata><RequestId>r</RequestId></ResponseMetadata>"
        f"</{action}Response>"
    ).encode()


def error_xml(code: str) -> bytes:
    return (
        f"<ErrorResponse {XMLNS}><Error><Type>Sender</Type><Code>{code}</Code><Message>User: arn:x is not authorized"
        "</Message></Error><RequestId>r</RequestId></ErrorResponse>"
    ).encode()


def reply(status: int, body: bytes, *, ahead: float = 0.0) -> TokenReply:
    return TokenReply(status, {"date": formatdate(NOW + ahead, usegmt=True)}, body, NOW)


def run(grant: Grant, *answers: TokenReply | bytes) -> tuple[list[TokenRequest], Issued]:
    asked, left = [], list(answers)
    try:
        step = next(grant)
        while True:
            if isinstance(step, TokenRequest):
                asked.append(step)
            step = grant.send(left.pop(0))
    except StopIteration as done:
        assert not left
        return asked, done.value


def assumed(*answers: TokenReply, roles: Sequence[Role] = (Role(ROLE),), session: Session = Session("acme")):  # type: ignore[no-untyped-def]
    return run(assume_roles(EU, KEYS, roles, session, NOW), *answers)


def form(request: TokenRequest) -> dict[str, str]:
    return dict(parse_qsl(request.body.decode(), strict_parsing=True))


def test_a_role_is_assumed_with_external_id_and_tags_by_a_request_that_botocore_would_sign_alike() -> None:
    session = Session("acme@jane", {"tenant": "acme", "actor": "jane"})
    (asked,), issued = assumed(reply(200, keys_xml()), roles=[Role(ROLE, "ext-7", 900)], session=session)
    assert form(asked) == {
        "Action": "AssumeRole", "Version": "2011-06-15", "RoleArn": ROLE, "RoleSessionName": "acme@jane",
        "DurationSeconds": "900", "ExternalId": "ext-7",
        "Tags.member.1.Key": "actor", "Tags.member.1.Value": "jane",
        "Tags.member.2.Key": "tenant", "Tags.member.2.Value": "acme",
    }  # fmt: skip
    signed_alike(asked, Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"))
    assert {name: value.reveal() for name, value in issued.fields.items()} == {
        "access_key_id": "ASIAIOSFODNN7EXAMPLE1",
        "secret_access_key": "secret-of-the-session-1/K7MDENG",
        "session_token": "token-of-the-session-1+/=",
    }
    assert (issued.issued_at, issued.expires_at) == (NOW, NOW + 3600)


def signed_alike(asked: TokenRequest, credentials: Credentials) -> None:
    kept = {name: value for name, value in asked.headers.items() if name in ("Content-Type", "X-Amz-Date")}
    request = AWSRequest("POST", asked.url, kept, asked.body)
    request.context["timestamp"] = kept["X-Amz-Date"]
    if credentials.token:
        request.headers["X-Amz-Security-Token"] = credentials.token
    auth = SigV4Auth(credentials, "sts", "eu-west-1")
    expected = auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
    assert asked.headers["Authorization"].endswith(f"Signature={expected}")


def test_roles_are_chained_each_by_the_keys_of_the_one_before() -> None:
    roles = [Role(ROLE, duration=7200), Role(NEXT, "ext", 7200)]
    session = Session("acme", {"tenant": "acme"})
    (first, second), issued = assumed(
        reply(200, keys_xml()), reply(200, keys_xml(number=2)), roles=roles, session=session
    )
    assert (form(first)["RoleArn"], form(first)["DurationSeconds"]) == (ROLE, "7200")
    assert "ExternalId" not in form(first)
    assert not any(name.startswith("Tags") for name in form(first))
    assert (form(second)["RoleArn"], form(second)["ExternalId"]) == (NEXT, "ext")
    assert form(second)["DurationSeconds"] == "3600"  # AWS's limit for a role assumed by a role
    assert form(second)["Tags.member.1.Value"] == "acme"
    signed_alike(
        second,
        Credentials("ASIAIOSFODNN7EXAMPLE1", "secret-of-the-session-1/K7MDENG", "token-of-the-session-1+/="),
    )
    assert issued.fields["access_key_id"].reveal() == "ASIAIOSFODNN7EXAMPLE2"


def test_a_web_identity_is_presented_unsigned_and_read_when_it_is_needed() -> None:
    grant = assume_roles(EU, WorkloadToken("/var/run/token"), [Role(ROLE)], Session("acme"), NOW)
    assert next(grant) == WorkloadToken("/var/run/token")
    asked = grant.send(b"eyJ.projected.token")
    assert isinstance(asked, TokenRequest)
    assert form(asked)["WebIdentityToken"] == "eyJ.projected.token"
    assert "Authorization" not in asked.headers
    with pytest.raises(StopIteration) as done:
        grant.send(reply(200, keys_xml("AssumeRoleWithWebIdentity")))
    assert done.value.value.fields["session_token"].reveal() == "token-of-the-session-1+/="


@pytest.mark.parametrize(("role", "tags"), [(Role(ROLE, "ext"), {}), (Role(ROLE), {"tenant": "acme"})])
def test_a_web_identity_takes_no_external_id_and_no_tags(role: Role, tags: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="role_arn of its own"):
        next(assume_roles(EU, WorkloadToken("/t"), [role], Session("acme", tags), NOW))


@pytest.mark.parametrize(
    ("status", "code", "outcome"),
    [
        (403, "AccessDenied", "rejected"),
        (403, "InvalidClientTokenId", "rejected"),
        (403, "SignatureDoesNotMatch", "rejected"),
        (400, "InvalidIdentityToken", "rejected"),
        (403, "RegionDisabledException", "rejected"),
        (400, "ValidationError", "rejected"),
        (403, "ExpiredToken", "down"),
        (400, "ExpiredTokenException", "down"),
        (400, "IDPCommunicationError", "down"),
        (400, "Throttling", "throttled"),
        (429, "", "throttled"),
        (503, "ServiceUnavailable", "down"),
        (500, "AccessDenied", "down"),
        (302, "", "down"),
    ],
)
def test_refusals_are_told_apart(status: int, code: str, outcome: str) -> None:
    with pytest.raises(TokenRefused) as refused:
        assumed(reply(status, error_xml(code) if code else b"nonsense"))
    assert refused.value.outcome == outcome
    assert refused.value.error == (code or f"status {status}")
    assert "authorized" not in str(refused.value)


def test_a_wrong_clock_is_found_from_the_date_and_the_request_signed_once_more() -> None:
    late = reply(403, error_xml("SignatureDoesNotMatch"), ahead=1800)
    granted = reply(200, keys_xml(ends="2015-08-30T14:06:00Z"), ahead=1800)
    (first, second), issued = assumed(late, granted)
    assert first.headers["X-Amz-Date"] == "20150830T123600Z"
    assert second.headers["X-Amz-Date"] == "20150830T130600Z"
    assert issued.expires_at == NOW + 3600  # by our clock
    with pytest.raises(TokenRefused) as refused:
        assumed(late, late)
    assert (refused.value.outcome, refused.value.skew) == ("rejected", 1800)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"<",
        b"<!DOCTYPE x [<!ENTITY a 'b'>]>" + keys_xml(),
        b"\xef\xbb\xbf<!DOCTYPE x>" + keys_xml(),
        (b"<!DOCTYPE x>" + keys_xml()).decode().encode("utf-16"),
        b"<?xml version='1.0' encoding='cp037'?>" + (b"<!DOCTYPE x>" + keys_xml()).decode().encode("cp037"),
        keys_xml("AssumeRoleWithSAML"),
        keys_xml().replace(b"2011-06-15", b"2011-06-16"),
        keys_xml().replace(b"AccessKeyId>", b"Id>"),
        keys_xml().replace(b"</SessionToken>", b"</SessionToken><SessionToken>second-token</SessionToken>"),
        keys_xml().replace(b"ASIA", b"AS\nIA"),
        keys_xml().replace(b"token-of", b"token\r\nof"),
        keys_xml().replace(b"<SecretAccessKey>secret-of-the-session-1/K7MDENG<", b"<SecretAccessKey><b/><"),
        keys_xml(ends="tomorrow"),
        keys_xml(ends="2015-08-30T12:36:30Z"),
        keys_xml(ends="2016-08-30T12:36:30Z"),
        error_xml("AccessDenied"),
    ],
)  # fmt: skip
def test_a_reply_that_is_not_exactly_keys_issues_nothing_and_shows_nothing(body: bytes) -> None:
    with pytest.raises(TokenRefused) as refused:
        assumed(reply(200, body))
    assert refused.value.outcome == "down"
    assert "secret" not in str(refused.value)


def test_a_declared_encoding_does_no_harm() -> None:
    _, issued = assumed(reply(200, b'<?xml version="1.0" encoding="UTF-8"?>\n' + keys_xml()))
    assert issued.fields["access_key_id"].reveal() == "ASIAIOSFODNN7EXAMPLE1"


def test_an_error_code_of_another_shape_is_not_repeated() -> None:
    assert error_code(reply(403, error_xml("Access denied for user"))) == ""
    assert error_code(reply(403, b"<Error><Code>AccessDenied</Code></Error>")) == ""


@pytest.mark.parametrize(
    ("role", "region", "url", "expected"),
    [
        (ROLE, "", "", Sts("https://sts.us-east-1.amazonaws.com/", "us-east-1")),
        (ROLE, "eu-west-1", "", EU),
        (ROLE.replace("aws", "aws-cn"), "", "", Sts("https://sts.cn-north-1.amazonaws.com.cn/", "cn-north-1")),
        (
            ROLE.replace("aws", "aws-eusc"),
            "eusc-de-east-1",
            "",
            Sts("https://sts.eusc-de-east-1.amazonaws.eu/", "eusc-de-east-1"),
        ),
        (ROLE, "eu-west-1", "https://vpce-1.sts.example/", Sts("https://vpce-1.sts.example/", "eu-west-1")),
    ],
)
def test_the_endpoint_is_that_of_one_region(role: str, region: str, url: str, expected: Sts) -> None:
    assert sts_of(role, region, url) == expected


def test_endpoints_and_partitions_are_botocores() -> None:
    import botocore.session

    session = botocore.session.get_session()
    for partition, region in [("aws", "eu-west-1"), ("aws-cn", "cn-north-1"), ("aws-us-gov", "us-gov-west-1"),
                              ("aws-iso", "us-iso-east-1"), ("aws-iso-b", "us-isob-east-1"),
                              ("aws-eusc", "eusc-de-east-1")]:  # fmt: skip
        client = session.create_client("sts", region, aws_access_key_id="x", aws_secret_access_key="y")
        assert sts_of(ROLE.replace("aws", partition), region).url == client.meta.endpoint_url + "/"


@pytest.mark.parametrize(
    "role", ["", "reader", "arn:aws:s3:::bucket", "arn:aws:iam::1:role/x", ROLE + "\n", ROLE + " x"]
)
def test_what_is_no_role_is_refused(role: str) -> None:
    with pytest.raises(ValueError, match="ARN"):
        sts_of(role, "eu-west-1")


def test_sessions_are_named_by_whom_they_are_for_and_never_alike() -> None:
    assert session_of("acme", None, {}).name == "acme"
    assert session_of("acme", "jane@example.com", {}).name == "acme@jane@example.com"
    long, odd, other = (session_of("acme", actor, {}).name for actor in ("j" * 100, "a|b", "a/b"))
    assert len({long, odd, other}) == 3
    assert all(len(name) <= 64 for name in (long, odd, other))
    assert session_of("a", None, {}).name.startswith("a-")  # one letter is too short for AWS


@pytest.mark.parametrize("actor", ["", "a|b", "a\nb", "x" * 257, "a,b"])
def test_what_cannot_be_a_tag_as_it_is_becomes_none(actor: str) -> None:
    with pytest.raises(ValueError, match="actor"):
        session_of("acme", actor, {"actor": actor})
