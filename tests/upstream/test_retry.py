"""The table of repeats, row by row."""

from __future__ import annotations

import pytest

from proxy.upstream.retry import Attempted, RetryPolicy, wait_before_next

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
