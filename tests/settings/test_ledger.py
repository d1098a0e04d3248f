"""`ledger:` where a database is named: no password in the file, and no way to another machine without TLS."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from proxy.settings.ledger import PostgresLedger


@pytest.mark.parametrize(
    ("url", "taken"),
    [
        ("postgresql://me@127.0.0.1/db", "postgresql://me@127.0.0.1/db"),
        ("postgresql://me@/db?host=/run/postgresql", "postgresql://me@/db?host=/run/postgresql"),
        ("postgresql://me@db.example:6432/db", "postgresql://me@db.example:6432/db?sslmode=verify-full"),
        ("postgresql://me@db.example/db?a=b", "postgresql://me@db.example/db?a=b&sslmode=verify-full"),
        ("postgresql://me@db.example/db?sslmode=require", "postgresql://me@db.example/db?sslmode=require"),
    ],
)
def test_another_machine_is_reached_by_tls(url: str, taken: str) -> None:
    assert PostgresLedger(kind="postgres", url=url).url == taken


@pytest.mark.parametrize(
    "url",
    [
        "mysql://me@h/db",
        "postgresql://h/db",
        "postgresql://me@h",
        "postgresql://me@/db",
        "postgresql://me:word@127.0.0.1/db",
        "postgresql://me@127.0.0.1/db?password=word",
        "postgresql://me@db.example/db?sslmode=prefer",
        "postgresql://me@db.example/db?sslmode=disable",
    ],
)
def test_what_is_incomplete_or_unsafe_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ValidationError) as refused:
        PostgresLedger(kind="postgres", url=url)
    assert "word@" not in str(refused.value)
