"""CPU of judging a reply: `python -m benchmarks.normalisation`. Only where signs are declared does a success cost."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from proxy.catalog import Catalog
from proxy.dialect import Answer, Dialect
from proxy.responses.classify import classify, failed
from proxy.responses.rewriting import rewritten

ROUNDS: Final = 5
CALLS: Final = 1_000
FAILURES: Final[tuple[tuple[str, int, Any], ...]] = (
    ("slack", 200, {"ok": False, "error": "missing_scope", "needed": "chat:write"}),
    ("github", 403, {"message": "You have exceeded a secondary rate limit"}),
    ("aws-dynamodb", 400, {"__type": "com.amazonaws#ThrottlingException"}),
    ("stripe", 402, {"error": {"code": "card_declined", "type": "card_error"}}),
)
HEADERS: Final = [(b"Content-Type", b"application/json"), (b"Date", b"x"), (b"Retry-After", b"34")]


def microseconds(work: Callable[[], object]) -> float:
    """The best of some rounds, in CPU time: neighbours disturb every single one."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        for _ in range(CALLS):
            work()
        best = min(best, time.process_time() - start)
    return best / CALLS * 1e6


def failure(dialect: Dialect, status: int, body: bytes) -> None:
    finding = classify(Answer(status, HEADERS, body), dialect, 1.7e9)
    rewritten(finding, dialect, HEADERS, "call", "problem", True)


def main() -> None:
    catalog = Catalog.load(Catalog.builtin_dir())
    for name, status, document in FAILURES:
        dialect, body = catalog.providers[name].dialect, json.dumps(document).encode()
        print(f"{name} failure: {microseconds(partial(failure, dialect, status, body)):.1f} us")
    success = json.dumps({"ok": True, "text": "x" * 900}).encode()
    slack = catalog.providers["slack"].dialect
    took = microseconds(lambda: failed(Answer(200, HEADERS, success), slack, "chat.postMessage"))
    print(f"slack success: {took:.1f} us")


if __name__ == "__main__":
    main()
