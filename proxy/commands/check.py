"""`sluicegate check`: every fault of the configuration and of what it names, at once, without starting anything."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from proxy.commands.options import config_option
from proxy.errors import ConfigurationError, Fault
from proxy.settings import Settings, load
from proxy.settings.files import file_faults


@click.command
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def check(config: Path | None, as_json: bool) -> int:
    """Check configuration, named files, providers and policies. Prints FILE:LINE: MESSAGE for each fault."""
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
    rule_faults, summary = _rules(settings)
    return [*file_faults(settings), *rule_faults], f"{settings.file}: no faults; {summary}"


def _rules(settings: Settings) -> tuple[list[Fault], str]:
    from proxy.rules import load_rules

    wanted = settings.policies
    try:
        rules = load_rules(wanted.dirs, wanted.floor, settings.providers, wanted.default)
    except ConfigurationError as error:
        return list(error.faults), ""
    documents, count = rules.policies.size
    return [], f"{documents} policies with {count} rules, hash {rules.policies.hash}"
