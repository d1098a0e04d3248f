"""Makes the configured ledger, for `serve` and for `sluicegate ledger`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from proxy.upstream.ledger.sqlite import LEDGER_FILE, SqliteFile, SqliteLedger
from proxy.upstream.ledger.storage import Ledger


def sqlite_ledger(folder: Path, key: Callable[[], bytes]) -> Ledger:
    return SqliteLedger(lambda: SqliteFile(folder / LEDGER_FILE, key()))


def postgres_ledger(url: str, password_file: Path | None, instance: str, key: Callable[[], bytes]) -> Ledger:
    from proxy.upstream.ledger.postgres import Database, PostgresLedger  # asyncpg: only where it is used

    def password() -> str | None:
        return password_file.read_text().strip() if password_file is not None else None

    return PostgresLedger(Database(url, password), instance, key)
