"""Calls that a dead process left open."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from proxy.audit.orphans import orphans, unclosed


def line(call_id: str, outcome: str) -> bytes:
    fields = {"time": "2026-01-31T08:15:30.042Z", "call_id": call_id, "listener": "proxy", "outcome": outcome}
    return json.dumps(fields).encode()


READ = line("b", "credential_read").replace(b', "listener": "proxy"', b"")  # as reads of the store are told


def test_an_opened_call_without_an_end_is_an_orphan():
    lines = [line("a", "opened"), line("b", "opened"), line("a", "ok"), READ, line("c", "ok")]
    assert [record.call_id for record in unclosed(lines)] == ["b"]


def test_one_that_was_reported_is_not_reported_again():
    assert unclosed([line("a", "opened"), line("a", "orphaned")]) == []


def test_only_what_an_earlier_process_wrote_is_looked_at(tmp_path: Path):
    file = tmp_path / "audit.log"
    file.write_bytes(line("old", "opened") + b"\n")
    end = file.stat().st_size
    with file.open("ab") as more:
        more.write(line("ours", "opened") + b"\n")
    assert [record.call_id for record in orphans(file, end)] == ["old"]
    assert orphans(tmp_path / "none", 10) == []


@given(st.lists(st.binary(max_size=40)))
def test_lines_that_are_no_records_are_passed_over(torn: list[bytes]):
    assert [record.call_id for record in unclosed([*torn, line("a", "opened"), *torn])] == ["a"]
