"""The aws-c-auth vectors, read from where they are shared; absent, the tests that need them are skipped by name."""

from __future__ import annotations

import calendar
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from signers.secret import Secret
from signers.sigv4 import Keys, Scope

SHARED = Path(os.environ.get("SLUICEGATE_VECTORS", Path(__file__).resolve().parents[3] / "shared" / "vectors"))
FOLDER = SHARED / "sigv4-aws-c-auth" / "v4"
NAMES = sorted(path.name for path in FOLDER.iterdir()) if FOLDER.is_dir() else []

needs_vectors = pytest.mark.skipif(not NAMES, reason="../shared/vectors/sigv4-aws-c-auth is not here")


@dataclass
class Vector:
    """One directory: a request, what it is signed with, and every stage of the result."""

    name: str
    method: bytes
    target: bytes
    lines: list[tuple[bytes, bytes]]
    body: bytes
    context: dict[str, Any]

    @property
    def keys(self) -> Keys:
        credentials = self.context["credentials"]
        token = credentials.get("token")
        return Keys(
            credentials["access_key_id"], Secret(credentials["secret_access_key"]), Secret(token) if token else None
        )

    @property
    def scope(self) -> Scope:
        return Scope(self.context["region"].encode(), self.context["service"].encode())

    @property
    def now(self) -> float:
        return calendar.timegm(time.strptime(self.context["timestamp"], "%Y-%m-%dT%H:%M:%SZ"))

    @property
    def token_signed(self) -> bool:
        return not self.context.get("omit_session_token", False)

    def expected(self, stage: str) -> bytes:
        return (FOLDER / self.name / f"{stage}.txt").read_bytes().strip(b"\n")


def vector(name: str) -> Vector:
    head, _, body = (FOLDER / name / "request.txt").read_bytes().partition(b"\n\n")
    first, *rest = head.rstrip(b"\n").split(b"\n")
    method, _, remainder = first.partition(b" ")
    target = remainder.removesuffix(b" HTTP/1.1")
    lines: list[tuple[bytes, bytes]] = []
    for line in rest:
        if line.startswith(b" "):
            lines[-1] = (lines[-1][0], lines[-1][1] + b"\n" + line)
        else:
            field, _, value = line.partition(b":")
            lines.append((field, value))
    context = json.loads((FOLDER / name / "context.json").read_text())
    return Vector(name, method, target, lines, body, context)
