"""Our own refusals as the client reads them: `application/problem+json` (RFC 9457), the kind and what to do next."""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from proxy.errors import SAFE_METHODS, GatewayError


class Problem(msgspec.Struct, omit_defaults=True):
    """The body (design section 9). Written for a language model: no secret, no provider prose."""

    type: str
    title: str
    status: int
    kind: str
    code: str
    detail: str
    retryable: bool
    source: str
    call_id: str
    retry_after: int | float | None = None
    provider: str | None = None
    provider_code: str | None = None
    request_id: str | None = None
    rule: str | None = None


_encode = msgspec.json.Encoder().encode


def retryable(error: GatewayError, method: str, idempotent: bool = False) -> bool:
    """Whether the caller may repeat the same call: the code's word, or for "if safe" the method's (RFC 9110 9.2.2)."""
    if error.code.retry == "if safe":
        return idempotent or method in SAFE_METHODS
    return error.code.retry == "yes"


def render(
    error: GatewayError, call_id: str, method: str, keep: bool, *, provider: str | None = None, idempotent: bool = False
) -> bytes:
    """The whole reply, head and body; a HEAD gets the head alone. `keep`: the connection stays open."""
    again = retryable(error, method, idempotent)
    body = _encode(
        Problem(
            type=f"urn:sluicegate:error:{error.code.kind}",
            title=error.code.title,
            status=error.status,
            kind=error.code.kind,
            code=error.code.name,
            detail=f"{error.detail} {error.code.advice}",
            retryable=again,
            source="gateway",
            call_id=call_id,
            retry_after=error.retry_after,
            provider=provider or None,
            rule=error.rule,
        )
    )
    lines = [
        f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}",
        "Content-Type: application/problem+json",
        f"Content-Length: {len(body)}",
        f"Sluicegate-Call-Id: {call_id}",
        f"Sluicegate-Error-Kind: {error.code.kind}",
        "Sluicegate-Error-Source: gateway",
        f"x-should-retry: {'true' if again else 'false'}",
    ]
    if error.retry_after is not None:
        lines.append(f"Retry-After: {error.retry_after}")
    if error.challenge is not None:
        lines.append(f"{error.challenge[0]}: {error.challenge[1]}")
    lines.append("Connection: keep-alive" if keep else "Connection: close")
    head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
    return head if method == "HEAD" else head + body
