"""`sluicegate ca`, reading the configuration that `--config` names."""

from __future__ import annotations

from pathlib import Path

import click

from proxy.ca_cli import AuthoritySettings, ca_group
from proxy.settings import load

_CONFIG = "sluicegate.config"


def _settings(context: click.Context) -> AuthoritySettings:
    section = load(context.meta.get(_CONFIG)).ca
    return AuthoritySettings(section.dir, section.required)


def _keep(context: click.Context, _: click.Parameter, value: Path | None) -> None:
    context.meta[_CONFIG] = value


ca = ca_group(_settings)
for command in ca.commands.values():
    # The group knows nothing of our configuration file, so the option that names it is added here.
    click.option(
        "--config",
        metavar="FILE",
        type=click.Path(path_type=Path),
        expose_value=False,
        callback=_keep,
        help="Configuration file. Default: $SLUICEGATE_CONFIG, then ./sluicegate.yaml.",
    )(command)
