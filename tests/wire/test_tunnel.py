"""Bytes pass both ways unread, half-close included, and the relay's end is reported once."""

from __future__ import annotations

import time

import pytest

from proxy.wire import tunnel as module
from proxy.wire.tunnel import OpaqueRelay
from tests.wire.recording import RecordingTransport


class Relayed:
    def __init__(
        self, cap: int | None = None, idle: float = 60.0, early: bytes = b"", early_upstream: bytes = b""
    ) -> None:
        self.client, self.upstream = RecordingTransport(), RecordingTransport()
        self.ends: list[tuple[int, int, str]] = []
        self.relay = OpaqueRelay(
            (self.client, early),
            (self.upstream, early_upstream),
            lambda *end: self.ends.append(end),
            cap=cap,
            idle=idle,
        )


def test_bytes_pass_both_ways() -> None:
    both = Relayed()
    both.relay.client.data_received(b"up")
    both.relay.upstream.data_received(b"down")
    assert (bytes(both.upstream.written), bytes(both.client.written)) == (b"up", b"down")


def test_bytes_that_were_read_before_come_first() -> None:
    both = Relayed(early=b"hello ", early_upstream=b"welcome ")
    both.relay.client.data_received(b"up")
    assert (bytes(both.upstream.written), bytes(both.client.written)) == (b"hello up", b"welcome ")


def test_one_side_may_end_before_the_other() -> None:
    both = Relayed()
    assert both.relay.client.eof_received()
    assert both.upstream.wrote_eof
    both.relay.upstream.data_received(b"answer")
    assert bytes(both.client.written) == b"answer"
    both.relay.upstream.eof_received()
    assert both.ends == [(0, 6, "closed")]
    assert both.client.closed
    assert both.upstream.closed


@pytest.mark.parametrize("exc", [None, ConnectionResetError()])
def test_a_side_that_is_lost_without_an_end_resets_the_other(exc: Exception | None) -> None:
    both = Relayed()
    both.relay.client.data_received(b"up")
    both.relay.upstream.connection_lost(exc)
    assert both.ends == [(2, 0, "reset")]
    assert (both.client.aborted, both.client.closed) == (True, False)
    assert not both.upstream.aborted


def test_the_end_is_reported_once() -> None:
    both = Relayed()
    both.relay.client.connection_lost(None)
    both.relay.upstream.connection_lost(None)
    both.relay.cut()
    assert len(both.ends) == 1


def test_a_slow_reader_stops_the_other_sides_reading() -> None:
    both = Relayed()
    both.relay.client.pause_writing()
    assert both.upstream.paused
    both.relay.client.resume_writing()
    assert not both.upstream.paused


def test_the_byte_cap_counts_both_directions_and_cuts() -> None:
    both = Relayed(cap=10)
    both.relay.client.data_received(b"12345")
    both.relay.upstream.data_received(b"12345")
    assert both.ends == []
    both.relay.upstream.data_received(b"6")
    assert both.ends == [(5, 6, "cap")]
    assert both.client.aborted
    assert both.upstream.aborted


def test_a_cap_that_the_first_bytes_reach_cuts_at_once() -> None:
    assert Relayed(cap=1, early=b"12").ends == [(2, 0, "cap")]


def test_a_silent_relay_is_cut_in_time() -> None:
    both = Relayed(idle=60.0)
    both.relay.tick(time.monotonic() + 59)
    assert both.ends == []
    both.relay.tick(time.monotonic() + 61)
    assert both.ends == [(0, 0, "idle")]


def test_a_side_that_left_while_its_reading_is_paused_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "peer_has_left", lambda _: True)
    both = Relayed()
    both.relay.tick(time.monotonic())
    assert both.ends == []
    both.relay.client.pause_writing()
    both.relay.tick(time.monotonic())
    assert both.ends == [(0, 0, "reset")]


@pytest.mark.parametrize("gone", ["client", "upstream"])
def test_a_side_that_ended_before_the_relay_began_cuts_it(gone: str) -> None:
    client, upstream = RecordingTransport(), RecordingTransport()
    (client if gone == "client" else upstream).close()
    ends: list[tuple[int, int, str]] = []
    OpaqueRelay((client, b"early"), (upstream, b""), lambda *end: ends.append(end))
    assert ends == [(5, 0, "reset")]
    assert client.is_closing()
    assert upstream.is_closing()
