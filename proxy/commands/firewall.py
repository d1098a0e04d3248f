"""`sluicegate firewall`: closes a pod's other ways out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from proxy.commands.options import config_option
from proxy.settings import Settings, load

if TYPE_CHECKING:
    from proxy.firewall.ruleset import Firewall


@click.command()
@click.option("--apply", "applied", is_flag=True, help="Load the ruleset into this network namespace; needs nft.")
@config_option
def firewall(applied: bool, config: Path | None) -> None:
    """Print the nftables ruleset of this configuration, or apply it.

    With a transparent listener TCP of everybody but the proxy's user is redirected to it, and name queries to its stub;
    without one both are refused. UDP and IPv6 are closed like the rest; loopback and `firewall.direct` stay open.
    """
    from proxy.firewall.apply import apply
    from proxy.firewall.ruleset import ruleset

    text = ruleset(firewall_of(load(config)))
    if applied:
        apply(text)
        click.echo("firewall: in force")
    else:
        click.echo(text, nl=False)


def firewall_of(settings: Settings) -> Firewall:
    """The ruleset's terms out of the configuration."""
    from proxy.firewall.ruleset import Direct, Firewall

    transparent = [listener for listener in settings.listeners if listener.kind == "transparent"]
    wanted = settings.firewall
    return Firewall(
        wanted.user,
        {listener.bind.version: listener.bind.port for listener in transparent},
        {listener.names.bind.version: listener.names.bind.port for listener in transparent if listener.names},
        [Direct(entry.to, entry.protocol, entry.ports, entry.reason) for entry in wanted.direct],
    )
