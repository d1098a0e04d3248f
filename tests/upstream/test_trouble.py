"""Breakers and budgets by destination."""

from __future__ import annotations

from proxy.model import Destination
from proxy.upstream.trouble import BUDGET, FAILURES, OPEN_SECONDS, PROBE_SECONDS, Trouble

HERE = ("acme", Destination("https", "api.test", 443))
THERE = Destination("https", "other.test", 443)


def opened() -> Trouble:
    trouble = Trouble()
    for _ in range(FAILURES):
        assert trouble.refused_for(HERE, 0.0) is None
        trouble.failed(HERE, 0.0)
    return trouble


def test_failures_in_a_row_close_the_way_for_a_time() -> None:
    trouble = opened()
    assert trouble.refused_for(HERE, 1.0) == OPEN_SECONDS - 1.0
    assert trouble.refused_for(THERE, 1.0) is None


def test_one_probe_goes_after_that_time_and_others_wait_for_it() -> None:
    trouble = opened()
    assert trouble.refused_for(HERE, OPEN_SECONDS) is None
    assert trouble.refused_for(HERE, OPEN_SECONDS) is not None
    assert trouble.refused_for(HERE, OPEN_SECONDS + PROBE_SECONDS) is None


def test_a_probe_that_succeeds_opens_the_way() -> None:
    trouble = opened()
    trouble.refused_for(HERE, OPEN_SECONDS)
    trouble.answered(HERE)
    assert trouble.refused_for(HERE, OPEN_SECONDS) is None
    assert not trouble.known


def test_a_probe_that_fails_closes_it_for_longer() -> None:
    trouble = opened()
    trouble.refused_for(HERE, OPEN_SECONDS)
    trouble.failed(HERE, OPEN_SECONDS)
    assert trouble.refused_for(HERE, OPEN_SECONDS + OPEN_SECONDS) == OPEN_SECONDS


def test_an_answer_in_between_starts_the_count_anew() -> None:
    trouble = Trouble()
    for _ in range(3):
        for _ in range(FAILURES - 1):
            trouble.failed(HERE, 0.0)
        trouble.answered(HERE)
    assert trouble.refused_for(HERE, 0.0) is None


def test_repeats_are_limited_and_come_back_one_a_second() -> None:
    trouble = Trouble()
    assert all(trouble.may_repeat(HERE, 0.0) for _ in range(int(BUDGET)))
    assert not trouble.may_repeat(HERE, 0.0)
    assert trouble.may_repeat(HERE, 1.0)
    assert not trouble.may_repeat(HERE, 1.0)


def test_a_probe_is_not_repeated() -> None:
    trouble = opened()
    trouble.refused_for(HERE, OPEN_SECONDS)
    assert not trouble.may_repeat(HERE, OPEN_SECONDS)


def test_what_is_shut_is_told_with_the_time_that_is_left() -> None:
    trouble = opened()
    assert list(trouble.shut_for(1.0)) == [(HERE, OPEN_SECONDS - 1.0)]
    assert list(trouble.shut_for(OPEN_SECONDS)) == []
