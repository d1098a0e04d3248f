"""The listener's own description, OpenAPI 3.1."""

from __future__ import annotations

from typing import Any, Final

from proxy import __version__
from proxy.errors import KINDS

_NULLABLE_TEXT: Final = {"type": ["string", "null"]}
_ERROR: Final[dict[str, Any]] = {
    "type": ["object", "null"],
    "properties": {
        "kind": {"enum": list(KINDS)},
        "code": {"type": "string"},
        "detail": {"type": "string"},
        "retryable": {"type": "boolean"},
        "retry_after": {"type": ["number", "null"], "description": "Seconds."},
        "provider_code": _NULLABLE_TEXT,
    },
    "required": ["kind", "code", "detail", "retryable", "retry_after", "provider_code"],
}
_ENVELOPE: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "ok": {"type": "boolean"},
        "data": {"type": ["object", "null"]},
        "next_cursor": _NULLABLE_TEXT,
        "error": _ERROR,
        "meta": {
            "type": "object",
            "properties": {
                "call_id": {"type": "string"},
                "attempts": {"type": "integer"},
                "duration_ms": {"type": "number"},
            },
            "required": ["call_id", "attempts", "duration_ms"],
        },
    },
    "required": ["ok", "data", "next_cursor", "error", "meta"],
}
_CALL: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "arguments": {"type": "object"},
        "idempotency_key": {"type": "string", "pattern": "^[!-~]+$"},
        "cursor": {"type": "string", "pattern": "^[!-~]+$"},
        "timeout": {"type": "number", "exclusiveMinimum": 0, "maximum": 3600, "description": "Seconds."},
    },
    "additionalProperties": False,
}


def document() -> dict[str, Any]:
    """The description of the listener's routes."""
    told = _answer("The outcome.", {"$ref": "#/components/schemas/Envelope"})
    tools = {"type": "object", "properties": {"tools": {"type": "array", "items": {"type": "object"}}}}
    name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
    body = {"required": True, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Call"}}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Sluicegate tools", "version": __version__},
        "paths": {
            "/v1": {
                "get": {"responses": {"200": _answer("Version, features, kinds.", {"type": "object"}), "default": told}}
            },
            "/v1/openapi.json": {"get": {"responses": {"200": _answer("This document.", {"type": "object"})}}},
            "/v1/tools": {"get": {"responses": {"200": _answer("The caller's tools.", tools), "default": told}}},
            "/v1/tools/{name}": {"post": {"parameters": [name], "requestBody": body, "responses": {"default": told}}},
        },
        "components": {
            "schemas": {"Envelope": _ENVELOPE, "Call": _CALL},
            "securitySchemes": {"session": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"session": []}, {}],
    }


def _answer(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}
