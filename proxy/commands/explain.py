"""`sluicegate explain METHOD URL`: which rules were considered, which decides, which credential stands where."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from proxy.commands.options import caller_of, caller_options, config_option
from proxy.errors import GatewayError
from proxy.explanation import Question
from proxy.explanation import explain as explain_question
from proxy.settings import Settings, load


@click.command
@click.argument("method")
@click.argument("url")
@caller_options
@click.option("--operation", default="", help="Which operation, where a header or the body of the call says it.")
@click.option("--namespace", default="", help="Namespace that the agent runs in.")
@click.option("--label", "labels", metavar="NAME=VALUE", multiple=True, help="A label of the agent; may be repeated.")
@click.option("--header", "headers", metavar="NAME=VALUE", multiple=True, help="A header of the call; may be repeated.")
@click.option("--body", help="The body of the call, for rules that look at it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--live", is_flag=True, help="Ask the running instance through its control socket.")
@config_option
def explain(
    method: str,
    url: str,
    tenant: str | None,
    agent: str | None,
    actor: str,
    operation: str,
    namespace: str,
    labels: tuple[str, ...],
    headers: tuple[str, ...],
    body: str | None,
    as_json: bool,
    live: bool,
    config: Path | None,
) -> int:
    """Say what would be decided for METHOD URL, and why. Nothing is sent, no credential is read.

    Exit code 0 when the call would be allowed, 1 when it would be denied.
    """
    settings = load(config)
    caller = caller_of(settings, tenant, agent, actor)
    asked = Question(
        method,
        url,
        caller.tenant,
        caller.agent,
        caller.actor,
        operation,
        namespace or caller.traits.namespace,
        _pairs(labels, "--label") or dict(caller.traits.labels),
        _pairs(headers, "--header"),
        body,
    )
    answer = (_live if live else _answer)(settings, asked)
    click.echo(msgspec.json.encode(answer).decode() if as_json else "\n".join(lines(answer)))
    return 1 if answer["decision"] == "denied" else 0


def _pairs(given: tuple[str, ...], option: str) -> dict[str, str]:
    if not all(pair.partition("=")[0] and "=" in pair for pair in given):
        raise click.BadParameter("write NAME=VALUE", param_hint=option)
    return dict(pair.split("=", 1) for pair in given)


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


def _live(settings: Settings, asked: Question) -> dict[str, Any]:
    """The answer of the instance that runs with this configuration, policies as it has them."""
    from proxy.commands.control_client import ask

    if settings.control is None:
        raise click.ClickException(f"{settings.file}: control is null, so a running instance cannot be asked")
    return ask(settings.control, "/explain", msgspec.to_builtins(asked))


def _answer(settings: Settings, asked: Question) -> dict[str, Any]:
    from proxy.rules import load_rules

    wanted = settings.policies
    rules = load_rules(wanted.dirs, wanted.floor, settings.providers, wanted.default)
    try:
        return explain_question(rules, asked)
    except GatewayError as error:
        raise click.BadParameter(error.detail, param_hint="URL") from None
