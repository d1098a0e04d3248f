"""Policies replaced while callers call without a pause: no call is dropped, and each is judged by one version whole."""

from __future__ import annotations

import http.client
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.product import Product, absolute, as_yaml, policy, rule
from tests.flows.upstreams import Upstream

CALLERS = 4
RELOADS = 10
PATHS = ("/first", "/second")
Verdict = tuple[str, int, str]
"""Path, status, call id."""


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as running:
        yield running


def write_version(folder: Path, upstream: Upstream, allowed: str) -> None:
    """One file allows a path and another denies the other: half of one version with half of the other shows."""
    denied = next(path for path in PATHS if path != allowed)
    folder.mkdir()
    (folder / "allow.yaml").write_text(as_yaml(policy([rule("calls", upstream, paths=[allowed])])))
    forbidding = policy([rule("calls", upstream)], [{"name": "never", "host": upstream.host, "paths": [denied]}])
    (folder / "deny.yaml").write_text(as_yaml({**forbidding, "metadata": {"name": "forbidding"}}))


def put_version(folder: Path, version: str) -> None:
    """Every file at once, as a mounted volume is swapped."""
    (folder / "new").symlink_to(version)
    os.replace(folder / "new", folder / "live")


class Operator(http.client.HTTPConnection):
    """The operator's socket of an instance."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=10)
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)


def reload(product: Product) -> None:
    operator = Operator(product.folder / "run" / "control.sock")
    operator.request("POST", "/reload")
    answer = operator.getresponse()
    assert answer.status == 200, answer.read()
    operator.close()


def call_until(over: threading.Event, product: Product, upstream: Upstream, verdicts: list[Verdict]) -> None:
    """Both paths in turn, over one connection that has to last."""
    with product.client(timeout=10) as client:
        while not over.is_set():
            for path in PATHS:
                reply = client.ask(absolute(upstream, path))
                verdicts.append((path, reply.status, reply.call_id))
                over.wait(0.02)


def test_no_call_is_dropped_or_judged_by_a_mixture_while_policies_are_replaced(
    folder: Path, upstream: Upstream
) -> None:
    for number, path in enumerate(PATHS):
        write_version(folder / f"v{number}", upstream, path)
    put_version(folder, "v0")
    with Product(folder, policies={"dirs": ["./live"]}) as product:
        over = threading.Event()
        kept: list[list[Verdict]] = [[] for _ in range(CALLERS)]
        callers = [threading.Thread(target=call_until, args=(over, product, upstream, verdicts)) for verdicts in kept]
        for caller in callers:
            caller.start()
        for number in range(1, RELOADS + 1):
            put_version(folder, f"v{number % 2}")
            reload(product)
        over.set()
        for caller in callers:
            caller.join()
        every = [verdict for verdicts in kept for verdict in verdicts]
        product.audited(every[-1][2])
        assert product.stop() == 0
        lines = {line["call_id"]: line for line in product.audit() if line.get("outcome") != "opened"}
    assert all(len(verdicts) % len(PATHS) == 0 and len(verdicts) > RELOADS for verdicts in kept), "a caller was dropped"
    allowed: dict[str, set[str]] = {}
    for path, status, call_id in every:
        assert status in (200, 403)
        verdict = path if status == 200 else next(other for other in PATHS if other != path)
        allowed.setdefault(lines[call_id]["policy_hash"], set()).add(verdict)
    assert sorted(map(tuple, allowed.values())) == [(path,) for path in PATHS]
    assert len(upstream.requests) == sum(status == 200 for _, status, _ in every)
