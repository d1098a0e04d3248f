"""`sluicegate connect PROVIDER`: ask a person for consent and store the grant, so that nobody has to see it."""

from __future__ import annotations

import asyncio
import webbrowser
from collections.abc import Sequence
from pathlib import Path

import click

from proxy.commands.options import config_option
from proxy.connecting.flows import Connected, Consent
from proxy.connecting.plan import Plan, plan
from proxy.credentials.app_record import app_path, parse_app
from proxy.credentials.paths import check_path, is_name
from proxy.credentials.record import parse_record
from proxy.credentials.store import NotFound, Store
from proxy.errors import SluicegateError
from proxy.opening import open_endpoints, open_store, paths_and_limits
from proxy.settings import Settings, load
from proxy.upstream.resolver import Resolver

MINUTES = 5.0


@click.command
@click.argument("provider")
@click.option("--tenant", required=True, help="Tenant whose credential it is.")
@click.option("--actor", default="", help="Person whose own credential it is (rules with `per: actor`).")
@click.option("--credential", help="Name of the record. Default: the provider's name.")
@click.option("--app", help="Application record below apps/. Default: the provider's name.")
@click.option("--scope", "scopes", multiple=True, help="Scope to ask for; may be repeated. Default: the app's.")
@click.option(
    "--token-of", default="", help="Which of several tokens to keep, as the provider's file names them (Slack: user)."
)
@click.option("--expect-account", default="", help="Store nothing unless the consent is this account's.")
@click.option("--device", is_flag=True, help="Show a code to enter on another device instead of opening a browser.")
@click.option("--port", default=0, help="Loopback port of the redirect, where the provider wants a registered one.")
@click.option("--no-browser", is_flag=True, help="Only print the link.")
@config_option
def connect(
    provider: str,
    tenant: str,
    actor: str,
    credential: str | None,
    app: str | None,
    scopes: Sequence[str],
    token_of: str,
    expect_account: str,
    device: bool,
    port: int,
    no_browser: bool,
    config: Path | None,
) -> int:
    """Ask for consent to PROVIDER and store the grant for a tenant, or for one of its actors.

    The application's client id and secret are read from the record apps/PROVIDER, which is never shown either.
    """
    settings = load(config)
    browse = (lambda url: None) if no_browser else _browse
    path = _path(settings, tenant, actor, credential or provider)

    async def once() -> Connected:
        store = open_store(settings.store)
        try:
            await store.start()
            wanted = await _plan(settings, store, provider, app or provider, path, scopes, token_of)
            endpoints = open_endpoints(settings, Resolver(), store)
            consent = Consent(wanted, store, path, endpoints, expect_account, click.echo)
            return await (consent.on_device() if device else consent.in_browser(port, MINUTES * 60, browse))
        finally:
            await store.close()

    try:
        connected = asyncio.run(once())
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    account = f" as {connected.account}" if connected.account else ""
    click.echo(f"{path}: version {connected.version}, connected{account}")
    for name, value in connected.learned.items():
        click.echo(f"{name}: {value}")
    if connected.missing:
        click.echo(f"not granted: {' '.join(connected.missing)}", err=True)
    return 0


def _path(settings: Settings, tenant: str, actor: str, credential: str) -> str:
    if not all(map(is_name, filter(None, (tenant, actor, credential)))):
        raise click.ClickException("tenant, actor and credential are names of letters, digits, '.', '_' and '-'")
    paths, _ = paths_and_limits(settings.store)
    return check_path(paths.path(tenant, actor, credential, "actor" if actor else "tenant"))


async def _plan(
    settings: Settings, store: Store, provider: str, app: str, path: str, scopes: Sequence[str], variant: str
) -> Plan:
    from proxy.catalog import Catalog

    known = Catalog.load(Catalog.builtin_dir(), settings.providers).by_name(provider)
    if known is None:
        raise click.ClickException(f"there is no provider {provider!r} in the catalogue")
    example = f'{{"provider": "{provider}", "client_id": "…", "client_secret": "…"}}'
    try:
        application = parse_app(app_path(app), (await store.read(app_path(app))).fields)
    except NotFound:
        raise click.ClickException(
            f"there is no record {app_path(app)}; store the application first: "
            f"echo '{example}' | sluicegate secrets set {app_path(app)}"
        ) from None
    if application.provider != provider and not application.token_endpoint:
        raise click.ClickException(
            f'{app_path(app)} does not say "provider": "{provider}", so that its tokens could not be renewed; '
            f"set it to {example}"
        )
    return plan(application, known.token, await _vars(store, path), scopes, variant)


async def _vars(store: Store, path: str) -> dict[str, str]:
    """Variables that the tenant's record already holds."""
    try:
        return dict(parse_record(path, (await store.read(path)).fields).vars)
    except (NotFound, SluicegateError):
        return {}


def _browse(url: str) -> None:
    webbrowser.open(url)
