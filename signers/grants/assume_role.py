"""Temporary keys of AWS roles, assumed one after the other: by a key, or by the workload's own web identity.

Source: "AssumeRole" and "AssumeRoleWithWebIdentity" in the STS API reference. Every request goes to the endpoint of one
region, signed for that region.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlencode, urlsplit

from signers.grants.model import Answer, Grant, Issued, Step, TokenRefused, TokenReply, TokenRequest, WorkloadToken
from signers.grants.sts_reply import clock_offset, read_keys
from signers.sigv4 import Keys, Scope, canonical_path, sign_header, stamp

VERSION: Final = "2011-06-15"
LIFETIME: Final = 3600
"""Seconds of a session where the record says nothing, and the most that a role assumed by a role is given."""
MAX_NAME: Final = 64
_SERVICE: Final = b"sts"
_FORM: Final = "application/x-www-form-urlencoded; charset=utf-8"
_NAME: Final = re.compile(r"[A-Za-z0-9_+=,.@-]{2,64}")
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_+=,.@-]")
_TAG_VALUE: Final = re.compile(r"[\w .:/=+\-@]{1,256}")
ROLE_ARN: Final = re.compile(r"arn:(aws[a-z-]*):iam::\d{12}:role/[!-~]{1,512}")
_DEFAULT_REGIONS: Final = {"aws": "us-east-1", "aws-cn": "cn-north-1", "aws-us-gov": "us-gov-west-1"}
_SUFFIXES: Final = {
    "aws": "amazonaws.com",
    "aws-cn": "amazonaws.com.cn",
    "aws-us-gov": "amazonaws.com",
    "aws-eusc": "amazonaws.eu",
    "aws-iso": "c2s.ic.gov",
    "aws-iso-b": "sc2s.sgov.gov",
    "aws-iso-e": "cloud.adc-e.uk",
    "aws-iso-f": "csp.hci.ic.gov",
}
"""DNS suffixes by partition, as botocore's endpoint rules have them."""


@dataclass(frozen=True, slots=True)
class Role:
    """A role to assume. `duration` is in seconds."""

    arn: str
    external_id: str = ""
    duration: int = LIFETIME


@dataclass(frozen=True, slots=True)
class Session:
    """For whom a role is assumed: the session's name, which CloudTrail shows, and its tags."""

    name: str
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sts:
    """The STS endpoint of one region."""

    url: str
    region: str


def sts_of(role: str, region: str, url: str = "") -> Sts:
    """The endpoint that assumes a role, by its ARN; `url` is the operator's own. Raises ValueError."""
    match = ROLE_ARN.fullmatch(role)
    if match is None:
        raise ValueError("a role is named by its ARN: arn:aws:iam::123456789012:role/NAME")
    region = region or _DEFAULT_REGIONS.get(match[1], "")
    suffix = _SUFFIXES.get(match[1], "")
    if not region or not (url or suffix):
        raise ValueError(f"roles of partition {match[1]} need a region, and the app's record a token_endpoint")
    return Sts(url or f"https://sts.{region}.{suffix}/", region)


def session_of(tenant: str, actor: str | None, tags: Mapping[str, str]) -> Session:
    """The session of a tenant, and of one actor where sessions are not shared.

    Names that AWS would not take are cut and told apart by a digest. Raises ValueError for a tag's value that AWS would
    not take: another value in its place could be somebody else's.
    """
    for key, value in tags.items():
        if not _TAG_VALUE.fullmatch(value):
            raise ValueError(
                f"{key!r} of the caller cannot be a session tag: letters, digits, spaces and . : / = + - @ _"
            )
    whole = tenant if actor is None else f"{tenant}@{actor}"
    if _NAME.fullmatch(whole):
        return Session(whole, tags)
    digest = hashlib.sha256(whole.encode()).hexdigest()[:16]
    return Session(f"{_NOT_IN_NAMES.sub('-', whole)[: MAX_NAME - 17]}-{digest}", tags)


