"""The embedded ledger on a real file, and what a kill between any two steps leaves."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.errors import GatewayError
from proxy.upstream.ledger.entry import Entry
from proxy.upstream.ledger.rows import Reply, Row, Scope
from proxy.upstream.ledger.sqlite import Ledger, SqliteLedger

KEY = b"k" * 32
ROW = Row("id", "acme", "print", "pending", "this", "call", 10.0, 100.0)
REPLY = Reply(201, [(b"X-A", b"1"), (b"X-A", b"2")], b"secret body")
SCOPE = Scope("acme", "", "bot", "rule")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "ledger.sqlite"


def test_a_row_is_entered_once(path: Path) -> None:
    ledger = SqliteLedger(path, KEY)
    assert ledger.enter(ROW) is None
    assert ledger.enter(replace(ROW, fingerprint="other")) == ROW
    assert path.stat().st_mode & 0o077 == 0


def test_a_reply_is_kept_sealed_and_given_back(path: Path) -> None:
    ledger = SqliteLedger(path, KEY)
    ledger.enter(ROW)
    assert ledger.settle("id", "done", REPLY)
    ledger.close()
    assert all(b"secret body" not in file.read_bytes() for file in path.parent.iterdir())
    assert SqliteLedger(path, KEY).enter(ROW) == replace(ROW, state="done", reply=REPLY)
    assert SqliteLedger(path, b"x" * 32).enter(ROW) == replace(ROW, state="done", reply=None)


def test_an_expired_row_makes_way(path: Path) -> None:
    ledger = SqliteLedger(path, KEY)
    ledger.enter(ROW)
    assert ledger.enter(replace(ROW, created=100.0, expires=200.0)) is None


def test_a_tenant_is_forgotten_whole(path: Path) -> None:
    ledger = SqliteLedger(path, KEY)
    ledger.enter(ROW)
    ledger.enter(replace(ROW, id="two", tenant="other"))
    assert ledger.erase("acme") == 1
    assert [row.id for row in ledger.unsettled()] == ["two"]


def entry(ledger: Ledger, instance: str = "this") -> Entry:
    return Entry(ledger, b"secret", instance, SCOPE, b"key", "call")


async def begin(one: Entry, body: bytes = b"body") -> Reply | None:
    return await one.begin("POST", "https://a", b"/x", body)


@pytest.fixture
def ledger(path: Path):
    made = Ledger(lambda: SqliteLedger(path, KEY))
    yield made
    made.close()


async def test_two_at_once_are_one_call(ledger: Ledger) -> None:
    results = await asyncio.gather(*(begin(entry(ledger)) for _ in range(5)), return_exceptions=True)
    assert [one for one in results if one is None] == [None]
    refused = [one.code.name for one in results if isinstance(one, GatewayError)]
    assert refused == ["idempotency_in_flight"] * 4


async def test_a_done_call_is_replayed_and_another_is_not(ledger: Ledger) -> None:
    first = entry(ledger)
    await begin(first)
    await first.done(REPLY)
    assert await begin(entry(ledger, "next")) == REPLY
    with pytest.raises(GatewayError, match="idempotency_mismatch"):
        await begin(entry(ledger), b"other")


@pytest.mark.parametrize(("kind", "again"), [("bad_input", True), ("rate_limit", True), ("unavailable", False)])
async def test_a_failure_that_did_nothing_frees_the_key(ledger: Ledger, kind, again: bool) -> None:
    first = entry(ledger)
    await begin(first)
    await first.failed(kind, sent=True)
    if again:
        assert await begin(entry(ledger)) is None
    else:
        with pytest.raises(GatewayError, match="outcome_unknown"):
            await begin(entry(ledger))


async def test_a_ledger_that_cannot_be_written_sends_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    broken = Ledger(lambda: SqliteLedger(tmp_path / "file" / "ledger", KEY))
    with pytest.raises(GatewayError, match="overloaded"):
        await begin(entry(broken))
    broken.close()


WORKER = """
    import asyncio, os, signal, sys
    from pathlib import Path
    from proxy.upstream.ledger.entry import Entry
    from proxy.upstream.ledger.rows import Reply, Scope
    from proxy.upstream.ledger.sqlite import Ledger, SqliteLedger

    path, sent, stop = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]

    def die_at(step):
        if step == stop:
            os.kill(os.getpid(), signal.SIGKILL)

    async def main():
        ledger = Ledger(lambda: SqliteLedger(path, b"k" * 32))
        entry = Entry(ledger, b"secret", f"instance {os.getpid()}", Scope("acme", "", "bot", "rule"), b"key", "call")
        die_at("before the row")
        await entry.begin("POST", "https://a", b"/x", b"body")
        die_at("after the row")
        with sent.open("a") as upstream:
            upstream.write("sent\\n")
        die_at("after the send")
        await entry.done(Reply(200, [], b"done"))
        die_at("after the reply")
        ledger.close()

    asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("stop", "second", "sent"),
    [
        ("before the row", None, 1),
        ("after the row", "outcome_unknown", 0),
        ("after the send", "outcome_unknown", 1),
        ("after the reply", "replayed", 1),
        ("never", "replayed", 1),
    ],
)
async def test_a_kill_between_two_steps_never_leads_to_a_second_write(
    path: Path, tmp_path: Path, stop: str, second: str | None, sent: int
) -> None:
    """B71: kill -9; the counting upstream never sees the write twice."""
    counter = tmp_path / "sent"
    counter.write_text("")
    program = [sys.executable, "-c", textwrap.dedent(WORKER), str(path), str(counter)]
    ended = subprocess.run([*program, stop], env={**os.environ, "PYTHONPATH": os.getcwd()}, check=False)
    assert ended.returncode == (0 if stop == "never" else -signal.SIGKILL)
    again = Ledger(lambda: SqliteLedger(path, KEY))
    try:
        found = await begin(entry(again, "after the crash"))
        outcome = "replayed" if found is not None else None
        if found is None:
            counter.write_text(counter.read_text() + "sent\n")
    except GatewayError as error:
        outcome = error.code.name
    again.close()
    assert (outcome, counter.read_text().count("sent")) == (second, sent)
