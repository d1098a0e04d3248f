"""A provider's failure as the client gets it: our body in one of two shapes, the provider's headers around it."""

from __future__ import annotations

import math
from http import HTTPStatus
from typing import Final, NamedTuple

import msgspec

from proxy.dialect import Dialect
from proxy.model import Headers
from proxy.responses.classify import Finding
from proxy.responses.messages import TITLES, detail
from proxy.responses.native import native_body
from proxy.responses.problem import Problem

# What described the body that is replaced, and what we say ourselves.
_REPLACED: Final = frozenset(
    b"content-length content-type content-encoding content-language content-md5 content-range content-disposition "
    b"transfer-encoding trailer etag last-modified digest repr-digest content-digest accept-ranges retry-after "
    b"retry-after-ms x-should-retry x-amz-crc32".split()
)
_ANNOTATED: Final = frozenset({b"retry-after", b"retry-after-ms", b"x-should-retry"})

_encode = msgspec.json.Encoder().encode


class Rewritten(NamedTuple):
    """Status, header lines of the provider's that stay, ours, and the body."""

    status: int
    kept: Headers
    ours: bytes
    body: bytes


def verdict_lines(finding: Finding, safe: bool) -> bytes:
    """The headers that every failure of a provider carries, in every mode (design section 9)."""
    again = finding.repeatable and (finding.kind == "rate_limit" or safe)
    lines = (
        f"Sluicegate-Error-Kind: {finding.kind}\r\nSluicegate-Error-Source: provider\r\n"
        f"x-should-retry: {'true' if again else 'false'}\r\n"
    )
    if finding.wait is not None:
        lines += f"Retry-After: {math.ceil(finding.wait)}\r\n"
    return lines.encode("ascii")


def described_anew(lines: Headers) -> Headers:
    """The provider's lines less those that described the body which was replaced, and its cookies: a session is as good
    as a token."""
    return [line for line in lines if line[0].lower() not in _REPLACED and line[0].lower() != b"set-cookie"]


def annotated(lines: Headers) -> Headers:
    """The provider's lines less those that ours stand for."""
    return [line for line in lines if line[0].lower() not in _ANNOTATED]


def rewritten(finding: Finding, dialect: Dialect, lines: Headers, call_id: str, mode: str, safe: bool) -> Rewritten:
    """The failure as a problem, or with mode "native" in the provider's own shape where one is known."""
    kept = [line for line in lines if line[0].lower() not in _REPLACED]
    body, kind = replacement(finding, dialect, call_id, mode, safe=safe)
    ours = verdict_lines(finding, safe) + f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n".encode("ascii")
    return Rewritten(finding.status, kept, ours, body)


def replacement(finding: Finding, dialect: Dialect, call_id: str, mode: str, *, safe: bool) -> tuple[bytes, str]:
    """What stands in place of a failure's body, and its media type."""
    text = detail(finding, dialect.title, safe)
    if mode == "native" and dialect.native is not None:
        return native_body(dialect.native, _placeholders(finding, dialect, text)), dialect.native_type
    return _problem(finding, dialect, text, call_id, safe), "application/problem+json"


def _problem(finding: Finding, dialect: Dialect, text: str, call_id: str, safe: bool) -> bytes:
    return _encode(
        Problem(
            type=f"urn:sluicegate:error:{finding.kind}",
            title=TITLES[finding.kind],
            status=finding.status,
            kind=finding.kind,
            code="provider_error",
            detail=text,
            retryable=finding.repeatable and (finding.kind == "rate_limit" or safe),
            source="provider",
            call_id=call_id,
            retry_after=_number(finding.wait),
            provider=dialect.provider or None,
            provider_code=finding.code or None,
            request_id=finding.request_id or None,
        )
    )


def _number(wait: float | None) -> int | float | None:
    """Whole seconds as an integer."""
    if wait is None:
        return None
    return int(wait) if wait == int(wait) else round(wait, 3)


def _placeholders(finding: Finding, dialect: Dialect, text: str) -> dict[str, str | int]:
    return {
        "detail": text,
        "code": finding.code or finding.kind,
        "kind": finding.kind,
        "status": finding.status,
        "request_id": finding.request_id,
        "title": dialect.title,
        "reason": reason(finding.status).decode("ascii"),
    }


def reason(status: int) -> bytes:
    """The reason phrase of a status; any status a provider made up has none."""
    try:
        return HTTPStatus(status).phrase.encode("ascii")
    except ValueError:
        return b""
