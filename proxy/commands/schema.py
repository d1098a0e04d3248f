"""`sluicegate schema`: the formats of files, as JSON Schema for editors."""

from __future__ import annotations

import json

import click

from proxy.catalog.document import schema as provider_schema


@click.group()
def schema() -> None:
    """Print the JSON Schema of a file's format."""


@schema.command()
def provider() -> None:
    """The format of a provider file."""
    click.echo(json.dumps(provider_schema(), indent=2))
