"""`sluicegate token`: session tokens from a key of one's own."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TextIO, get_args

import click

from proxy.errors import ConfigurationError
from proxy.identity.minting import inspect, mint, proxy_url
from proxy.identity.names import is_actor, is_name
from proxy.identity.signing_key import Algorithm, SigningKey, load_signing_key


@click.group("token")
def token() -> None:
    """Mint and inspect session tokens, for tests and small set-ups."""


@token.command("keygen")
@click.option("--out", "path", type=click.Path(path_type=Path), required=True, help="File for the private key (0600).")
@click.option("--algorithm", type=click.Choice(get_args(Algorithm)), default="ES256", show_default=True)
def keygen(path: Path, algorithm: Algorithm) -> None:
    """Make a signing key; prints the public key set for the proxy's jwks_file."""
    key = SigningKey.generate(algorithm)
    try:
        key.save(path)
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from None
    click.echo(json.dumps(key.public_set(), indent=2))


@token.command("mint")
@click.option("--key", "path", type=click.Path(path_type=Path), required=True, help="Private key of `token keygen`.")
@click.option("--issuer", required=True, help="As in the proxy's configuration.")
@click.option("--audience", default="sluicegate", show_default=True)
@click.option("--tenant", required=True)
@click.option("--agent", required=True)
@click.option("--actor", help="The person or account on whose behalf the agent works.")
@click.option("--namespace", help="The namespace that the agent runs in.")
@click.option("--label", "labels", metavar="NAME=VALUE", multiple=True, help="A label of the agent; may be repeated.")
@click.option("--ttl", type=click.IntRange(1, 86_400), default=3600, show_default=True, help="Seconds.")
@click.option("--proxy-url", "bind", metavar="HOST:PORT", help="Print the proxy URL for that listener instead.")
def mint_command(
    path: Path,
    issuer: str,
    audience: str,
    tenant: str,
    agent: str,
    actor: str | None,
    namespace: str | None,
    labels: tuple[str, ...],
    ttl: int,
    bind: str | None,
) -> None:
    """Print a session token for one tenant and agent."""
    _require_names(tenant, agent, actor)
    claims: dict[str, object] = {"iss": issuer, "aud": audience, "tenant": tenant, "agent": agent}
    if actor is not None:
        claims["actor"] = actor
    if namespace is not None:
        claims["namespace"] = namespace
    if labels:
        claims["labels"] = _labels(labels)
    try:
        minted = mint(load_signing_key(path), claims, ttl, time.time())
        click.echo(proxy_url(minted, bind, agent) if bind else minted)
    except (ConfigurationError, ValueError) as error:
        raise click.ClickException(str(error)) from None


@token.command("inspect")
@click.argument("source", type=click.File("r", encoding="utf-8", errors="replace"), default="-")
def inspect_command(source: TextIO) -> None:
    """Show what the token in a file, or on standard input, says. Nothing is verified."""
    try:
        click.echo(inspect(source.read(65_536)).as_json())
    except ValueError as error:
        raise click.ClickException(str(error)) from None


def _labels(pairs: tuple[str, ...]) -> dict[str, str]:
    if not all(pair.partition("=")[0] and "=" in pair for pair in pairs):
        raise click.BadParameter("write NAME=VALUE", param_hint="--label")
    return dict(pair.split("=", 1) for pair in pairs)


def _require_names(tenant: str, agent: str, actor: str | None) -> None:
    """A token that the proxy would refuse is not worth minting."""
    for option, good in (("--tenant", is_name(tenant)), ("--agent", is_name(agent))):
        if not good:
            raise click.BadParameter("1 to 128 of A-Z a-z 0-9 . _ - are allowed", param_hint=option)
    if actor is not None and not is_actor(actor):
        raise click.BadParameter("1 to 128 of A-Z a-z 0-9 . _ - @ : + = | are allowed", param_hint="--actor")
