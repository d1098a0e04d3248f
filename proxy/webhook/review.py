"""AdmissionReview, admission.k8s.io/v1: the request read, the response written. Pure.

https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
"""

from __future__ import annotations

import base64
from typing import Any, Final, NamedTuple

import msgspec

from proxy.webhook.names import Json

API: Final = "admission.k8s.io/v1"


class BadReview(Exception):
    """What came is no AdmissionReview that could be answered; `args[0]` says why."""


class Review(NamedTuple):
    """One question: may this object be written so?"""

    uid: str
    namespace: str
    operation: str
    kind: str
    subresource: str
    object: Json


def read(body: bytes) -> Review:
    """The question in a request's body. Raises BadReview."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        raise BadReview("The body is not JSON.") from None
    request = document.get("request") if isinstance(document, dict) else None
    if not isinstance(request, dict) or document.get("apiVersion") != API or not isinstance(request.get("uid"), str):
        raise BadReview(f"The body is no {API} AdmissionReview with a request.")
    subject = request.get("object")
    kind = request.get("kind")
    return Review(
        request["uid"],
        str(request.get("namespace") or ""),
        str(request.get("operation") or ""),
        str(kind.get("kind") or "") if isinstance(kind, dict) else "",
        str(request.get("subResource") or ""),
        subject if isinstance(subject, dict) else {},
    )


def allowed(review: Review, operations: list[Json] | None = None) -> Json:
    """The answer that lets the object pass, changed by `operations`."""
    response: dict[str, Any] = {"uid": review.uid, "allowed": True}
    if operations:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(operations)).decode()
    return _answer(response)


def denied(review: Review, message: str) -> Json:
    """The answer that refuses the object, in a sentence that kubectl prints."""
    return _answer(
        {"uid": review.uid, "allowed": False, "status": {"code": 403, "reason": "Forbidden", "message": message}}
    )


def _answer(response: Json) -> Json:
    return {"apiVersion": API, "kind": "AdmissionReview", "response": response}
