"""Makes the configured store, for `serve` and for the commands that keep records."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from proxy.credentials.cache import CacheLimits
from proxy.credentials.paths import PathTemplates
from proxy.credentials.write_back import WriteBackStore
from proxy.errors import StoreError
from proxy.settings.model import State
from proxy.settings.store import (
    AppRoleAuth,
    CallerJwtAuth,
    DirectoryStore,
    FileStore,
    OwnAuth,
    Store,
    TokenAuth,
    VaultStore,
)
from proxy.state_key import derived_key

if TYPE_CHECKING:
    from proxy.credentials import store as credentials
    from proxy.credentials.app_record import TokenFacts
    from proxy.credentials.client_certificates import ClientCertificates, Issue
    from proxy.credentials.issuing import Issuing, OnRenewal
    from proxy.credentials.stores import vault
    from proxy.credentials.stores.vault_login import Login
    from proxy.credentials.stores.vault_session import VaultSession
    from proxy.credentials.tls_record import PkiRequest
    from proxy.settings import Settings
    from proxy.upstream.resolver import Resolver
    from proxy.upstream.token_endpoint import Sign, TokenEndpoints
    from signers.client_certificate import ClientCertificate
    from signers.grants.model import SignatureRequest

log = logging.getLogger("sluicegate")

_FILE_TTL: Final = 2.0


def open_store(settings: Store, *, spread_logins: bool = False) -> credentials.Store:
    """The store that the settings describe, not yet asked for anything.

    spread_logins   wait a little before each login, as members of a fleet should and commands should not
    """
    if isinstance(settings, VaultStore):
        return open_vault(settings, settings.login_spread if spread_logins else 0.0)
    return _directory(settings) if isinstance(settings, DirectoryStore) else _file(settings)


def paths_and_limits(settings: Store) -> tuple[PathTemplates, CacheLimits]:
    """Where records stand in that store, and how long they are kept in memory."""
    if isinstance(settings, VaultStore):
        return settings.templates(), CacheLimits(ttl=settings.ttl, stale=settings.stale)
    # Files are at hand and their changes are seen by a look: reading them again costs next to nothing.
    return PathTemplates(), CacheLimits(ttl=_FILE_TTL)


def write_back(store: credentials.Store, state: State) -> WriteBackStore:
    """`store`, with a spool for what it cannot take. One that is lost with the process is warned of."""
    from proxy.credentials.spool import DiskSpool, MemorySpool, Spool

    spool: Spool
    if _writable(state.dir):
        durable = state.durability == "disk"
        spool = DiskSpool(state.dir / "spool", lambda: derived_key(state.key_file, "spool"), durable=durable)
    else:
        log.warning("state.dir %s cannot be written", state.dir)
        spool = MemorySpool()
    if not spool.durable:
        log.warning("refreshed credentials wait for an absent store in memory only and are lost with this pod")
    return WriteBackStore(store, spool)


def _writable(folder: Path) -> bool:
    """Whether the folder is, or can be made, ours to write in. It is not made before there is something to keep."""
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    return place.is_dir() and os.access(place, os.W_OK | os.X_OK)


def open_issuing(
    settings: Settings,
    store: credentials.Store,
    addresses: Resolver,
    facts: Callable[[str], TokenFacts | None],
    on_renewal: OnRenewal = lambda provider, result: None,
    on_endpoint: Callable[[str], None] = lambda url: None,
) -> Issuing:
    """What issues tokens from the store's grants, reaching token endpoints the way all outbound traffic goes."""
    from proxy.credentials.issuing import Issuing

    endpoints = open_endpoints(settings, addresses, store)
    _, cache = paths_and_limits(settings.store)
    return Issuing(
        store,
        endpoints.ask,
        clock=time.time,
        facts=facts,
        cache=cache,
        on_renewal=on_renewal,
        on_endpoint=on_endpoint,
    )


def open_certificates(settings: Settings, store: WriteBackStore) -> ClientCertificates:
    """What finds the client certificates that do not stand in their records."""
    from proxy.credentials.client_certificates import ClientCertificates

    session = _vault_session(settings.store, store)
    issue = pki_issue(session) if session is not None else None
    return ClientCertificates(settings.upstream.client_certificates, issue, time.time)


