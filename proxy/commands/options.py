"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path

import click

config_option = click.option(
    "--config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Configuration file. Default: $SLUICEGATE_CONFIG, then ./sluicegate.yaml.",
)
