"""CPU of judging a reply: `python -m benchmarks.normalisation`. Only where signs are declared does a success cost."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from proxy.catalog import Catalog
from proxy.catalog.graphql import asked
from proxy.dialect import Answer, Dialect
from proxy.responses.classify import classify, failed
from proxy.responses.events import EventErrors
from proxy.responses.rewriting import rewritten

ROUNDS: Final = 5
CALLS: Final = 1_000
FAILURES: Final[tuple[tuple[str, int, Any], ...]] = (
    ("slack", 200, {"ok": False, "error": "missing_scope", "needed": "chat:write"}),
    ("github", 403, {"message": "You have exceeded a secondary rate limit"}),
    ("aws-dynamodb", 400, {"__type": "com.amazonaws#ThrottlingException"}),
    ("stripe", 402, {"error": {"code": "card_declined", "type": "card_error"}}),
)
EVENT: Final = b'event: content_block_delta\ndata: {"type":"content_block_delta","text":"some words"}\n\n'
DOCUMENT: Final = (
    "query Mine($c: String, $n: Int = 50) { viewer { id name } issues(first: $n, after: $c, where: {state: {eq: OPEN}})"
    " { nodes { id title assignee { name } labels { nodes { name } } } pageInfo { hasNextPage endCursor } } }"
)
HEADERS: Final = [(b"Content-Type", b"application/json"), (b"Date", b"x"), (b"Retry-After", b"34")]


def microseconds(work: Callable[[], object], calls: int = CALLS) -> float:
    """The best of some rounds, in CPU time: neighbours disturb every single one."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        for _ in range(calls):
            work()
        best = min(best, time.process_time() - start)
    return best / calls * 1e6


def failure(dialect: Dialect, status: int, body: bytes) -> None:
    finding = classify(Answer(status, HEADERS, body), dialect, 1.7e9)
    rewritten(finding, dialect, HEADERS, "call", "problem", True)


def unfitting(catalog: Catalog) -> float:
    """The provider with the most rows to look at in vain."""
    body = json.dumps({"error": {"code": "unheard_of", "type": "unheard_of"}, "message": "x" * 200}).encode()
    return max(microseconds(partial(failure, one.dialect, 418, body), 100) for one in catalog.providers.values())


def undeclared(dialect: Dialect) -> None:
    """All that a success costs where nothing is declared: the questions whether something is."""
    _ = dialect.at("repos.get").declared


def event(dialect: Dialect) -> None:
    filter_ = EventErrors(dialect, [], "call", "problem", time.time, lambda _: None)
    filter_.feed(EVENT)


def main() -> None:
    catalog = Catalog.load(Catalog.builtin_dir())
    for name, status, document in FAILURES:
        dialect, body = catalog.providers[name].dialect, json.dumps(document).encode()
        print(f"{name} failure: {microseconds(partial(failure, dialect, status, body)):.1f} us")
    print(f"a failure that no row of any provider fits, at worst: {unfitting(catalog):.1f} us")
    github, anthropic = catalog.providers["github"].dialect, catalog.providers["anthropic"].dialect
    success = json.dumps({"ok": True, "text": "x" * 900}).encode()
    slack = catalog.providers["slack"].dialect
    took = microseconds(lambda: failed(Answer(200, HEADERS, success), slack, "chat.postMessage"))
    print(f"slack success: {took:.1f} us")
    print(f"a success of an operation without signs: {microseconds(partial(undeclared, github)):.2f} us")
    print(f"an event of a stream that is no error: {microseconds(partial(event, anthropic)):.1f} us")
    print(f"a GraphQL document of {len(DOCUMENT)} bytes: {microseconds(lambda: asked(DOCUMENT)):.1f} us")


if __name__ == "__main__":
    main()