def pki_issue(session: VaultSession) -> Issue:
    """Asks Vault's PKI engine for the certificates of records that name a role."""

    async def issue(wanted: PkiRequest) -> ClientCertificate:
        from proxy.credentials.stores.vault_engines import PkiRole
        from signers.client_certificate import client_certificate

        role = PkiRole(session, wanted.role, wanted.mount)
        made = await role.issue(wanted.common_name, wanted.ttl, dns_names=wanted.dns_names, uris=wanted.uris)
        return client_certificate(made.chain, made.private_key, None, wanted.ca)

    return issue


def open_endpoints(settings: Settings, addresses: Resolver, store: credentials.Store) -> TokenEndpoints:
    """The way to token endpoints. `store`: the Vault that signs where an application's key is kept there."""
    from proxy.upstream.dial import client_context
    from proxy.upstream.token_endpoint import TokenEndpoints

    roots = settings.upstream.extra_ca_file
    return TokenEndpoints(
        addresses, lambda: client_context(roots), parent_url=settings.upstream.proxy, sign=_signatures(settings, store)
    )


def _signatures(settings: Settings, store: credentials.Store) -> Sign | None:
    """Has keys of the Vault's transit engine sign; None for a store that has none."""
    session = _vault_session(settings.store, store)
    if session is None:
        return None

    async def sign(request: SignatureRequest) -> bytes:
        from proxy.credentials.stores.vault_engines import TransitKey

        mount, _, name = request.key.rpartition("/")
        try:
            return await TransitKey(session, name, mount or "transit").sign(request.signing_input, request.algorithm)
        except StoreError as error:
            log.warning("the key %s in Vault has not signed: %s", request.key, error)
            raise OSError from None

    return sign


def _vault_session(settings: Store, store: credentials.Store) -> VaultSession | None:
    """That of the open store, which the settings describe; None where it is no Vault."""
    if not isinstance(settings, VaultStore):
        return None
    from proxy.credentials.stores.vault import VaultStore as OpenVault

    kept = store.store if isinstance(store, WriteBackStore) else store
    assert isinstance(kept, OpenVault)
    return kept.session


def _file(settings: FileStore) -> credentials.Store:
    from proxy.credentials.stores import file

    return file.FileStore(settings.path, settings.key_file)


def _directory(settings: DirectoryStore) -> credentials.Store:
    from proxy.credentials.stores import directory

    return directory.DirectoryStore(settings.path)


def open_vault(settings: VaultStore, spread: float = 0.0) -> vault.VaultStore:
    """The Vault that the settings describe, with its other engines. `spread` is the longest pause before a login, s."""
    from proxy.credentials.stores import vault, vault_callers

    auth, certificate = settings.auth, settings.client_certificate
    callers = vault_callers.CallerLogin(auth.role, auth.mount) if isinstance(auth, CallerJwtAuth) else None
    return vault.VaultStore(
        settings.address,
        _login(auth.own) if isinstance(auth, CallerJwtAuth) else _login(auth),
        callers=callers,
        mount="secret" if settings.mount_segments else settings.mount,
        mount_segments=settings.mount_segments,
        apps=settings.app_path,
        kv=settings.kv,
        namespace=settings.namespace,
        ca_file=settings.ca_file,
        client_certificate=(certificate.cert, certificate.key) if certificate is not None else None,
        connect_timeout=settings.timeouts.connect,
        read_timeout=settings.timeouts.read,
        spread=spread,
    )


def _login(auth: OwnAuth | None) -> Login | None:
    from proxy.credentials.stores import vault_login

    if auth is None:
        return None
    if isinstance(auth, TokenAuth):
        return vault_login.TokenLogin(auth.token_file)
    if isinstance(auth, AppRoleAuth):
        return vault_login.AppRoleLogin(auth.role_id, auth.secret_id_file, auth.mount, auth.wrapped_by)
    return vault_login.JwtLogin(auth.role, auth.token_file, auth.mount)


def store_status(settings: Store, store: WriteBackStore) -> dict[str, object]:
    """What an operator wants to know of the store: which it is, whether its login stands, what waits for it."""
    from proxy.credentials.stores.vault import VaultStore as OpenVault

    shown: dict[str, object] = {
        "kind": settings.kind,
        "changes_waiting": store.waiting,
        "changes_durable": store.durable,
    }
    if isinstance(store.store, OpenVault):
        status = store.store.status
        shown |= {"logged_in": status.logged_in, "failed_logins": status.failures, "fault": status.fault}
        shown |= {"note": status.note} if status.note else {}
    return shown
