"""The stores on which the contract suites run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.credentials.store import Store
from tests.contracts.stores import Filled, FilledDirectory, make_store
from tests.openbao import bao, openbao
from tests.postgres import postgres_server, postgres_url

__all__ = ["bao", "openbao", "postgres_server", "postgres_url"]


@pytest.fixture(params=["file", "vault"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened = make_store(request.param, request, tmp_path)
    await opened.start()
    yield opened
    await opened.close()


@pytest.fixture(params=["file", "vault", "vault-kv1", "directory"])
async def filled(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Filled]:
    if request.param == "directory":
        opened: Filled = FilledDirectory(tmp_path)
    else:
        opened = Filled(make_store(request.param, request, tmp_path))
    await opened.store.start()
    yield opened
    await opened.store.close()
