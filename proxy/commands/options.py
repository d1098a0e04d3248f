"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from policies.traits import NO_TRAITS
from proxy.identity.traits import traits_of
from proxy.model import Caller
from proxy.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])

config_option = click.option(
    "--config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Configuration file. Default: $SLUICEGATE_CONFIG, then ./sluicegate.yaml.",
)


def caller_options(command: F) -> F:
    """--tenant, --agent and --actor: whose call it is."""
    command = click.option("--actor", default="", help="Person the agent works for.")(command)
    command = click.option("--agent", help="Agent that calls. Default: the static identity's.")(command)
    return click.option("--tenant", help="Tenant of the caller. Default: the static identity's.")(command)


def caller_of(settings: Settings, tenant: str | None, agent: str | None, actor: str) -> Caller:
    """The caller named by the options, the static identity filling in what they leave out."""
    first = settings.identity.chain[0]
    traits = NO_TRAITS
    if first.kind == "static":
        traits = traits_of(first.namespace, first.labels)
        tenant, agent, actor = tenant or first.tenant, agent or first.agent, actor or first.actor
    if tenant is None or agent is None:
        raise click.UsageError("identity is taken from tokens here, so name the caller with --tenant and --agent.")
    return Caller(tenant, agent, actor, traits=traits)
