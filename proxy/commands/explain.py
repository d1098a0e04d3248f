"""`sluicegate explain METHOD URL`: which rules were considered, which decides, which credential stands where."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from proxy.commands.options import config_option
from proxy.errors import GatewayError
from proxy.settings import Settings, load


@click.command
@click.argument("method")
@click.argument("url")
@click.option("--tenant", help="Tenant of the caller. Default: the static identity's.")
@click.option("--agent", help="Agent that calls. Default: the static identity's.")
@click.option("--actor", default="", help="Person the agent works for.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@config_option
def explain(
    method: str, url: str, tenant: str | None, agent: str | None, actor: str, as_json: bool, config: Path | None
) -> int:
    """Say what would be decided for METHOD URL, and why. Nothing is sent, no credential is read.

    Exit code 0 when the call would be allowed, 1 when it would be denied.
    """
    settings = load(config)
    answer = _answer(settings, method, url, *_caller(settings, tenant, agent), actor)
    click.echo(msgspec.json.encode(answer).decode() if as_json else "\n".join(lines(answer)))
    return 1 if answer["decision"] == "denied" else 0


def lines(answer: dict[str, Any]) -> Iterator[str]:
    """The explanation for a person."""
    yield f"{answer['decision']}: {answer['destination']}" + "".join(
        f", {part} {answer[part]}" for part in ("provider", "operation") if answer[part]
    )
    if answer["rule"]:
        yield f"decided by rule {answer['rule']} of policy {answer['policy']}"
    if answer.get("reason"):
        yield str(answer["reason"])
    credential = answer.get("credential")
    if credential:
        placed = " or ".join(credential["placed"]) or "as its record says"
        yield f"credential {credential['name']} per {credential['per']}, placed in {placed}"
    for rule in answer["considered"]:
        yield f"  {rule['verdict']:<10} {rule['policy']} / {rule['rule']}: {rule['why']}"


def _answer(settings: Settings, method: str, url: str, tenant: str, agent: str, actor: str) -> dict[str, Any]:
    from proxy.explanation import Question, explain
    from proxy.rules import load_rules

    wanted = settings.policies
    rules = load_rules(wanted.dirs, wanted.floor, settings.providers, wanted.default)
    try:
        return explain(rules, Question(method, url, tenant, agent, actor))
    except GatewayError as error:
        raise click.BadParameter(error.detail, param_hint="URL") from None


def _caller(settings: Settings, tenant: str | None, agent: str | None) -> tuple[str, str]:
    first = settings.identity.chain[0]
    if first.kind == "static":
        tenant, agent = tenant or first.tenant, agent or first.agent
    if tenant is None or agent is None:
        raise click.UsageError("identity is taken from tokens here, so name the caller with --tenant and --agent.")
    return tenant, agent
