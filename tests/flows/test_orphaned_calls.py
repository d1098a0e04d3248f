"""A process that dies in the middle of a write: the next one says of that call that its outcome is not known."""

from __future__ import annotations

import threading
from pathlib import Path

from tests.flows.product import Product, absolute, eventually, rule
from tests.flows.upstreams import Connection, Upstream


def test_a_call_that_a_dead_process_left_open_is_closed_and_counted_once(folder: Path) -> None:
    arrived = threading.Event()

    def silent(connection: Connection) -> None:
        connection.request()
        arrived.set()
        connection.wait_for_end()  # until the proxy is gone

    with Upstream(silent) as upstream, Product(folder, [rule("up", upstream, methods=["POST"])]) as product:
        with product.client() as client:
            client.send(absolute(upstream, "/v1", method="POST", body=b"x"))
            assert arrived.wait(5)
            assert product.process is not None
            product.process.kill()
            product.process.wait(5)
        (opened,) = [line for line in product.audit() if line["outcome"] == "opened"]
        product.start()
        orphaned = eventually(lambda: [line for line in product.audit() if line["outcome"] == "orphaned"])
        assert [line["call_id"] for line in orphaned] == [opened["call_id"]]
        assert orphaned[0]["policy_hash"] == opened["policy_hash"] != ""
        assert "1 calls were in progress" in product.diagnostics()
        product.stop()
        product.start()
        eventually(lambda: product.diagnostics().count("serving") == 3)
        assert sum(line["outcome"] == "orphaned" for line in product.audit()) == 1
