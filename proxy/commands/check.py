"""`sluicegate check`: every fault of the configuration and of what it names, at once; and can the store be read?"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from proxy.commands.options import config_option
from proxy.errors import ConfigurationError, Fault, SluicegateError
from proxy.settings import Settings, load
from proxy.settings.files import file_faults
from proxy.settings.store import CallerJwtAuth, VaultStore

if TYPE_CHECKING:
    from proxy.rules import Rules


@click.command
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def check(config: Path | None, as_json: bool) -> int:
    """Check configuration, named files, providers, policies and the store. Prints FILE:LINE: MESSAGE for each fault."""
    faults, summary = findings(config)
    if as_json:
        entries = [{"file": fault.file, "line": fault.line, "message": fault.message} for fault in faults]
        click.echo(msgspec.json.encode({"ok": not faults, "faults": entries}).decode())
    elif faults:
        click.echo("\n".join(map(str, faults)))
    else:
        click.echo(summary)
    return 1 if faults else 0


def findings(config: Path | None) -> tuple[list[Fault], str]:
    """All faults, and a sentence for when there are none. What rests on a broken part is not checked."""
    try:
        settings = load(config)
    except ConfigurationError as error:
        return list(error.faults), ""
    rule_faults, rules = _rules(settings)
    named = file_faults(settings)
    # A store whose key file is at fault is not asked as well: one thing to put right is one line.
    faults = [*named, *rule_faults, *(_store_faults(settings, rules) if not named else [])]
    return faults, f"{settings.file}: no faults; {_summary(rules)}; the store can be read" if rules else ""


def _summary(rules: Rules) -> str:
    documents, count = rules.policies.size
    return f"{documents} policies with {count} rules, hash {rules.policies.hash}"


def _store_faults(settings: Settings, rules: Rules | None) -> list[Fault]:
    """Opens the store and reads one record, which need not be there."""
    try:
        asyncio.run(_read_once(settings, _probed_path(settings, rules)))
    except SluicegateError as error:
        return [settings.fault(("store",), f"store: {error}")]
    return []


async def _read_once(settings: Settings, path: str) -> None:
    from proxy.credentials.store import NotFound
    from proxy.opening import open_store

    store = open_store(settings.store)
    try:
        await store.start()
        if not _only_callers_read(settings):
            await store.read(path)
    except NotFound:
        return  # an answer too
    finally:
        await store.close()


def _only_callers_read(settings: Settings) -> bool:
    """Whether the proxy itself has no right to any record."""
    auth = settings.store.auth if isinstance(settings.store, VaultStore) else None
    return isinstance(auth, CallerJwtAuth) and auth.own is None


def _probed_path(settings: Settings, rules: Rules | None) -> str:
    """A record that calls would ask for, since a store's own permissions may allow nothing else."""
    from proxy.opening import paths_and_limits

    first = settings.identity.chain[0]
    tenants = [name for name in settings.tenants if name != "*"]
    tenant = first.tenant if first.kind == "static" else (tenants or ["sluicegate-check"])[0]
    agent = first.agent if first.kind == "static" else "sluicegate-check"
    used = (
        rule.effect.credential
        for document in (rules.policies.documents if rules else ())
        for rule in document.allows
        if rule.effect.credential is not None and rule.effect.credential.per == "tenant"
    )
    credential = next(used, None)
    paths, _ = paths_and_limits(settings.store)
    return paths.path(tenant, "", credential.name if credential else "sluicegate-check", "tenant", agent)


def _rules(settings: Settings) -> tuple[list[Fault], Rules | None]:
    from proxy.rules import load_rules

    wanted = settings.policies
    try:
        rules = load_rules(wanted.dirs, wanted.floor, settings.providers, wanted.default)
        _ = rules.catalog.providers  # each is read whole, so that a fault in any of them is found
    except ConfigurationError as error:
        return list(error.faults), None
    return [], rules
