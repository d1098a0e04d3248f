"""`sluicegate ledger`: what became of calls whose outcome the proxy does not know."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import click

from proxy.commands.options import config_option
from proxy.settings import load
from proxy.state_key import derived_key
from proxy.upstream.ledger.rows import Reply
from proxy.upstream.ledger.sqlite import LEDGER_FILE, SqliteLedger


@click.group()
def ledger() -> None:
    """Settle calls under an Idempotency-Key whose outcome is not known; forget a tenant's."""


def _opened(config: Path | None) -> SqliteLedger:
    settings = load(config)
    path = settings.state.dir / LEDGER_FILE
    if not path.exists():
        raise click.ClickException(f"{path}: there is no ledger; no call has needed one")
    return SqliteLedger(path, derived_key(settings.state.key_file, "ledger replies"))


@ledger.command("list")
@config_option
def list_unsettled(config: Path | None) -> None:
    """Show the calls that are under way or whose outcome is not known: id, time, tenant, state, call id."""
    with closing(_opened(config)) as opened:
        for row in opened.unsettled():
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
    with closing(_opened(config)) as opened:
        known = opened.remove(row_id) if outcome == "not-done" else opened.settle(row_id, "done", _UNKEPT)
    if not known:
        raise click.ClickException(f"no call {row_id} in the ledger")


_UNKEPT = Reply(200, [], b"", whole=False)


@ledger.command()
@click.option("--tenant", required=True, help="Whose calls and replies are forgotten.")
@config_option
def erase(tenant: str, config: Path | None) -> None:
    """Forget everything of a tenant. Its keys may be used again."""
    with closing(_opened(config)) as opened:
        click.echo(f"{opened.erase(tenant)} forgotten")
