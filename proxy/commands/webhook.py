"""`sluicegate webhook`: the admission webhook of a cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from proxy import logs


@click.command()
@click.option("--check", is_flag=True, help="Judge the file, its profiles and the floor, and end.")
@click.option(
    "--config",
    "file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    default="webhook.yaml",
    show_default=True,
    help="What pods are injected with.",
)
def webhook(check: bool, file: Path) -> int:
    """Put the proxy beside pods as they are made, and judge the policies that they will load."""
    if check:
        from proxy.webhook.profiles import load_checked

        load_checked(file)
        click.echo(f"{file}: ok")
        return 0
    from proxy.webhook.serving import serve_webhook

    logs.configure("info", "auto")
    return asyncio.run(serve_webhook(file))
