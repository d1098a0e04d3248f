"""Replies of token endpoints: every form of expiry, every way of refusing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from signers.grants.model import Dialect, TokenRefused, TokenReply
from signers.token_reply import LONGEST, SHORTEST, lifetime, moment, read_reply, skew

NOW = 1_790_000_000.0
TOKEN = "access-token-value"


def reply(document: Any, status: int = 200, **headers: str) -> TokenReply:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return TokenReply(status, {"content-type": "application/json", **headers}, body, NOW)


def expires_in(dialect: Dialect | None = None, **fields: Any) -> float | None:
    issued = read_reply(reply({"access_token": TOKEN, **fields}), dialect or Dialect(), NOW)
    return None if issued.expires_at is None else round(issued.expires_at - NOW, 3)


@pytest.mark.parametrize(
    ("raw", "seconds"),
    [
        (3600, 3600), ("3600", 3600), (" 3600 ", 3600), ("3600.0", 3600), (3600.5, 3600.5), ("1:00:00", 3600),
        ("0:05:30", 330), (1, 1), (0.2, SHORTEST), (1e20, LONGEST), ("1" * 40, LONGEST), (10**400, None), (None, None),
        (0, None), (-1, None), ("never", None), ("", None), (True, None), (False, None), ([], None), ({}, None),
        ("NaN", None), ("Infinity", None), ("0:00:00", None), ("1:99:00", None), ("9" * 5000, None),
    ],
)  # fmt: skip
def test_every_form_of_expires_in(raw: Any, seconds: float | None) -> None:
    """B51."""
    assert lifetime(raw) == seconds
    assert expires_in(expires_in=raw) == (3600 if seconds is None else round(seconds, 3))


def test_absent_expiry_is_the_dialects_assumed_lifetime() -> None:
    assert expires_in() == 3600
    assert expires_in(Dialect(lifetime=1800)) == 1800
    assert expires_in(Dialect(lifetime=None)) is None
    assert expires_in(Dialect(lifetime=None), expires_in=60) == 60


def test_milliseconds_where_the_dialect_says_so() -> None:
    assert expires_in(Dialect(expires_in_unit="ms"), expires_in=90_000) == 90


@pytest.mark.parametrize(
    "fields",
    [
        {"expires_on": str(int(NOW) + 500)},
        {"expires_on": int(NOW) + 500},
        {"expires_at": int(NOW) + 500},
        {"expires_at": (int(NOW) + 500) * 1000},
        {"expires_at": "2026-09-21T14:21:40Z"},
        {"expires_at": "2026-09-21T14:21:40+00:00"},
        {"expires_at": "2026-09-21T16:21:40+02:00"},
        {"expires_at": "2026-09-21T14:21:40"},
        {"expires_in": "soon", "expires_on": int(NOW) + 500},
        {"expires_in": 500, "ext_expires_in": 9000, "expires_on": int(NOW) + 9000},
    ],
)
def test_an_absolute_expiry_in_any_form(fields: dict[str, Any]) -> None:
    assert expires_in(**fields) == 500


def test_an_expiry_in_the_past_is_not_believed() -> None:
    assert expires_in(expires_at=int(NOW) - 5) == 3600


def test_a_jwts_own_expiry_is_the_last_resort() -> None:
    token = jwt.encode({"exp": int(NOW) + 777}, "k" * 32, "HS256")
    assert expires_in(access_token=token) == 777
    assert expires_in(access_token=token, expires_in=60) == 60
    assert expires_in(access_token="a.b.c") == 3600


@given(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=30)))
def test_whatever_stands_in_expires_in_the_lifetime_is_within_bounds(raw: Any) -> None:
    seconds = lifetime(raw)
    assert seconds is None or SHORTEST <= seconds <= LONGEST
    end = moment(raw)
    assert end is None or end == end


@given(st.binary(max_size=200), st.integers(200, 599))
def test_no_body_breaks_the_reader(body: bytes, status: int) -> None:
    try:
        read_reply(TokenReply(status, {}, body, NOW), Dialect(), NOW)
    except TokenRefused:
        pass


@pytest.mark.parametrize(
    ("status", "document", "outcome", "error"),
    [
        (400, {"error": "invalid_grant"}, "rejected", "invalid_grant"),
        (401, {"error": "invalid_client"}, "rejected", "invalid_client"),
        (400, {"error": "unauthorized_client"}, "rejected", "unauthorized_client"),
        (200, {"error": "invalid_grant"}, "rejected", "invalid_grant"),
        (503, {"error": "invalid_grant"}, "down", "invalid_grant"),
        (429, {"error": "invalid_grant"}, "throttled", "invalid_grant"),
        (400, {"error": "slow_down"}, "throttled", "slow_down"),
        (400, {"error": "invalid_request"}, "down", "invalid_request"),
        (400, {"error": "invalid_scope"}, "down", "invalid_scope"),
        (400, {"error": "<script>alert(1)</script>"}, "down", "error"),
        (400, {"error": {"code": "bad", "message": "x"}}, "down", "bad"),
        (500, {}, "down", "status 500"),
        (401, {}, "down", "status 401"),
        (403, b"<html>", "down", "status 403"),
        (302, b"", "down", "status 302"),
        (200, b"", "unknown", "unreadable_reply"),
        (200, b"[]", "unknown", "unreadable_reply"),
        (200, {}, "unknown", "no_access_token"),
        (200, {"access_token": ""}, "unknown", "no_access_token"),
        (200, {"access_token": 7}, "unknown", "no_access_token"),
        (200, {"access_token": "with\r\nnewline"}, "unknown", "no_access_token"),
        (200, {"access_token": "x" * 20_000}, "unknown", "no_access_token"),
    ],
)
def test_the_four_ways_of_having_no_token(status: int, document: Any, outcome: str, error: str) -> None:
    """B55."""
    with pytest.raises(TokenRefused) as refused:
        read_reply(reply(document, status), Dialect(), NOW)
    assert (refused.value.outcome, refused.value.error) == (outcome, error)


def test_a_providers_words_become_those_of_the_rfc() -> None:
    slack = Dialect(success=("ok", True), errors={"invalid_refresh_token": "invalid_grant"})
    assert read_reply(reply({"ok": True, "access_token": TOKEN}), slack, NOW).access_token.reveal() == TOKEN
    with pytest.raises(TokenRefused) as refused:
        read_reply(reply({"ok": False, "error": "invalid_refresh_token"}), slack, NOW)
    assert refused.value.outcome == "rejected"


def test_a_variant_is_looked_for_where_it_stands() -> None:
    dialect = Dialect(variants={"user": {"access_token": ("authed_user.access_token", "access_token")}})
    document = {"access_token": "the-bots", "authed_user": {"access_token": "the-users"}}
    assert read_reply(reply(document), dialect, NOW, "user").access_token.reveal() == "the-users"
    assert read_reply(reply(document), dialect, NOW).access_token.reveal() == "the-bots"


def test_form_encoded_replies_are_read() -> None:
    body = b"access_token=abc&expires_in=28800&scope=repo%2Cgist&token_type=bearer"
    issued = read_reply(
        reply(body, **{"content-type": "application/x-www-form-urlencoded; charset=utf-8"}), Dialect(), NOW
    )
    assert (issued.access_token.reveal(), issued.scopes) == ("abc", ("repo", "gist"))


def test_retry_after_in_both_forms_and_bounded() -> None:
    for raw, seconds in (("34", 34), ("0", 1), ("999999", 3600), ("Mon, 21 Sep 2026 14:14:20 GMT", 60), ("x", None)):
        with pytest.raises(TokenRefused) as refused:
            read_reply(reply({}, 429, **{"retry-after": raw}), Dialect(), NOW)
        assert refused.value.retry_after == seconds


def test_the_clocks_difference_is_estimated_from_the_date() -> None:
    assert skew(reply({}, date="Mon, 21 Sep 2026 14:14:20 GMT")) == 60
    assert skew(reply({}, date="yesterday")) is None
    assert skew(reply({})) is None


def test_nothing_of_a_reply_shows_in_a_refusal() -> None:
    with pytest.raises(TokenRefused) as refused:
        read_reply(
            reply({"error": "invalid_grant", "error_description": "token rt-secret is spent"}, 400), Dialect(), NOW
        )
    assert "rt-secret" not in f"{refused.value} {refused.value!r}"
    assert TOKEN not in repr(reply({"access_token": TOKEN}))


def oauth_examples() -> list[Any]:
    here = Path(__file__).resolve().parents[2].parent / "shared" / "vectors"
    file = Path(os.environ.get("SLUICEGATE_VECTORS", here)) / "oauth-examples" / "oauthlib_token_responses.json"
    if not file.exists():
        return [pytest.param("", None, marks=pytest.mark.skip(reason="published vectors are not here"))]
    cases = json.loads(file.read_text())["cases"]
    return [pytest.param(c["name"], c["value"], id=c["name"]) for c in cases if "body" not in c["name"]]


@pytest.mark.parametrize(("name", "value"), oauth_examples())
def test_published_replies(name: str, value: Any) -> None:
    text = value if isinstance(value, str) else json.dumps(value)
    kind = "application/x-www-form-urlencoded" if name.startswith("url_encoded") else "application/json"
    given = reply(text.encode(), 400 if "error" in name else 200, **{"content-type": kind})
    if "error" in name or "notoken" in name:
        with pytest.raises(TokenRefused):
            read_reply(given, Dialect(), NOW)
        return
    issued = read_reply(given, Dialect(), NOW)
    assert issued.access_token.reveal() == "2YotnFZFEjr1zCsicMWpAA"
    assert issued.refresh_token is not None
    assert issued.expires_at == NOW + 3600
    assert issued.scopes == (None if "noscope" in name or "scope" not in text else ("abc", "def"))
