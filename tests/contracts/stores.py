"""Stores as the contract suites use them: with a way to put records in and take them out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.credentials.store import Store
from proxy.credentials.stores.directory import DirectoryStore
from proxy.credentials.stores.file import FileStore
from proxy.credentials.stores.vault import VaultStore
from proxy.credentials.stores.vault_login import TokenLogin
from tests.openbao import OpenBao


class Filled:
    """A store, and the way its records get into it and out of it: here by its own writes."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def put(self, path: str, fields: dict[str, Any]) -> None:
        await self.store.write(path, fields, None)

    async def remove(self, path: str) -> None:
        await self.store.delete(path)


class FilledDirectory(Filled):
    """The same for files that something else writes."""

    def __init__(self, root: Path) -> None:
        super().__init__(DirectoryStore(root))
        self._root = root

    async def put(self, path: str, fields: dict[str, Any]) -> None:
        file = self._root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(0o600)
        file.write_text(json.dumps(fields))

    async def remove(self, path: str) -> None:
        (self._root / path).unlink()


def make_store(kind: str, request: pytest.FixtureRequest, folder: Path) -> Store:
    """A store of `kind`, not started; "vault" and "vault-kv1" ask for the `bao` fixture."""
    if kind == "file":
        return FileStore(folder / "secrets.enc", folder / "secrets.key")
    server: OpenBao = request.getfixturevalue("bao")
    token_file = folder / "token"
    token_file.touch(0o600)
    token_file.write_text(server.token + "\n")
    if kind == "vault-kv1":
        mount = f"{server.mount}-v1"
        server.ask("POST", f"sys/mounts/{mount}", {"type": "kv", "options": {"version": "1"}})
        return VaultStore([server.address], TokenLogin(token_file), mount=mount, kv=1)
    return VaultStore([server.address], TokenLogin(token_file), mount=server.mount)
