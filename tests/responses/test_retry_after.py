"""Every form in which providers say how long to wait."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialect import Answer
from proxy.responses.retry_after import CAP, seconds, wait_of

NOW = 1_767_225_600.0  # 2026-01-01T00:00:00Z


@pytest.mark.parametrize(
    ("text", "unit", "wait"),
    [
        ("120", "auto", 120.0),
        (" 120 ", "auto", 120.0),
        ("1.5", "auto", 1.5),
        ("0", "seconds", 0.0),
        ("Thu, 01 Jan 2026 00:02:00 GMT", "auto", 120.0),
        ("Thursday, 01-Jan-26 00:02:00 GMT", "auto", 120.0),
        ("Thu Jan  1 00:02:00 2026", "auto", 120.0),
        ("Wed, 21 Oct 2099 07:28:00 GMT", "auto", CAP),
        ("Wed, 21 Oct 2015 07:28:00 GMT", "auto", 0.0),
        ("2026-01-01T00:02:00Z", "auto", 120.0),
        ("2026-01-01T00:02Z", "iso8601", 120.0),
        ("2026-01-01T01:02:00+01:00", "auto", 120.0),
        ("2026-01-01T00:02:00", "auto", 120.0),
        ("1767225720", "auto", 120.0),
        ("1767225720", "epoch_s", 120.0),
        ("1767225720000", "auto", 120.0),
        ("1767225720500", "epoch_ms", 120.5),
        ("1500", "ms", 1.5),
        ("6m0s", "go_duration", 360.0),
        ("20ms", "auto", 0.02),
        ("1h2m3.5s", "auto", 3_723.5),
        ("01:02:03", "clock", 3_723.0),
        ("50, 53", "auto", 53.0),
        (64.57, "float_seconds", 64.57),
        (3, "seconds", 3.0),
        ("99999999", "seconds", CAP),
    ],
)
def test_a_form_is_read(text: object, unit: str, wait: float) -> None:
    assert seconds(text, unit, NOW) == pytest.approx(wait)


@pytest.mark.parametrize(
    "text", ["", "soon", "-1", "1e9", "nan", "inf", True, None, [], {}, "1 2", "Wed, 99 Xxx 2015", "12:99x"]
)
def test_nonsense_is_absent(text: object) -> None:
    assert seconds(text, "auto", NOW) is None


def test_of_two_headers_the_longer_wait_counts() -> None:
    answer = Answer(429, [(b"Retry-After", b"5"), (b"retry-after", b"7"), (b"Retry-After", b"later")], b"")
    assert wait_of(answer, (), NOW) == 7.0


@given(st.text(max_size=60) | st.floats() | st.integers(), st.sampled_from(["auto", "ms", "epoch_s", "go_duration"]))
def test_a_wait_is_absent_or_within_bounds(value: object, unit: str) -> None:
    found = seconds(value, unit, NOW)
    assert found is None or 0 <= found <= CAP
