"""The credential store as configured, for `serve` and for the `secrets` commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.credentials.cache import CacheLimits
from proxy.credentials.paths import PathTemplates
from proxy.credentials.store import Store
from proxy.settings import Settings
from proxy.settings.store import AppRoleAuth, FileStore, JwtAuth, KubernetesAuth, TokenAuth, VaultAuth

if TYPE_CHECKING:
    from proxy.credentials.stores.vault_login import Login


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


def _login(auth: VaultAuth) -> Login:
    from proxy.credentials.stores import vault_login

    if isinstance(auth, TokenAuth):
        return vault_login.TokenLogin(auth.token_file)
    if isinstance(auth, AppRoleAuth):
        return vault_login.AppRoleLogin(auth.role_id, auth.secret_id_file, auth.mount)
    assert isinstance(auth, JwtAuth | KubernetesAuth)
    return vault_login.JwtLogin(auth.role, auth.token_file, auth.mount)
