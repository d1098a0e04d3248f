"""`sluicegate secrets`: keep the tenants' credentials. Values come from standard input or a hidden prompt, never argv.

The context object is the callable that opens the configured store: `(config file or None) -> Store`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from proxy.commands.options import config_option
from proxy.credentials import administration
from proxy.credentials.administration import Listing
from proxy.credentials.store import Store
from proxy.errors import SluicegateError

OpenStore = Callable[[Path | None], Store]
T = TypeVar("T")


@click.group
def secrets() -> None:
    """Keep the tenants' credentials in the configured store. Records are named by path: tenants/acme/slack."""


@secrets.command("set")
@click.argument("path")
@click.option(
    "--kind", type=click.Choice(list(administration.BARE_FIELD)), help="The input is the bare value of this kind."
)
@click.option("--host", "hosts", multiple=True, help="With --kind: a host it may go to. May be repeated.")
@click.option(
    "--wrapped", is_flag=True, help="The input is a response-wrapping token of the Vault; the record is in it."
)
@config_option
@click.pass_obj
def set_(
    open_store: OpenStore, path: str, kind: str | None, hosts: Sequence[str], wrapped: bool, config: Path | None
) -> None:
    """Store one record: JSON on standard input, or with --kind the bare value (a terminal is prompted for it)."""
    if wrapped:
        token = _bare_value().strip()
        version = _run(open_store, config, lambda store: administration.set_wrapped(store, path, token))
        click.echo(f"{path}: version {version}")
        return
    if hosts and kind is None:
        raise click.UsageError("--host goes with --kind; a JSON record names its own hosts")
    record = administration.bare_record(kind, _bare_value(), hosts) if kind else _json_object(_input("Record (JSON)"))
    version = _run(open_store, config, lambda store: administration.set_record(store, path, record))
    click.echo(f"{path}: version {version}")


@secrets.command("import")
@click.argument("file", type=click.File("r"))
@config_option
@click.pass_obj
def import_(open_store: OpenStore, file: Any, config: Path | None) -> None:
    """Store many records from FILE ("-": standard input): a JSON object {path: record, …}. All or none are accepted."""
    records = _json_object(file.read())
    versions = _run(open_store, config, lambda store: administration.import_records(store, records))
    for path, version in versions.items():
        click.echo(f"{path}: version {version}")


@secrets.command("list")
@click.argument("prefix", default="")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
@config_option
@click.pass_obj
def list_(open_store: OpenStore, prefix: str, as_json: bool, config: Path | None) -> None:
    """Show paths, kinds, versions and expiry; never values."""
    found = _run(open_store, config, lambda store: administration.list_records(store, prefix))
    rows = [_row(listing) for listing in found]
    if as_json:
        click.echo(json.dumps([dict(zip(COLUMNS, row, strict=True)) for row in rows]))
        return
    table = [COLUMNS, *(tuple(map(str, row)) for row in rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(COLUMNS))]
    for row in table:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@secrets.command("delete")
@click.argument("path")
@config_option
@click.pass_obj
def delete(open_store: OpenStore, path: str, config: Path | None) -> None:
    """Remove one record; every proxy on this store stops using it within its cache's time to live."""
    _run(open_store, config, lambda store: administration.delete_record(store, path))
    click.echo(f"{path}: deleted")


@secrets.command("rekey")
@config_option
@click.pass_obj
def rekey(open_store: OpenStore, config: Path | None) -> None:
    """Seal the file store with a new key. Running proxies take it up by themselves."""
    click.echo(f"sealed with key {_run(open_store, config, administration.rekey)}")


COLUMNS = ("path", "kind", "version", "expires", "state")


def _row(listing: Listing) -> tuple[str, str, int, str, str]:
    expires = (
        "-" if listing.expires is None else datetime.fromtimestamp(listing.expires, UTC).isoformat(timespec="seconds")
    )
    return listing.path, listing.kind, listing.version, expires, listing.state


def _run(open_store: OpenStore, config: Path | None, work: Callable[[Store], Awaitable[T]]) -> T:
    """Open the store, do one piece of work, close it. Our own errors become one line for the operator."""

    async def once() -> T:
        store = open_store(config)
        try:
            await store.start()
            return await work(store)
        finally:
            await store.close()

    try:
        return asyncio.run(once())
    except (SluicegateError, ValueError) as error:
        raise click.ClickException(str(error)) from None


def _bare_value() -> str:
    """One value; the line ending that `echo` or an editor added is not part of it."""
    value = _input("Value")
    return value.removesuffix("\n").removesuffix("\r") if value.endswith("\n") else value


def _input(prompt: str) -> str:
    if sys.stdin.isatty():
        return str(click.prompt(prompt, hide_input=True))
    return sys.stdin.read()


def _json_object(text: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except ValueError:
        # The parser's own text quotes its input, which holds secrets.
        raise click.ClickException("the input is not JSON; for one bare value say --kind") from None
    if not isinstance(parsed, dict):
        raise click.ClickException("the input must be a JSON object")
    return parsed
