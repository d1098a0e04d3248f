"""A call that tells whether a provider still answers as its file says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from proxy.dialect import Place


@dataclass(frozen=True, slots=True)
class Probe:
    """One call and what is expected of its answer.

    target   path and query, as they are sent
    shape    (place, as written, the types that may stand there)
    headers  names that the answer has
    kind, code  the failure that is expected; empty where a success is
    """

    name: str
    method: str
    target: str
    lines: tuple[tuple[str, str], ...]
    body: Any
    status: int
    shape: tuple[tuple[Place, str, frozenset[str]], ...]
    headers: tuple[str, ...]
    kind: str
    code: str
