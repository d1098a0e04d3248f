"""The files that settings name: are they there, and are the secret ones private?"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from pathlib import Path

from proxy.errors import ConfigurationError, Fault
from proxy.hardening import check_private
from proxy.settings.identity import Identity
from proxy.settings.ledger import PostgresLedger
from proxy.settings.model import Settings
from proxy.settings.store import (
    AppRoleAuth,
    CallerJwtAuth,
    FileStore,
    JwtAuth,
    KubernetesAuth,
    TokenAuth,
    VaultAuth,
    VaultStore,
)
from proxy.settings.traffic import Listener

Place = tuple[str | int, ...]


def file_faults(settings: Settings) -> list[Fault]:
    """A fault, at the line of its key, for each file that is missing, unreadable, shared though it is secret, or a
    bundle of roots without one.

    The embedded store and its key may be missing, since the first `secrets set` makes them.
    """
    faults = [_unreadable(settings, place, path) for place, path in _public_files(settings)]
    faults += [_rootless(settings, place, path) for place, path in _bundles(settings)]
    faults += [_shared(settings, place, path) for place, path in _secret_files(settings)]
    return [fault for fault in faults if fault is not None]


def _public_files(settings: Settings) -> Iterator[tuple[Place, Path]]:
    for key, collector in settings.collectors():
        if collector.ca_file is not None:
            yield (key, "ca_file"), collector.ca_file
    if settings.upstream.extra_ca_file is not None:
        yield ("upstream", "extra_ca_file"), settings.upstream.extra_ca_file
    if isinstance(settings.store, VaultStore):
        yield from _vault_files(settings.store)
    yield from _identity_files(("identity",), settings.identity)
    for number, listener in enumerate(settings.listeners):
        yield from _listener_files(("listeners", number), listener)


def _bundles(settings: Settings) -> Iterator[tuple[Place, Path]]:
    for key, collector in settings.collectors():
        if collector.ca_file is not None:
            yield (key, "ca_file"), collector.ca_file
    if settings.upstream.extra_ca_file is not None:
        yield ("upstream", "extra_ca_file"), settings.upstream.extra_ca_file
    if isinstance(settings.store, VaultStore) and settings.store.ca_file is not None:
        yield ("store", "ca_file"), settings.store.ca_file


def _vault_files(store: VaultStore) -> Iterator[tuple[Place, Path]]:
    if store.ca_file is not None:
        yield ("store", "ca_file"), store.ca_file
    if store.client_certificate is not None:
        yield ("store", "client_certificate", "cert"), store.client_certificate.cert
    place, auth = _own_login(store)
    if isinstance(auth, JwtAuth | KubernetesAuth):
        # Kubernetes mounts projected tokens readable for more than their owner.
        yield (*place, "token_file"), auth.token_file


def _vault_secrets(store: VaultStore) -> Iterator[tuple[Place, Path]]:
    if store.client_certificate is not None:
        yield ("store", "client_certificate", "key"), store.client_certificate.key
    place, auth = _own_login(store)
    if isinstance(auth, TokenAuth):
        yield (*place, "token_file"), auth.token_file
    elif isinstance(auth, AppRoleAuth) and auth.secret_id_file is not None:
        yield (*place, "secret_id_file"), auth.secret_id_file


def _own_login(store: VaultStore) -> tuple[Place, VaultAuth | None]:
    """The proxy's own login and where it stands in the file."""
    if isinstance(store.auth, CallerJwtAuth):
        return ("store", "auth", "own"), store.auth.own
    return ("store", "auth"), store.auth


def _listener_files(place: Place, listener: Listener) -> Iterator[tuple[Place, Path]]:
    if listener.identity is not None:
        yield from _identity_files((*place, "identity"), listener.identity)
    if listener.tls is not None:
        yield (*place, "tls", "cert"), listener.tls.cert
        if listener.tls.client_ca is not None:
            yield (*place, "tls", "client_ca"), listener.tls.client_ca


def _identity_files(place: Place, identity: Identity) -> Iterator[tuple[Place, Path]]:
    if identity.revocations_file is not None:
        yield (*place, "revocations_file"), identity.revocations_file
    for number, member in enumerate(identity.chain):
        here = (*place, "chain", number)
        if member.kind == "service_account" and member.jwks_file is not None:
            yield (*here, "jwks_file"), member.jwks_file
        if member.kind == "token_review":
            yield (*here, "token_file"), member.token_file
            yield (*here, "ca_file"), member.ca_file
        if member.kind == "session_token":
            for index, issuer in enumerate(member.issuers):
                if issuer.jwks_file is not None:
                    yield (*here, "issuers", index, "jwks_file"), issuer.jwks_file


def _secret_files(settings: Settings) -> Iterator[tuple[Place, Path]]:
    for number, listener in enumerate(settings.listeners):
        if listener.tls is not None:
            yield ("listeners", number, "tls", "key"), listener.tls.key
    if isinstance(settings.ledger, PostgresLedger) and settings.ledger.password_file is not None:
        yield ("ledger", "password_file"), settings.ledger.password_file
    for key, collector in settings.collectors():
        if collector.token_file is not None:
            yield (key, "token_file"), collector.token_file
    store = settings.store
    if isinstance(store, FileStore):
        yield from ((("store", name), path) for name, path in _made_later(store) if path.exists())
    elif isinstance(store, VaultStore):
        yield from _vault_secrets(store)


def _made_later(store: FileStore) -> tuple[tuple[str, Path], ...]:
    return ("path", store.path), ("key_file", store.key_file)


def _unreadable(settings: Settings, place: Place, path: Path) -> Fault | None:
    if path.is_file() and os.access(path, os.R_OK):
        return None
    return settings.fault(place, f"{path} cannot be read" if path.exists() else f"{path} does not exist")


def _rootless(settings: Settings, place: Place, path: Path) -> Fault | None:
    """Told now: otherwise each call that needs the bundle would fail for it."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError:
        return settings.fault(place, f"{path} is no PEM file of certificates")
    except OSError:
        return None  # reported as unreadable
    return None


def _shared(settings: Settings, place: Place, path: Path) -> Fault | None:
    try:
        check_private(path)
    except ConfigurationError as error:
        return settings.fault(place, f"{path} {error.faults[0].message}")
    return None
