"""`sluicegate ledger`: what became of calls whose outcome the proxy does not know."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import click

from proxy.app_terms import ledger_of
from proxy.commands.options import config_option
from proxy.errors import StoreError
from proxy.settings import load
from proxy.settings.ledger import SqliteLedger
from proxy.upstream.ledger.rows import Reply
from proxy.upstream.ledger.sqlite import LEDGER_FILE
from proxy.upstream.ledger.storage import Ledger

T = TypeVar("T")


@click.group()
def ledger() -> None:
    """Settle calls under an Idempotency-Key whose outcome is not known; forget a tenant's."""


def _asked(config: Path | None, question: Callable[[Ledger], Awaitable[T]]) -> T:
    """What the configured ledger answers."""
    settings = load(config)
    path = settings.state.dir / LEDGER_FILE
    if isinstance(settings.ledger, SqliteLedger) and not path.exists():
        raise click.ClickException(f"{path}: there is no ledger; no call has needed one")
    opened = ledger_of(settings, uuid.uuid4().hex)
    if opened is None:
        raise click.ClickException("the ledger is turned off: ledger is null in the configuration")

    async def ask() -> T:
        try:
            return await question(opened)
        finally:
            await opened.close()

    try:
        return asyncio.run(ask())
    except (OSError, StoreError) as error:
        raise click.ClickException(f"the ledger cannot be used: {error}") from None


@ledger.command("list")
@config_option
def list_unsettled(config: Path | None) -> None:
    """Show the calls that are under way or whose outcome is not known: id, time, tenant, state, call id."""
    for row in _asked(config, lambda opened: opened.unsettled()):
        at = datetime.fromtimestamp(row.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        click.echo(f"{row.id}  {at}  {row.tenant}  {row.state}  {row.call_id}")


@ledger.command()
@click.argument("row_id")
@click.option("--done", "outcome", flag_value="done", help="It took effect: repeats are told so and never sent.")
@click.option("--not-done", "outcome", flag_value="not-done", help="It did not: the key may be used again.")
@config_option
def resolve(row_id: str, outcome: str | None, config: Path | None) -> None:
    """Say what became of the call of ROW_ID, after looking at the provider."""
    if outcome is None:
        raise click.UsageError("say --done or --not-done")
    if outcome == "not-done":
        known = _asked(config, lambda opened: opened.remove(row_id))
    else:
        known = _asked(config, lambda opened: opened.settle(row_id, "done", _UNKEPT))
    if not known:
        raise click.ClickException(f"no call {row_id} in the ledger")


_UNKEPT = Reply(200, [], b"", whole=False)


@ledger.command()
@click.option("--tenant", required=True, help="Whose calls and replies are forgotten.")
@config_option
def erase(tenant: str, config: Path | None) -> None:
    """Forget everything of a tenant. Its keys may be used again."""
    click.echo(f"{_asked(config, lambda opened: opened.erase(tenant))} forgotten")
