"""Audit lines on their way out."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import threading
from pathlib import Path

import pytest

from proxy.audit import outbox as outbox_module
from proxy.audit import output as output_module
from proxy.audit import sink as sink_module
from proxy.audit.output import Descriptor as Output
from proxy.audit.sink import AuditSink
from proxy.errors import ConfigurationError
from proxy.model import AuditRecord, Caller


def record(call_id: str = "c1", **fields: object) -> AuditRecord:
    return AuditRecord(time="2026-01-31T08:15:30.042Z", call_id=call_id, listener="proxy", outcome="ok", **fields)


def lines(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


async def until(condition) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


async def test_a_line_is_written_without_being_asked_again(tmp_path: Path):
    sink = AuditSink(Output(tmp_path / "audit.log"))
    sink.write(record("c1"))
    sink.write(record("c2"))
    await until(lambda: sink.outbox.written == 2)
    assert [line["call_id"] for line in lines(tmp_path / "audit.log")] == ["c1", "c2"]
    sink.close()


async def test_an_opened_line_is_on_file_when_the_call_goes_on_after_all_lines_before_it(tmp_path: Path):
    sink = AuditSink(Output(tmp_path / "audit.log"))
    sink.write(record("before"))
    opened = record("write")
    assert sink.opened(opened)
    assert [(line["call_id"], line["outcome"]) for line in lines(tmp_path / "audit.log")] == [
        ("before", "ok"),
        ("write", "opened"),
    ]
    assert opened.outcome == "ok"
    sink.close()


async def test_closing_writes_what_is_left_and_may_be_done_twice(tmp_path: Path):
    sink = AuditSink(Output(tmp_path / "audit.log"))
    sink.write(record())
    sink.close()
    sink.close()
    assert len(lines(tmp_path / "audit.log")) == 1


async def test_a_full_buffer_leaves_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sink_module, "FLUSH_SECONDS", 3600)
    sink = AuditSink(Output(tmp_path / "audit.log"))
    for _ in range(400):
        sink.write(record())
    await until(lambda: sink.outbox.written > 0)
    sink.close()
    assert len(lines(tmp_path / "audit.log")) == 400


async def test_a_store_read_has_a_line_of_its_own(tmp_path: Path):
    sink = AuditSink(Output(tmp_path / "audit.log"))
    sink.credential_read("tenants/acme/slack", "found", Caller("acme", "bot", "jo"), 1_000_000_000.5, "c1")
    sink.close()
    assert lines(tmp_path / "audit.log") == [
        {
            "time": "2001-09-09T01:46:40.500Z",
            "outcome": "credential_read",
            "call_id": "c1",
            "tenant": "acme",
            "actor": "jo",
            "agent": "bot",
            "record": "tenants/acme/slack",
            "result": "found",
        }
    ]


async def test_a_line_never_breaks_into_two(tmp_path: Path):
    sink = AuditSink(Output(tmp_path / "audit.log"))
    sink.write(record(path='/a\n{"forged": 1}\r\n\x1b[31m\u2028'))
    sink.close()
    assert len((tmp_path / "audit.log").read_bytes().strip().split(b"\n")) == 1
    assert b"\x1b" not in (tmp_path / "audit.log").read_bytes()


async def test_text_that_is_not_unicode_costs_the_line_and_not_the_call(tmp_path: Path):
    sink = AuditSink(Output(tmp_path / "audit.log"))
    sink.write(record("good"))
    sink.write(record("bad", path="\ud800"))
    sink.write(record("good too"))
    sink.close()
    gap, *kept = lines(tmp_path / "audit.log")
    assert (gap["outcome"], gap["dropped"]) == ("audit_gap", 1)
    assert [line["call_id"] for line in kept] == ["good", "good too"]
    assert sink.outbox.dropped == 1


async def test_the_file_is_private_and_added_to(tmp_path: Path):
    for _ in range(2):
        sink = AuditSink(Output(tmp_path / "audit.log"))
        sink.write(record())
        sink.close()
    assert stat.S_IMODE((tmp_path / "audit.log").stat().st_mode) == 0o600
    assert len(lines(tmp_path / "audit.log")) == 2


async def test_a_file_rotated_away_is_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(output_module, "LOOK_SECONDS", 0)
    sink = AuditSink(Output(tmp_path / "audit.log"))
    sink.opened(record("old"))
    (tmp_path / "audit.log").rename(tmp_path / "audit.log.1")
    sink.opened(record("new"))
    sink.close()
    assert [line["call_id"] for line in lines(tmp_path / "audit.log.1")] == ["old"]
    assert [line["call_id"] for line in lines(tmp_path / "audit.log")] == ["new"]


async def test_a_file_that_cannot_be_opened_again_goes_on_under_its_new_name(tmp_path: Path):
    folder = tmp_path / "logs"
    folder.mkdir()
    sink = AuditSink(Output(folder / "audit.log"))
    folder.rename(tmp_path / "moved")
    assert sink.opened(record())
    sink.close()
    assert len(lines(tmp_path / "moved" / "audit.log")) == 1


def test_a_file_that_cannot_be_opened_is_named_at_start(tmp_path: Path):
    with pytest.raises(ConfigurationError, match=r"none/audit.log: cannot be opened for audit lines: No such file"):
        Output(tmp_path / "none" / "audit.log")


async def test_a_failing_disk_never_raises_and_the_line_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write, broken = os.write, threading.Event()

    def failing(descriptor: int, content: bytes) -> int:
        if broken.is_set():
            raise OSError(28, "No space left on device")
        return write(descriptor, content)

    monkeypatch.setattr(output_module.os, "write", failing)
    sink = AuditSink(Output(tmp_path / "audit.log"), blocks=True)
    broken.set()
    assert not sink.opened(record("c1"))
    sink.write(record("c2"))
    broken.clear()
    await until(lambda: sink.outbox.written == 2)
    assert [line["call_id"] for line in lines(tmp_path / "audit.log")] == ["c1", "c2"]
    sink.close()


async def test_a_partial_write_is_continued_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write = os.write
    monkeypatch.setattr(output_module.os, "write", lambda descriptor, content: write(descriptor, bytes(content)[:7]))
    sink = AuditSink(Output(tmp_path / "audit.log"))
    sink.opened(record("c1"))
    sink.opened(record("c2"))
    sink.close()
    assert [line["call_id"] for line in lines(tmp_path / "audit.log")] == ["c1", "c2"]
    assert (sink.outbox.written, sink.outbox.dropped) == (2, 0)


def pipe() -> tuple[int, int]:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    return reader, writer


def available(reader: int) -> bytes:
    try:
        return os.read(reader, 1_000_000)
    except BlockingIOError:
        return b""


async def test_a_reader_of_standard_output_that_stopped_does_not_stop_the_loop():
    reader, writer = pipe()
    sink = AuditSink(Output(None, writer), blocks=True)
    results = [sink.opened(record(str(number))) for number in range(1000)]
    assert results[0]
    assert not results[-1]
    received = bytearray()
    await until(lambda: received.extend(available(reader)) or received.count(b"\n") == 1000)
    sink.close()
    assert (sink.outbox.written, sink.outbox.dropped) == (1000, 0)
    os.close(reader)
    os.close(writer)


async def test_what_waits_for_a_stuck_reader_is_bounded_and_the_rest_counted(monkeypatch: pytest.MonkeyPatch):
    reader, writer = pipe()
    monkeypatch.setattr(outbox_module, "HELD_BYTES", 100_000)
    monkeypatch.setattr(sink_module, "CLOSE_SECONDS", 0.05)
    sink = AuditSink(Output(None, writer))
    for number in range(2000):
        sink.opened(record(str(number)))
    assert sink.outbox.waiting <= 100_000
    assert sink.outbox.dropped > 0
    sink.close()
    assert sink.outbox.written + sink.outbox.dropped == 2000
    os.close(reader)
    os.close(writer)


async def test_a_reader_that_left_costs_lines_and_nothing_else(monkeypatch: pytest.MonkeyPatch):
    reader, writer = pipe()
    monkeypatch.setattr(sink_module, "CLOSE_SECONDS", 0.05)
    os.close(reader)
    sink = AuditSink(Output(None, writer), blocks=True)
    assert not sink.opened(record())
    sink.close()
    assert (sink.outbox.written, sink.outbox.dropped) == (0, 1)
    os.close(writer)


async def test_lines_that_were_dropped_are_told_of_in_the_log_itself(monkeypatch: pytest.MonkeyPatch):
    reader, writer = pipe()
    monkeypatch.setattr(outbox_module, "HELD_BYTES", 1_000)
    sink = AuditSink(Output(None, writer))
    filler = record(path="x" * 900)
    for _ in range(100):
        sink.opened(filler)  # the pipe takes some sixty, one waits, the others are dropped
    dropped = sink.outbox.dropped
    assert dropped > 0
    received = bytearray()
    await until(lambda: received.extend(available(reader)) or sink.outbox.head is None)
    assert sink.opened(record("after"))
    await until(lambda: received.extend(available(reader)) or b"after" in received)
    gap, after = [json.loads(line) for line in received.splitlines()[-2:]]
    assert (gap["outcome"], gap["dropped"], after["call_id"]) == ("audit_gap", dropped, "after")
    sink.close()
    os.close(reader)
    os.close(writer)


async def test_a_sink_that_blocks_is_full_before_a_line_is_lost_and_free_when_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
):
    reader, writer = pipe()
    monkeypatch.setattr(sink_module, "FULL_BYTES", 10_000)
    blocking, dropping = AuditSink(Output(None, writer), blocks=True), AuditSink(Output(None, writer))
    while not blocking.full:
        blocking.opened(record(path="x" * 900))
    assert blocking.outbox.dropped == 0
    assert not blocking.opened(record())
    for _ in range(100):
        assert dropping.opened(record(path="x" * 900))
    assert not dropping.full
    await until(lambda: available(reader) or not blocking.full)
    blocking.close()
    dropping.close()
    os.close(reader)
    os.close(writer)


async def test_a_file_is_put_aside_by_size_and_only_so_many_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(output_module, "LOOK_SECONDS", 0)
    file = tmp_path / "audit.log"
    sink = AuditSink(Output(file, rotation=output_module.Rotation(1_000, keep=2)))
    for number in range(20):
        sink.opened(record(str(number), path="x" * 400))
    sink.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["audit.log", "audit.log.1", "audit.log.2"]
    kept = [*lines(tmp_path / "audit.log.2"), *lines(tmp_path / "audit.log.1"), *lines(file)]
    assert [int(str(line["call_id"])) for line in kept] == list(range(20))[-len(kept) :]


@pytest.mark.parametrize(("sync", "calls"), [("never", 0), ("opened", 1), ("always", 2)])
async def test_lines_are_forced_to_the_disk_when_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync: output_module.Sync, calls: int
):
    forced: list[int] = []
    monkeypatch.setattr(output_module.os, "fdatasync", forced.append)
    sink = AuditSink(Output(tmp_path / "audit.log", sync=sync))
    assert sink.opened(record("c1"))
    sink.write(record("c2"))
    await until(lambda: sink.outbox.written == 2)
    sink.close()
    assert len(forced) == calls


async def test_a_disk_that_cannot_keep_a_line_stops_the_call_that_has_to_be_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def broken(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(output_module.os, "fdatasync", broken)
    sink = AuditSink(Output(tmp_path / "audit.log", sync="opened"), blocks=True)
    assert not sink.opened(record())
    sink.close()
