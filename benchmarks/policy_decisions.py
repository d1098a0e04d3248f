"""What a large policy costs: 10,000 rules for 100 tenants. Run as `python -m benchmarks.policy_decisions`.

Prints CPU seconds to load and CPU microseconds for a decision: the first for a destination, remembered, and with a
path never seen before. Three shapes: a document for each tenant, documents about everybody, and every rule about one
host with a credential of its own (the worst for the search for conflicting rules).
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from policies.facts import ProviderFacts
from policies.load import load
from policies.policy_set import PolicySet

PROVIDERS = {
    f"p{n}": ProviderFacts(f"p{n}", (f"api.p{n}.example",), frozenset(f"op{m}" for m in range(50))) for n in range(100)
}
HOST = ("https", "api.shared.example", 443)
CALLS = 20_000
ROUNDS = 5


def mixed_rules(label: str, count: int) -> Iterator[str]:
    for n in range(count):
        yield (
            f"- {{name: r{n}, provider: p{n % 100}, operations: [op{n % 50}, 'op1*'], methods: [GET, POST]}}",
            f"- {{name: r{n}, host: h{n}.{label}.example, paths: ['/v1/x{n}/**'], credential: {{name: c{n}}}}}",
            f"- {{name: r{n}, host: {HOST[1]}, paths: ['/v1/{label}/{n}/**'], methods: [GET]}}",
            f"- {{name: r{n}, host: '*.w{n}.example', methods: [GET]}}",
        )[n % 4]


def one_host_rules(label: str, count: int) -> Iterator[str]:
    for n in range(count):
        yield f"- {{name: r{n}, host: {HOST[1]}, paths: ['/v1/{label}/{n}/**'], credential: {{name: c-{label}-{n}}}}}"


def document(label: str, subject: str, rules: Iterator[str]) -> str:
    head = f"apiVersion: sluicegate/v1\nkind: EgressPolicy\nmetadata: {{name: {label}}}\nsubjects: [{{{subject}}}]\n"
    return head + "allow:\n" + "\n".join(rules) + "\n"


SHAPES = {
    "100 tenants x 100 rules": [document(f"t{n}", f"tenant: t{n}", mixed_rules(f"t{n}", 100)) for n in range(100)],
    "10,000 rules for everybody": [document(f"t{n}", 'tenant: "*"', mixed_rules(f"t{n}", 1_000)) for n in range(10)],
    "10,000 credentials at one host": [
        document(f"t{n}", "agent: bot", one_host_rules(f"t{n}", 1_000)) for n in range(10)
    ],
}


def cpu(work: Callable[[], object]) -> float:
    before = time.process_time()
    work()
    return time.process_time() - before


def load_all(texts: list[str]) -> PolicySet:
    with tempfile.TemporaryDirectory() as directory:
        for number, text in enumerate(texts):
            Path(directory, f"{number}.yaml").write_text(text)
        return load([Path(directory)], None, PROVIDERS)


def per_call(policies: PolicySet, paths: list[str]) -> float:
    """CPU microseconds, the median of some rounds."""

    def calls() -> None:
        for path in paths:
            policies.plan("t7", "bot", "", HOST, None).decide("GET", path, None, write=False)

    return statistics.median(cpu(calls) for _ in range(ROUNDS)) / len(paths) * 1e6


def main() -> None:
    print(f"{'':32}{'load s':>8}{'first us':>12}{'remembered us':>15}{'new path us':>13}")
    for name, texts in SHAPES.items():
        seconds = statistics.median(cpu(partial(load_all, texts)) for _ in range(3))
        policies = load_all(texts)
        first = cpu(partial(one_call, policies))
        remembered = per_call(policies, ["/v1/t7/2/x"] * CALLS)
        fresh = per_call(policies, [f"/v1/t7/2/{n}" for n in range(CALLS)])
        print(f"{name:32}{seconds:8.2f}{first * 1e6:12.0f}{remembered:15.2f}{fresh:13.2f}")


def one_call(policies: PolicySet) -> None:
    policies.plan("t7", "bot", "", HOST, None).decide("GET", "/v1/t7/2/x", None, write=False)


if __name__ == "__main__":
    main()
