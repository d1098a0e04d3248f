"""Idempotency keys in PostgreSQL, through whole processes: pods know each other's calls; without it nothing leaves."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.flows.conftest import NewFolder
from tests.flows.product import Product, absolute, record, rule
from tests.flows.upstreams import Upstream, answering
from tests.flows.wire import Reply
from tests.postgres import Postgres, postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]

SECRET = "sk-live-0123456789abcdef"
CREATED = b'HTTP/1.1 201 Created\r\nContent-Length: 8\r\n\r\n{"id":7}'
HEADER = {"name": "key", "header": "X-Api-Key"}


def pod(folder: Path, upstream: Upstream, url: str) -> Product:
    rules = [rule("up", upstream, credential=HEADER)]
    records = {"key": record("api_key", upstream.host, value=SECRET)}
    return Product(folder, rules, records, ledger={"kind": "postgres", "url": url})


def post(product: Product, upstream: Upstream, key: bytes) -> Reply:
    with product.client() as client:
        return client.ask(absolute(upstream, "/orders", b"Idempotency-Key: " + key, method="POST", body=b"{}"))


def test_another_pod_gives_the_first_ones_reply(new_folder: NewFolder, postgres_url: str) -> None:
    with Upstream(answering(CREATED)) as upstream:
        first, second = new_folder(), new_folder()
        with pod(first, upstream, postgres_url) as product:
            assert post(product, upstream, b"one").status == 201
            shutil.copy(first / "state.key", second / "state.key")  # as a Secret of both pods would be
        with pod(second, upstream, postgres_url) as product:
            again = post(product, upstream, b"one")
        assert (again.status, again.body, again.header("Sluicegate-Replayed")) == (201, b'{"id":7}', "true")
        assert len(upstream.requests) == 1


def test_without_the_database_a_call_that_needs_it_is_not_sent(
    new_folder: NewFolder, postgres_server: Postgres, postgres_url: str
) -> None:
    with Upstream(answering(CREATED)) as upstream, pod(new_folder(), upstream, postgres_url) as product:
        assert post(product, upstream, b"one").status == 201
        postgres_server.stop()
        try:
            refused = post(product, upstream, b"two")
            with product.client() as client:
                plain = client.ask(absolute(upstream, "/orders", method="POST", body=b"{}"))
        finally:
            postgres_server.start()
        assert (refused.status, refused.code, refused.json()["kind"]) == (503, "overloaded", "unavailable")
        assert plain.status == 201
        assert post(product, upstream, b"two").status == 201
        assert len(upstream.requests) == 3
