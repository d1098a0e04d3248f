"""The one shape in which a tool's outcome is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proxy.catalog.tool import Tool
from proxy.dialect.answer import Answer
from proxy.errors import GatewayError
from proxy.responses.problem import retryable
from proxy.tools.calling import Done
from proxy.tools.projection import projected

KINDS = ("auth", "permission", "rate_limit", "not_found", "bad_input", "unavailable")


def success(tool: Tool, done: Done, milliseconds: float) -> dict[str, Any]:
    """The envelope of an answer below 300. Raises GatewayError where the answer is not what the tool promises."""
    cursor = next(iter(done.answer.header("Sluicegate-Next-Cursor")), None)
    return _envelope(projected(tool, done.answer), cursor, None, done.call_id, done.attempts, milliseconds)


def provider_failure(done: Done, milliseconds: float) -> dict[str, Any]:
    """The envelope of a failure that the pipeline has put into its own words."""
    return _envelope(None, None, _told(done.answer), done.call_id, done.attempts, milliseconds)


def refusal(
    error: GatewayError, method: str, idempotent: bool, call_id: str = "", attempts: int = 0, milliseconds: float = 0.0
) -> dict[str, Any]:
    """The envelope of a refusal of ours."""
    told = {
        "kind": error.code.kind,
        "code": error.code.name,
        "detail": f"{error.detail} {error.code.advice}",
        "retryable": retryable(error, method, idempotent),
        "retry_after": error.retry_after,
        "provider_code": None,
    }
    return _envelope(None, None, told, call_id, attempts, milliseconds)


def _told(answer: Answer) -> dict[str, Any]:
    problem: Mapping[str, Any] = answer.json if isinstance(answer.json, dict) else {}
    names = ("kind", "code", "detail", "retryable", "retry_after", "provider_code")
    return {name: problem.get(name) for name in names}


def _envelope(
    data: Any, cursor: str | None, error: Any, call_id: str, attempts: int, milliseconds: float
) -> dict[str, Any]:
    meta = {"call_id": call_id, "attempts": attempts, "duration_ms": round(milliseconds, 1)}
    return {"ok": error is None, "data": data, "next_cursor": cursor, "error": error, "meta": meta}
