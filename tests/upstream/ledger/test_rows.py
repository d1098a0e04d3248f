"""What an earlier row means for a call."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.errors import GatewayError
from proxy.upstream.ledger.rows import Reply, Row, Scope, after_failure, fingerprint, row_id, verdict

REPLY = Reply(200, [(b"X-A", b"1")], b"done")
ROW = Row("id", "acme", "print", "pending", "this", "call", 0.0, 100.0)


def code(row: Row, print_: str = "print", instance: str = "this") -> str:
    with pytest.raises(GatewayError) as caught:
        verdict(row, print_, instance, 1.0)
    return caught.value.code.name


def test_a_running_call_is_in_flight() -> None:
    assert code(ROW) == "idempotency_in_flight"


def test_a_call_of_a_process_that_died_has_an_unknown_outcome() -> None:
    assert code(ROW, instance="next") == "outcome_unknown"


def test_an_unknown_outcome_stays_unknown() -> None:
    assert code(replace(ROW, state="unknown")) == "outcome_unknown"


def test_a_done_call_is_replayed() -> None:
    assert verdict(replace(ROW, state="done", reply=REPLY), "print", "next", 1.0) == REPLY


def test_a_done_call_without_its_reply_is_said_to_be_done() -> None:
    assert code(replace(ROW, state="done", reply=Reply(200, [], b"", whole=False))) == "outcome_unknown"


@pytest.mark.parametrize("state", ["pending", "done", "unknown"])
def test_another_call_under_the_key_is_refused(state: str) -> None:
    assert code(replace(ROW, state=state, reply=REPLY), print_="other") == "idempotency_mismatch"


def test_an_expired_row_says_nothing() -> None:
    assert verdict(replace(ROW, expires=1.0), "print", "this", 1.0) is None


@pytest.mark.parametrize(
    ("kind", "sent", "left"),
    [
        ("unavailable", True, "unknown"),
        ("unavailable", False, None),
        ("rate_limit", True, None),
        ("bad_input", True, None),
        ("auth", True, None),
    ],
)
def test_what_a_failure_leaves(kind, sent: bool, left: str | None) -> None:
    assert after_failure(kind, sent) == left


def test_a_key_belongs_to_one_caller_under_one_rule() -> None:
    scope = Scope("acme", "ann", "bot", "rule")
    others = [scope._replace(**{name: "other"}) for name in Scope._fields]
    ids = {row_id(b"s", one, b"key") for one in (scope, *others)} | {row_id(b"s", scope, b"key2")}
    assert len(ids) == 6
    assert all("key" not in one for one in ids)


def test_a_fingerprint_tells_calls_apart() -> None:
    base = ("POST", "https://a", b"/x", b"body")
    variants = [("PUT", *base[1:]), ("POST", "https://b", b"/x", b"body"), ("POST", "https://a", b"/xb", b"ody")]
    assert len({fingerprint(*one) for one in (base, *variants)}) == 4
