"""`sluicegate ledger` beside a running proxy, on both stores: what it lists, and what a call meets afterwards."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from proxy.cli import cli
from tests.flows.conftest import NewFolder
from tests.flows.product import Product, absolute, record, rule
from tests.flows.upstreams import Connection, Upstream, answering
from tests.flows.wire import Reply
from tests.postgres import postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]

CREATED = b'HTTP/1.1 201 Created\r\nContent-Length: 8\r\n\r\n{"id":7}'


class Flow:
    def __init__(self, product: Product, upstream: Upstream) -> None:
        self.product = product
        self.upstream = upstream

    def post(self, key: bytes) -> Reply:
        with self.product.client() as client:
            line = b"Idempotency-Key: " + key
            return client.ask(absolute(self.upstream, "/orders", line, method="POST", body=b"{}"))

    def lose(self, key: bytes) -> str:
        """A call whose outcome is not known; the id by which its repeat says that it can be settled."""

        def script(connection: Connection) -> None:
            connection.request()
            connection.drop()

        self.upstream.forget(script)
        assert self.post(key).code == "outcome_unknown"
        self.upstream.forget(answering(CREATED))
        said = re.search(r"sluicegate ledger resolve ([0-9a-f]+)", self.post(key).json()["detail"])
        assert said is not None
        return said[1]

    def ledger(self, *words: str) -> Result:
        config = str(self.product.folder / "sluicegate.yaml")
        return CliRunner().invoke(cli, ["ledger", *words, "--config", config])


@pytest.fixture(params=["sqlite", "postgres"])
def flow(request: pytest.FixtureRequest, new_folder: NewFolder) -> Iterator[Flow]:
    ledger = {"kind": request.param}
    if request.param == "postgres":
        ledger["url"] = request.getfixturevalue("postgres_url")
    with Upstream() as upstream:
        rules = [rule("up", upstream, credential={"name": "key", "header": "X-Api-Key"})]
        records = {"key": record("api_key", upstream.host, value="sk-live-0123456789abcdef")}
        with Product(new_folder(), rules, records, ledger=ledger) as product:
            yield Flow(product, upstream)


def test_what_is_not_known_is_listed_under_the_id_that_the_call_was_told(flow: Flow) -> None:
    row = flow.lose(b"lost")
    flow.upstream.forget(answering(CREATED))
    assert flow.post(b"settled").status == 201
    call = next(line["call_id"] for line in flow.product.audit() if line.get("code") == "outcome_unknown")
    listed = flow.ledger("list")
    assert listed.exit_code == 0
    assert re.fullmatch(rf"{row}  \d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\dZ  acme  unknown  {call}\n", listed.output)


def test_a_call_that_took_effect_is_never_sent_again(flow: Flow) -> None:
    row = flow.lose(b"key")
    assert flow.ledger("resolve", row, "--done").exit_code == 0
    assert flow.ledger("list").output == ""
    again = flow.post(b"key")
    assert (again.status, again.code) == (502, "outcome_unknown")
    assert "was done" in again.json()["detail"]
    assert flow.upstream.requests == []


def test_the_key_of_a_call_that_did_not_may_be_used_again(flow: Flow) -> None:
    row = flow.lose(b"key")
    assert flow.ledger("resolve", row, "--not-done").exit_code == 0
    assert flow.post(b"key").status == 201
    assert len(flow.upstream.requests) == 1


def test_nothing_is_settled_without_a_word_or_under_another_id(flow: Flow) -> None:
    row = flow.lose(b"key")
    silent, other = flow.ledger("resolve", row), flow.ledger("resolve", "0" * 32, "--not-done")
    assert (silent.exit_code, other.exit_code) == (2, 1)
    assert "say --done or --not-done" in silent.output
    assert f"no call {'0' * 32} in the ledger" in other.output
    assert row in flow.ledger("list").output


def test_a_tenant_is_forgotten(flow: Flow) -> None:
    flow.lose(b"key")
    assert flow.ledger("erase", "--tenant", "globex").output == "0 forgotten\n"
    assert flow.ledger("erase", "--tenant", "acme").output == "1 forgotten\n"
    assert flow.post(b"key").status == 201


def test_before_the_first_key_there_is_no_file_to_look_into(new_folder: NewFolder) -> None:
    folder: Path = new_folder()
    with Upstream() as upstream, Product(folder, [rule("up", upstream)], {}) as product:
        ran = Flow(product, upstream).ledger("list")
    assert ran.exit_code == 1
    assert "there is no ledger; no call has needed one" in ran.output
