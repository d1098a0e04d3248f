"""`sluicegate schema`: the formats of files, as JSON Schema for editors."""

from __future__ import annotations

import json

import click

from policies.schema import policy_schema
from proxy.catalog.document import schema as provider_schema


@click.group()
def schema() -> None:
    """Print the JSON Schema of a file's format."""


@schema.command()
def provider() -> None:
    """The format of a provider file."""
    click.echo(json.dumps(provider_schema(), indent=2))


@schema.command()
def policy() -> None:
    """The format of a policy file."""
    click.echo(json.dumps(policy_schema(), indent=2))
