"""Makes the configured store, for `serve` and for the commands that keep records."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from proxy.credentials.cache import CacheLimits
from proxy.credentials.paths import PathTemplates
from proxy.settings.store import AppRoleAuth, FileStore, Store, TokenAuth, VaultAuth, VaultStore

if TYPE_CHECKING:
    from proxy.credentials import store as credentials
    from proxy.credentials.app_record import TokenFacts
    from proxy.credentials.issuing import Issuing, OnRenewal
    from proxy.credentials.stores.vault_login import Login
    from proxy.settings import Settings
    from proxy.upstream.resolver import Resolver
    from proxy.upstream.token_endpoint import TokenEndpoints

_FILE_TTL: Final = 2.0


def open_store(settings: Store) -> credentials.Store:
    """The store that the settings describe, not yet asked for anything."""
    return _vault(settings) if isinstance(settings, VaultStore) else _file(settings)


def paths_and_limits(settings: Store) -> tuple[PathTemplates, CacheLimits]:
    """Where records stand in that store, and how long they are kept in memory."""
    if isinstance(settings, VaultStore):
        return PathTemplates.derived(settings.path), CacheLimits(ttl=settings.ttl, stale=settings.stale)
    # The file is at hand and its changes are seen by a stat: reading it again costs next to nothing.
    return PathTemplates(), CacheLimits(ttl=_FILE_TTL)


def open_issuing(
    settings: Settings,
    store: credentials.Store,
    addresses: Resolver,
    facts: Callable[[str], TokenFacts | None],
    on_renewal: OnRenewal = lambda provider, result: None,
) -> Issuing:
    """What issues tokens from the store's grants, reaching token endpoints the way all outbound traffic goes."""
    from proxy.credentials.issuing import Issuing

    endpoints = open_endpoints(settings, addresses)
    _, cache = paths_and_limits(settings.store)
    return Issuing(store, endpoints.ask, clock=time.time, facts=facts, cache=cache, on_renewal=on_renewal)


def open_endpoints(settings: Settings, addresses: Resolver) -> TokenEndpoints:
    """The way to token endpoints."""
    from proxy.upstream.dial import client_context
    from proxy.upstream.token_endpoint import TokenEndpoints

    roots = settings.upstream.extra_ca_file
    return TokenEndpoints(addresses, lambda: client_context(roots), parent_url=settings.upstream.proxy)


def _file(settings: FileStore) -> credentials.Store:
    from proxy.credentials.stores import file

    return file.FileStore(settings.path, settings.key_file)


def _vault(settings: VaultStore) -> credentials.Store:
    from proxy.credentials.stores import vault

    return vault.VaultStore(
        settings.address,
        _login(settings.auth),
        mount=settings.mount,
        namespace=settings.namespace,
        ca_file=settings.ca_file,
        connect_timeout=settings.timeouts.connect,
        read_timeout=settings.timeouts.read,
    )


def _login(auth: VaultAuth) -> Login:
    from proxy.credentials.stores import vault_login

    if isinstance(auth, TokenAuth):
        return vault_login.TokenLogin(auth.token_file)
    if isinstance(auth, AppRoleAuth):
        return vault_login.AppRoleLogin(auth.role_id, auth.secret_id_file, auth.mount)
    return vault_login.JwtLogin(auth.role, auth.token_file, auth.mount)


def store_status(settings: Store, store: credentials.Store) -> dict[str, object]:
    """What an operator wants to know of the store: which it is, and whether its login stands."""
    shown: dict[str, object] = {"kind": settings.kind}
    status = getattr(store, "status", None)
    if status is not None:
        shown |= {"logged_in": status.logged_in, "failed_logins": status.failures, "fault": status.fault}
    return shown