def assume_roles(sts: Sts, start: Keys | WorkloadToken, roles: Sequence[Role], session: Session, now: float) -> Grant:
    """Keys of the last role.

    Raises ValueError when a web identity is to assume a role with an external id or with tags: STS takes neither there.
    """
    first, *further = roles
    if isinstance(start, WorkloadToken):
        if first.external_id or (session.tags and not further):
            raise ValueError(
                "a web identity assumes its first role without external_id and session_tags: let the app's record name "
                "a role_arn of its own, which then assumes the tenant's"
            )
        issued = yield from _with_web_identity(sts, start, first, session, now)
    else:
        issued = yield from _assume(sts, start, first, _tags(session, last=not further), session, now)
    for position, role in enumerate(further, 1):
        tags = _tags(session, last=position == len(further))
        issued = yield from _assume(sts, _keys(issued), role, tags, session, now, chained=True)
    return issued


def _tags(session: Session, *, last: bool) -> Mapping[str, str]:
    """Tags go to the role whose keys are used: each role before it would have to allow them too."""
    return session.tags if last else {}


def _keys(issued: Issued) -> Keys:
    fields = issued.fields
    return Keys(fields["access_key_id"].reveal(), fields["secret_access_key"], fields["session_token"])


def _assume(
    sts: Sts, keys: Keys, role: Role, tags: Mapping[str, str], session: Session, now: float, *, chained: bool = False
) -> Grant:
    duration = min(role.duration, LIFETIME) if chained else role.duration
    form = _form("AssumeRole", role, session, duration)
    if role.external_id:
        form["ExternalId"] = role.external_id
    for number, (key, value) in enumerate(sorted(tags.items()), 1):
        form |= {f"Tags.member.{number}.Key": key, f"Tags.member.{number}.Value": value}
    body = urlencode(form).encode("ascii")
    reply = yield from _asked(signed_request(sts, keys, body, now))
    offset = clock_offset(reply)
    if offset is not None:
        reply = yield from _asked(signed_request(sts, keys, body, now + offset))
    return read_keys(reply, "AssumeRole", role.arn, now)


def _with_web_identity(sts: Sts, token: WorkloadToken, role: Role, session: Session, now: float) -> Grant:
    presented = yield token
    assert isinstance(presented, bytes)
    form = _form("AssumeRoleWithWebIdentity", role, session, role.duration)
    form["WebIdentityToken"] = presented.decode("ascii")
    headers = {"Accept": "text/xml", "Content-Type": _FORM}
    reply = yield from _asked(TokenRequest(sts.url, headers, urlencode(form).encode("ascii")))
    return read_keys(reply, "AssumeRoleWithWebIdentity", role.arn, now)


def _form(action: str, role: Role, session: Session, duration: int) -> dict[str, str]:
    return {
        "Action": action,
        "Version": VERSION,
        "RoleArn": role.arn,
        "RoleSessionName": session.name,
        "DurationSeconds": str(duration),
    }


def signed_request(sts: Sts, keys: Keys, body: bytes, now: float) -> TokenRequest:
    """A call of the Query API, signed for the region of its endpoint."""
    parts, when = urlsplit(sts.url), stamp(now)
    headers = {"Host": parts.netloc, "Accept": "text/xml", "Content-Type": _FORM, "X-Amz-Date": when.time.decode()}
    if keys.session_token is not None:
        headers["X-Amz-Security-Token"] = keys.session_token.reveal()
    covered = [(name.lower().encode(), value.encode()) for name, value in headers.items() if name != "Accept"]
    digest = hashlib.sha256(body).hexdigest().encode("ascii")
    scope = Scope(sts.region.encode("ascii"), _SERVICE)
    path, query = canonical_path(parts.path.encode("ascii")), parts.query.encode("ascii")
    signed = sign_header(keys, scope, when, b"POST", path, query, covered, digest)
    return TokenRequest(sts.url, {**headers, "Authorization": signed.authorization.decode("ascii")}, body)


def _asked(request: TokenRequest) -> Generator[Step, Answer, TokenReply]:
    reply = yield request
    assert isinstance(reply, TokenReply)
    if 300 <= reply.status < 400:
        raise TokenRefused("down", f"status {reply.status}")
    return reply
