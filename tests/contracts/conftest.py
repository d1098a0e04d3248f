"""The stores on which the contract suite runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.credentials.store import Store
from proxy.credentials.stores.file import FileStore


@pytest.fixture(params=["file"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened = FileStore(tmp_path / "secrets.enc", tmp_path / "secrets.key")
    await opened.start()
    yield opened
    await opened.close()
