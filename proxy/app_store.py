"""The credential store as configured, for `serve` and for the `secrets` commands."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from proxy.credentials.cache import CacheLimits
from proxy.credentials.paths import PathTemplates
from proxy.credentials.store import Fields, NotFound, Store, Stored
from proxy.settings import Settings
from proxy.settings.store import AppRoleAuth, FileStore, JwtAuth, KubernetesAuth, TokenAuth, VaultAuth

if TYPE_CHECKING:
    from proxy.credentials.stores.vault_login import Login

T = TypeVar("T")


def open_store(settings: Settings) -> Store:
    """The store itself; nothing is read and nobody is asked until it is used."""
    configured = settings.store
    if isinstance(configured, FileStore):
        from proxy.credentials.stores.file import FileStore as Opened

        return Opened(configured.path, configured.key_file)
    from proxy.credentials.stores.vault import VaultStore

    return VaultStore(configured.address, _login(configured.auth), mount=configured.mount)


def paths_and_limits(settings: Settings) -> tuple[PathTemplates, CacheLimits]:
    """Where records stand, and how long they are kept."""
    configured = settings.store
    if isinstance(configured, FileStore):
        # the file is at hand and its changes are seen by a stat: reading it again costs next to nothing
        return PathTemplates(), CacheLimits(ttl=2.0)
    return PathTemplates.derived(configured.path), CacheLimits(ttl=configured.ttl, stale=configured.stale)


class MeasuredStore:
    """A store whose requests are counted and timed: `measured(store, operation, result, seconds)`."""

    def __init__(self, store: Store, name: str, measured: Callable[[str, str, str, float], None]) -> None:
        self._store = store
        self._name = name
        self._measured = measured

    async def start(self) -> None:
        await self._timed("start", self._store.start())

    async def read(self, path: str) -> Stored:
        return await self._timed("read", self._store.read(path))

    async def write(self, path: str, fields: Fields, expected_version: int | None) -> int:
        return await self._timed("write", self._store.write(path, fields, expected_version))

    async def delete(self, path: str) -> None:
        await self._timed("delete", self._store.delete(path))

    async def list(self, prefix: str) -> list[str]:
        return await self._timed("list", self._store.list(prefix))

    async def close(self) -> None:
        await self._store.close()

    async def _timed(self, operation: str, request: Awaitable[T]) -> T:
        begun = time.monotonic()
        result = "error"
        try:
            answer = await request
            result = "ok"
        except NotFound:
            result = "missing"
            raise
        finally:
            self._measured(self._name, operation, result, time.monotonic() - begun)
        return answer


def _login(auth: VaultAuth) -> Login:
    from proxy.credentials.stores import vault_login

    if isinstance(auth, TokenAuth):
        return vault_login.TokenLogin(auth.token_file)
    if isinstance(auth, AppRoleAuth):
        return vault_login.AppRoleLogin(auth.role_id, auth.secret_id_file, auth.mount)
    assert isinstance(auth, JwtAuth | KubernetesAuth)
    return vault_login.JwtLogin(auth.role, auth.token_file, auth.mount)
