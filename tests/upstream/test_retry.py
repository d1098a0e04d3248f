"""The table of repeats, row by row."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import Kind
from proxy.upstream.retry import Attempted, Phase, RetryPolicy, wait_before_next

POLICY = RetryPolicy(3, 10.0)
BASE = Attempted("unavailable", "answered", safe=True, replayable=True)


@pytest.mark.parametrize(
    ("seen", "again"),
    [
        (BASE, True),
        (BASE._replace(kind="rate_limit"), True),
        (BASE._replace(kind="bad_input"), False),
        (BASE._replace(kind="auth"), False),
        (BASE._replace(kind="permission"), False),
        (BASE._replace(kind="not_found"), False),
        (BASE._replace(safe=False), False),
        (BASE._replace(replayable=False), False),
        (BASE._replace(repeatable=False), False),
        (BASE._replace(phase="unanswered"), True),
        (BASE._replace(phase="unanswered", safe=False), False),
        (BASE._replace(phase="unsent", safe=False), True),
        (BASE._replace(phase="unsent", replayable=False), False),
        (BASE._replace(phase="slow"), False),
        (BASE._replace(phase="relayed"), False),
        (BASE._replace(made=2), True),
        (BASE._replace(made=3), False),
        (BASE._replace(wait=9.0), True),
        (BASE._replace(wait=11.0), False),
        (BASE._replace(wait=6.0, waited=5.0), False),
        (BASE._replace(wait=2.0, left=1.0), False),
        (BASE._replace(wait=2.0, left=3.0), True),
        (BASE._replace(wait=0.0), True),
    ],
)
def test_a_row_of_the_table(seen: Attempted, again: bool) -> None:
    assert (wait_before_next(POLICY, seen, 0.5) is not None) is again


def test_a_wait_that_was_asked_for_is_kept() -> None:
    assert wait_before_next(POLICY, BASE._replace(wait=4.0), 0.9) == 4.0


@pytest.mark.parametrize(("made", "bound"), [(1, 0.25), (2, 0.5)])
def test_waits_of_our_own_are_drawn_from_a_doubling_range(made: int, bound: float) -> None:
    assert wait_before_next(POLICY, BASE._replace(made=made), 0.0) == 0.0
    assert wait_before_next(POLICY, BASE._replace(made=made), 0.999) == pytest.approx(bound, rel=0.01)


def test_one_attempt_means_no_repeats() -> None:
    assert wait_before_next(RetryPolicy(1, 10.0), BASE, 0.0) is None


seconds = st.floats(0.0, 100.0)
attempted = st.builds(
    Attempted, kind=st.sampled_from(get_args(Kind)), phase=st.sampled_from(get_args(Phase)), safe=st.booleans(),
    replayable=st.booleans(), repeatable=st.booleans(), wait=st.none() | seconds, made=st.integers(1, 9),
    waited=seconds, left=st.none() | seconds,
)  # fmt: skip
policies = st.builds(RetryPolicy, attempts=st.integers(1, 9), max_wait=seconds)
draws = st.floats(0.0, 1.0, exclude_max=True)


@given(policies, attempted.filter(lambda seen: not seen.safe and seen.phase != "unsent"), draws)
def test_a_write_that_may_have_arrived_is_never_sent_a_second_time(
    policy: RetryPolicy, seen: Attempted, draw: float
) -> None:
    assert wait_before_next(policy, seen, draw) is None


@given(policies, attempted, draws)
def test_a_repeat_keeps_to_every_bound(policy: RetryPolicy, seen: Attempted, draw: float) -> None:
    wait = wait_before_next(policy, seen, draw)
    if wait is None:
        return
    assert seen.made < policy.attempts
    assert seen.replayable
    assert seen.repeatable
    assert seen.phase in ("unsent", "unanswered", "answered")
    assert seen.kind in ("rate_limit", "unavailable")
    assert wait >= (seen.wait or 0.0)
    assert wait + seen.waited <= policy.max_wait
    assert seen.left is None or wait < seen.left
