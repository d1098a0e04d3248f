"""One suite for both ledgers: SQLite in a file, a real PostgreSQL; and what a kill between any two steps leaves."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.errors import GatewayError
from proxy.upstream.ledger.entry import Entry
from proxy.upstream.ledger.keeping import Keeping
from proxy.upstream.ledger.opening import postgres_ledger, sqlite_ledger
from proxy.upstream.ledger.rows import Reply, Row, Scope
from proxy.upstream.ledger.storage import Ledger

KEY = b"k" * 32
THIS, NEXT = "11" * 16, "22" * 16
ROW = Row("id", "acme", "print", "pending", THIS, "call", 10.0, 100.0)
REPLY = Reply(201, [(b"X-A", b"1"), (b"X-A", b"2")], b"secret body")
SCOPE = Scope("acme", "", "bot", "rule")
Open = Callable[..., Ledger]


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A folder, or a database's URL."""
    return request.getfixturevalue("postgres_url") if request.param == "postgres" else str(tmp_path / "state")


def open_at(place: str, instance: str = THIS, key: bytes = KEY) -> Ledger:
    if place.startswith("postgresql:"):
        return postgres_ledger(place, None, instance, lambda: key)
    return sqlite_ledger(Path(place), lambda: key)


@pytest.fixture
async def opened(place: str):
    made: list[Ledger] = []

    def open_one(instance: str = THIS, key: bytes = KEY) -> Ledger:
        made.append(open_at(place, instance, key))
        return made[-1]

    yield open_one
    for ledger in made:
        await ledger.close()


async def test_a_row_is_entered_once(opened: Open) -> None:
    ledger = opened()
    assert await ledger.enter(ROW) is None
    found = await ledger.enter(replace(ROW, fingerprint="other"))
    assert found is not None
    assert replace(found, alive=False) == ROW


async def test_a_reply_is_kept_sealed_and_given_back(opened: Open) -> None:
    ledger = opened()
    await ledger.enter(ROW)
    assert await ledger.settle("id", "done", REPLY)
    assert await opened(NEXT).enter(ROW) == replace(ROW, state="done", reply=REPLY)
    assert await opened(NEXT, b"x" * 32).enter(ROW) == replace(ROW, state="done", reply=None)


async def test_an_expired_row_makes_way(opened: Open) -> None:
    ledger = opened()
    await ledger.enter(ROW)
    assert await ledger.enter(replace(ROW, created=100.0, expires=200.0)) is None


async def test_a_tenant_is_forgotten_whole(opened: Open) -> None:
    ledger = opened()
    await ledger.enter(ROW)
    await ledger.enter(replace(ROW, id="two", tenant="other"))
    assert await ledger.erase("acme") == 1
    assert [row.id for row in await ledger.unsettled()] == ["two"]


async def test_who_comes_late_changes_nothing_of_what_was_decided_without_it(opened: Open) -> None:
    """The fence: an operator freed the key, and another call has it now."""
    ledger = opened()
    await ledger.enter(ROW)
    assert await ledger.remove("id")
    await ledger.enter(replace(ROW, call_id="another"))
    assert not await ledger.settle("id", "done", REPLY, "call")
    assert not await ledger.remove("id", "call")
    assert [(row.call_id, row.state) for row in await ledger.unsettled()] == [("another", "pending")]


def entry(ledger: Ledger, instance: str = THIS, call_id: str = "call") -> Entry:
    return Entry(ledger, b"secret", instance, SCOPE, b"key", call_id)


async def begin(one: Entry, body: bytes = b"body") -> Reply | None:
    return await one.begin("POST", "https://a", b"/x", body)


async def refusal(answer: Awaitable[object]) -> str:
    with pytest.raises(GatewayError) as refused:
        await answer
    return refused.value.code.name


async def test_two_at_once_are_one_call(opened: Open) -> None:
    ledger = opened()
    results = await asyncio.gather(*(begin(entry(ledger)) for _ in range(5)), return_exceptions=True)
    assert [one for one in results if one is None] == [None]
    refused = [one.code.name for one in results if isinstance(one, GatewayError)]
    assert refused == ["idempotency_in_flight"] * 4


async def test_a_done_call_is_replayed_and_another_is_not(opened: Open) -> None:
    ledger = opened()
    first = entry(ledger)
    await begin(first)
    await first.done(REPLY)
    assert await begin(entry(ledger, NEXT)) == REPLY
    assert await refusal(begin(entry(ledger), b"other")) == "idempotency_mismatch"


