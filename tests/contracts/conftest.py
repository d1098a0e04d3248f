"""The stores on which the contract suite runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.credentials.store import Store
from proxy.credentials.stores.file import FileStore
from proxy.credentials.stores.vault import VaultStore
from proxy.credentials.stores.vault_login import TokenLogin
from tests.openbao import OpenBao, bao, openbao

__all__ = ["bao", "openbao"]


@pytest.fixture(params=["file", "vault"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened: Store
    if request.param == "file":
        opened = FileStore(tmp_path / "secrets.enc", tmp_path / "secrets.key")
    else:
        server: OpenBao = request.getfixturevalue("bao")
        token_file = tmp_path / "token"
        token_file.touch(0o600)
        token_file.write_text(server.token + "\n")
        opened = VaultStore([server.address], TokenLogin(token_file), mount=server.mount)
    await opened.start()
    yield opened
    await opened.close()
