"""`sluicegate run -- CMD`: a command behind a proxy of its own."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from proxy import OWN_VARIABLES, logs
from proxy.commands.options import caller_of, caller_options
from proxy.hardening import harden
from proxy.identity.names import TenantList
from proxy.settings import Settings, load
from proxy.settings.audit import FileAudit

if TYPE_CHECKING:
    from proxy.running.environment import Prepared
    from proxy.running.session import RunSession


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Configuration file. Default: sluicegate/sluicegate.yaml in $XDG_CONFIG_HOME or ~/.config.",
)
@caller_options
@click.option("--keep", metavar="NAME", multiple=True, help="Leave this variable as it is. May be repeated.")
@click.option("--quiet", is_flag=True, help="Do not say on standard error what was changed.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(
    config: Path | None,
    tenant: str | None,
    agent: str | None,
    actor: str,
    keep: Sequence[str],
    quiet: bool,
    command: Sequence[str],
) -> int:
    """Run a command whose calls go through a proxy of its own, with no key in its environment.

    Ends with the command's exit code; 127 when there is no such command. docs/run.md says what this does not stop.
    """
    from proxy.running.child import Unstartable, executable, hold_signals
    from proxy.running.private_settings import log_level, private_settings, user_file

    before = hold_signals()
    inherited = {name: value for name, value in os.environ.items() if name not in OWN_VARIABLES}
    settings = load(config if config is not None else user_file(inherited))
    try:
        executable(command[0], inherited.get("PATH"))
        private = private_settings(settings, inherited)
        session = _session(private, tenant, agent, actor)
        harden(os.environ, parent=True)
        logs.configure(log_level(settings), settings.log.format)
        import uvloop

        from proxy.running.supervise import Run, supervise

        return uvloop.run(supervise(private, session, Run(command, inherited, keep, before, _telling(quiet, private))))
    except Unstartable as error:
        click.echo(f"sluicegate: {error}", err=True)
        return error.code


def _session(settings: Settings, tenant: str | None, agent: str | None, actor: str) -> RunSession:
    from proxy.running.session import RunSession

    caller = caller_of(settings, tenant, agent, actor)
    if caller.tenant not in TenantList(settings.tenants):
        raise click.ClickException(f"{settings.file}: tenant {caller.tenant} is not among the `tenants` served")
    return RunSession(caller, settings.tenants, time.time())


def _telling(quiet: bool, settings: Settings) -> Callable[[Prepared], None]:
    def tell(prepared: Prepared) -> None:
        if prepared.removed:
            names = ", ".join(prepared.removed)
            click.echo(f"sluicegate: not passed on to the command: {names} (--keep NAME passes one on)", err=True)
        if prepared.placeholders:
            click.echo(f"sluicegate: set to a placeholder: {', '.join(prepared.placeholders)}", err=True)
        if isinstance(settings.audit, FileAudit):
            click.echo(f"sluicegate: calls are recorded in {settings.audit.path}", err=True)
        sys.stderr.flush()

    return (lambda _: None) if quiet else tell
