"""`sluicegate disconnect`: one tenant's credential stops everywhere, at the provider too where it offers that."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from proxy.commands.options import config_option
from proxy.credentials import revocation
from proxy.credentials.app_record import app_path
from proxy.credentials.disconnect import disconnect as end
from proxy.credentials.record import map_fields
from proxy.credentials.store import Fields, KeepsVersions, NotFound, Store
from proxy.errors import GatewayError, SluicegateError, StoreError
from proxy.settings import Settings, load

if TYPE_CHECKING:
    from proxy.upstream.fetch import Fetcher


@click.command
@click.argument("credential")
@click.option("--tenant", required=True, help="Whose credential.")
@click.option("--actor", default="", help="The person, for a credential that each actor has.")
@click.option("--provider", help="Catalogue entry that says how to revoke. Default: the credential's name.")
@config_option
def disconnect(credential: str, tenant: str, actor: str, provider: str | None, config: Path | None) -> None:
    """Switch CREDENTIAL off, revoke its tokens at the provider, leave a tombstone without secrets.

    Earlier versions of the record are destroyed where the store keeps them. Every proxy stops using it within its
    cache's time to live. Exit code 1 when the provider could not be told: it is off then, and the same command tries
    again.
    """
    settings = load(config)
    try:
        ended = asyncio.run(_Disconnection(settings, provider or credential).run(credential, tenant, actor))
    except GatewayError as error:
        raise click.ClickException(error.detail) from None
    except (SluicegateError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    told = (
        f"the provider has revoked {ended} token(s)" if ended else "no revocation is declared for it; end it there too"
    )
    click.echo(f"{credential} of tenant {tenant}{f', actor {actor}' if actor else ''}: disconnected; {told}")


class _Disconnection:
    """One run of the command."""

    def __init__(self, settings: Settings, provider: str) -> None:
        from proxy.opening import open_store, paths_and_limits

        self._settings = settings
        self._provider = provider
        self._store: Store = open_store(settings.store)
        self._paths = paths_and_limits(settings.store)[0]
        self._ended = 0

    async def run(self, credential: str, tenant: str, actor: str) -> int:
        """How many tokens the provider has ended."""
        path = self._paths.path(tenant, actor, credential, "actor" if actor else "tenant")
        try:
            await self._store.start()
            version = await end(self._store, path, self._revoke, time.time())
            await _destroy(self._store, path, version)
        finally:
            await self._store.close()
        return self._ended

    async def _revoke(self, record: Fields) -> None:
        app = await self._app(record.get("app"))
        way = revocation.declared(app, self._catalogued())
        if way is None:
            return
        fetcher = self._fetcher()
        for hint, token in revocation.ended_there(way, map_fields("record", record)):
            asked = revocation.request(way, revocation.application(app), token, hint)
            await _post(fetcher, way, asked, self._ended)
            self._ended += 1

    async def _app(self, name: object) -> Fields:
        if not isinstance(name, str):
            return {}
        try:
            return (await self._store.read(app_path(name))).fields
        except NotFound:
            return {}

    def _catalogued(self) -> revocation.Revocation | None:
        from proxy.catalog import Catalog

        provider = Catalog.load(Catalog.builtin_dir(), self._settings.providers).by_name(self._provider)
        found = provider.revocation if provider is not None else None
        return revocation.Revocation(*found) if found is not None else None

    def _fetcher(self) -> Fetcher:
        from proxy.upstream.dial import client_context
        from proxy.upstream.fetch import Fetcher

        context = client_context(self._settings.upstream.extra_ca_file)
        return Fetcher(lambda: context, self._settings.upstream.proxy)


async def _destroy(store: Store, path: str, version: int) -> None:
    """Earlier versions of a record hold the secrets still. That they cannot be destroyed is said, and no failure."""
    if not isinstance(store, KeepsVersions):
        return
    try:
        await store.destroy_before(path, version)
    except StoreError as error:
        click.echo(
            f"versions of {path} before {version} still hold secrets that whoever reads this store can read, and could"
            f" not be destroyed: {error}. Destroy them, or let this login do it: update on destroy/ of the engine",
            err=True,
        )


async def _post(fetcher: Fetcher, way: revocation.Revocation, asked: revocation.Request, before: int) -> None:
    """Sends one revocation. Raises ClickException, with the credential switched off, when it fails."""
    try:
        status, body = await fetcher.post(asked.url, asked.headers, asked.body)
        fault = revocation.fault(way, status, body, before)
    except (OSError, ValueError) as error:
        fault = str(error) or type(error).__name__
    if fault:
        raise click.ClickException(
            f"the credential is switched off, but {way.endpoint} did not revoke it: {fault}. Run the command again"
        )
