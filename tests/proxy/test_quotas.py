"""Limits: whoever keeps within them is never refused, the wait that is told is true, and callers are apart."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.terms import Limit
from proxy import quotas as module
from proxy.errors import GatewayError
from proxy.gcra import taken, wait
from proxy.model import Caller
from proxy.quotas import Quotas

BOT, OTHER = Caller("acme", "bot"), Caller("globex", "bot")


def limit(kind="requests", amount=3, every=60, by=("agent", "tenant")):
    return Limit("p/r", kind, amount, every, by)


def refused(quotas, limits, caller=BOT, now=0.0, provider="slack"):
    """Seconds to wait, 0 when the call is admitted."""
    try:
        quotas.admit(limits, caller, provider, now)
    except GatewayError as error:
        assert (error.code.name, error.status) == ("limit_exceeded", 429)
        return error.retry_after
    return 0


def test_a_burst_up_to_the_amount_passes_and_then_one_for_each_share_of_the_time():
    quotas, limits = Quotas(), [limit()]
    assert [refused(quotas, limits) for _ in range(4)] == [0, 0, 0, 20]
    assert refused(quotas, limits, now=19.9) == 1
    assert refused(quotas, limits, now=20.0) == 0
    assert refused(quotas, limits, now=20.0) == 20


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 50), st.integers(1, 3600), st.lists(st.floats(0, 100), min_size=1, max_size=40))
def test_the_wait_that_is_told_is_true_and_not_longer_than_needed(amount, every, gaps):
    quotas, limits, now = Quotas(), [limit(amount=amount, every=every)], 0.0
    for gap in gaps:
        now += gap
        seconds = refused(quotas, limits, now=now)
        if seconds:
            assert seconds == 1 or refused(quotas, limits, now=now + seconds - 1.001) > 0
            now += seconds
            assert refused(quotas, limits, now=now) == 0


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 20), st.integers(1, 60), st.lists(st.floats(0, 20), min_size=1, max_size=60))
def test_no_more_than_twice_the_amount_passes_in_any_interval(amount, every, gaps):
    arrival, now, passed = 0.0, 0.0, []
    for gap in gaps:
        now += gap
        if not wait(arrival, now, 1, amount, every):
            arrival = taken(arrival, now, 1, amount, every)
            passed.append(now)
    for start in passed:
        assert len([at for at in passed if start <= at < start + every]) <= 2 * amount


def test_one_callers_excess_is_its_own():
    quotas, limits = Quotas(), [limit(amount=1)]
    assert [refused(quotas, limits, BOT), refused(quotas, limits, BOT)] == [0, 60]
    assert refused(quotas, limits, OTHER) == 0
    assert refused(quotas, [limit(amount=1, by=("provider",))], OTHER, provider="github") == 0


def test_a_refused_call_counts_for_no_limit():
    quotas = Quotas()
    narrow, wide = limit(amount=1), limit(amount=2, by=("tenant",))
    assert [refused(quotas, [narrow, wide]) for _ in range(5)] == [0, 60, 60, 60, 60]
    assert refused(quotas, [wide]) == 0


def test_calls_at_once_are_let_in_as_others_end():
    quotas, limits = Quotas(), [limit("concurrent", 2, 0)]
    held = [quotas.admit(limits, BOT, "slack", 0.0) for _ in range(2)]
    assert refused(quotas, limits) == 1
    quotas.release(held[0], 0, 0.0)
    assert refused(quotas, limits) == 0
    quotas.release(held[1], 0, 0.0)


def test_bytes_are_paid_for_at_the_end_of_a_call():
    quotas, limits = Quotas(), [limit("bytes", 1_000, 10)]
    held = quotas.admit(limits, BOT, "slack", 0.0)
    quotas.release(held, 3_000, 0.0)
    assert refused(quotas, limits) == 21
    assert refused(quotas, limits, now=20.02) == 0


def test_limits_of_the_configuration_hold_for_every_call():
    assert [refused(quotas, ()) for quotas in [Quotas([limit(amount=1)])] for _ in range(2)] == [0, 60]


def test_counters_that_say_nothing_any_more_are_dropped(monkeypatch):
    monkeypatch.setattr(module, "PRUNED_ABOVE", 10)
    quotas = Quotas()
    for number in range(100):
        quotas.admit([limit()], Caller("acme", f"bot-{number}"), "slack", number * 100.0)
    assert len(quotas._arrivals) <= 21


@pytest.mark.parametrize("cost", [1, 5])
def test_the_whole_allowance_can_be_used(cost):
    arrival = 0.0
    for _ in range(10 // cost):
        assert wait(arrival, 0.0, cost, 10, 0.1) == 0
        arrival = taken(arrival, 0.0, cost, 10, 0.1)
    assert wait(arrival, 0.0, cost, 10, 0.1) > 0
