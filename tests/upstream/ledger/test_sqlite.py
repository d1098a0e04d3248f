"""What is the embedded ledger's own: its file. The rest is in tests/contracts/test_ledger.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.upstream.ledger.opening import sqlite_ledger
from proxy.upstream.ledger.rows import Row
from proxy.upstream.ledger.sqlite import LEDGER_FILE

ROW = Row("id", "acme", "print", "pending", "this", "call", 10.0, 100.0)


async def test_the_file_is_nobody_elses(tmp_path: Path) -> None:
    ledger = sqlite_ledger(tmp_path / "state", lambda: b"k" * 32)
    assert await ledger.enter(ROW) is None
    await ledger.close()
    assert (tmp_path / "state" / LEDGER_FILE).stat().st_mode & 0o077 == 0


async def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ledger = sqlite_ledger(tmp_path / "file", lambda: b"k" * 32)
    with pytest.raises(OSError, match="file"):
        await ledger.enter(ROW)
    await ledger.close()
