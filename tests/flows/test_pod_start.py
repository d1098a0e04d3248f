"""What an orchestrator sees: ready only when usable, a store that is slow or late, policies newer than the program."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.product import Product, as_yaml, eventually, policy, rule
from tests.flows.upstreams import Upstream


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A Vault that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_a_vault_that_does_not_answer_delays_readiness_and_nothing_else(folder: Path, silent: socket.socket) -> None:
    """B88: listening at once, alive, not ready; a call is told to come back, and SIGTERM ends it with 0."""
    (folder / "token").touch(0o600)
    (folder / "token").write_text("t")
    vault = {
        "kind": "vault", "address": f"http://127.0.0.1:{silent.getsockname()[1]}",
        "auth": {"kind": "token", "token_file": "./token"}, "timeouts": {"read": 0.5, "connect": 0.5},
    }  # fmt: skip
    with Upstream() as upstream:
        allow = [rule("api", upstream, credential={"name": "api", "header": "X-Key"})]
        product = Product(folder, allow, store=vault)
        product.write()
        product.start(ready=False)
        try:
            eventually(lambda: product.ops_get("/healthz")[0] == 200, within=10)
            assert product.ops_get("/readyz")[0] == 503
            reply = product.get(upstream)
            assert (reply.status, reply.code) == (503, "credential_unavailable")
            assert upstream.requests == []
            assert product.ops_get("/readyz")[0] == 503
        finally:
            assert product.stop() == 0


def test_policies_that_need_what_this_version_has_not_leave_the_last_ones_in_force(folder: Path) -> None:
    """A rolling upgrade: newer policies reach an older pod, which keeps its own, says so, and stays in service."""
    with Upstream() as upstream, Product(folder, [rule("api", upstream)]) as product:
        before = product.metric("sluicegate_policy_info")
        newer = policy([rule("other", upstream)], requires=["time-travel"])
        (folder / "policies" / "0.yaml").write_text(as_yaml(newer))
        eventually(lambda: product.metric("sluicegate_policy_reloads_total", result="failed") == 1)
        assert "requires" in product.diagnostics()
        assert product.get(upstream).status == 200
        assert product.ops_get("/readyz")[0] == 200
        assert product.metric("sluicegate_policy_info") == before == 1
        (folder / "policies" / "0.yaml").write_text(as_yaml(policy([rule("api", upstream)])))
        eventually(lambda: product.metric("sluicegate_policy_reloads_total", result="ok") == 1)
