"""A provider's status, as one of the six kinds."""

from __future__ import annotations

import pytest

from proxy.errors import KINDS
from proxy.responses.kinds import blame_of, kind_of


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (100, None),
        (200, None),
        (304, None),
        (399, None),
        (400, "bad_input"),
        (401, "auth"),
        (402, "permission"),
        (403, "permission"),
        (404, "not_found"),
        (408, "unavailable"),
        (409, "bad_input"),
        (410, "not_found"),
        (422, "bad_input"),
        (429, "rate_limit"),
        (451, "permission"),
        (499, "bad_input"),
        (500, "unavailable"),
        (503, "unavailable"),
        (599, "unavailable"),
    ],
)
def test_the_kind_of_a_status(status: int, kind: str | None) -> None:
    assert kind_of(status) == kind


def test_every_error_status_has_a_kind_and_every_kind_somebody_to_blame() -> None:
    assert {kind_of(status) for status in range(400, 600)} == set(KINDS)
    assert all(blame_of(kind) != "none" for kind in KINDS)