async def test_a_key_of_one_operation_is_not_that_of_another_which_a_header_chooses(opened: Open) -> None:
    ledger = opened()
    keeping = Keeping(ledger, lambda: b"secret", THIS)
    first = keeping.entry(SCOPE, b"key", "a", (b"DynamoDB_20120810.CreateTable",))
    await begin(first)
    await first.done(REPLY)
    assert await refusal(begin(keeping.entry(SCOPE, b"key", "b", (b"DynamoDB_20120810.DeleteTable",)))) == (
        "idempotency_mismatch"
    )
    assert await begin(keeping.entry(SCOPE, b"key", "c", (b"DynamoDB_20120810.CreateTable",))) == REPLY


@pytest.mark.parametrize(("kind", "again"), [("bad_input", True), ("rate_limit", True), ("unavailable", False)])
async def test_a_failure_that_did_nothing_frees_the_key(opened: Open, kind, again: bool) -> None:
    ledger = opened()
    first = entry(ledger)
    await begin(first)
    await first.failed(kind, sent=True)
    if again:
        assert await begin(entry(ledger)) is None
    else:
        assert await refusal(begin(entry(ledger))) == "outcome_unknown"


async def test_pods_on_one_database_know_each_other_at_work_and_gone(postgres_url: str) -> None:
    first, second = open_at(postgres_url, THIS), open_at(postgres_url, NEXT)
    results = await asyncio.gather(
        begin(entry(first, THIS, "a")), begin(entry(second, NEXT, "b")), return_exceptions=True
    )
    assert [one for one in results if one is None] == [None]
    loser = next(one for one in results if isinstance(one, GatewayError))
    assert loser.code.name == "idempotency_in_flight"
    winner, other = (first, second) if results[0] is None else (second, first)
    await winner.close()
    name = NEXT if other is second else THIS
    assert await refusal(begin(entry(other, name))) == "outcome_unknown"
    await other.close()


async def test_a_lost_database_refuses_and_is_told_what_it_missed(postgres_server, postgres_url) -> None:
    ledger = open_at(postgres_url)
    first = entry(ledger)
    await begin(first)
    postgres_server.stop()
    try:
        await first.done(REPLY)
        assert await refusal(begin(entry(ledger))) == "overloaded"
    finally:
        postgres_server.start()
    assert await begin(entry(ledger)) == REPLY
    await ledger.close()


WORKER = """
    import asyncio, os, signal, sys
    from pathlib import Path
    from proxy.upstream.ledger.entry import Entry
    from proxy.upstream.ledger.rows import Reply, Scope
    from tests.contracts.test_ledger import open_at

    place, sent, stop = sys.argv[1], Path(sys.argv[2]), sys.argv[3]

    def die_at(step):
        if step == stop:
            os.kill(os.getpid(), signal.SIGKILL)

    async def main():
        ledger = open_at(place, sys.argv[4])
        entry = Entry(ledger, b"secret", sys.argv[4], Scope("acme", "", "bot", "rule"), b"key", "call")
        die_at("before the row")
        await entry.begin("POST", "https://a", b"/x", b"body")
        die_at("after the row")
        with sent.open("a") as upstream:
            upstream.write("sent\\n")
        die_at("after the send")
        await entry.done(Reply(200, [], b"done"))
        die_at("after the reply")
        await ledger.close()

    asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("stop", "outcomes", "sent"),
    [
        ("before the row", {None}, 1),
        ("after the row", {"outcome_unknown", "idempotency_in_flight"}, 0),
        ("after the send", {"outcome_unknown", "idempotency_in_flight"}, 1),
        ("after the reply", {"replayed"}, 1),
        ("never", {"replayed"}, 1),
    ],
)
async def test_a_kill_between_two_steps_never_leads_to_a_second_write(
    opened: Open, place: str, tmp_path: Path, stop: str, outcomes: set[str | None], sent: int
) -> None:
    """B71: kill -9; the counting upstream never sees the write twice. A database may notice the death a little later:
    until then the call counts as under way."""
    counter = tmp_path / "sent"
    counter.write_text("")
    program = [sys.executable, "-c", textwrap.dedent(WORKER), place, str(counter), stop, uuid.uuid4().hex]
    ended = subprocess.run(program, env={**os.environ, "PYTHONPATH": os.getcwd()}, check=False)
    assert ended.returncode == (0 if stop == "never" else -signal.SIGKILL)
    again = opened(NEXT)
    try:
        found = await begin(entry(again, NEXT))
        outcome = "replayed" if found is not None else None
        if found is None:
            counter.write_text(counter.read_text() + "sent\n")
    except GatewayError as error:
        outcome = error.code.name
    assert outcome in outcomes
    assert counter.read_text().count("sent") == sent
