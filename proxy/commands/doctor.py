"""`sluicegate doctor`: proves what is injected, tests who trusts us, and names what lies about."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from proxy import logs
from proxy.commands.options import caller_of, caller_options, config_option
from proxy.settings import Settings, load

if TYPE_CHECKING:
    from proxy.diagnosis.clients import Trust
    from proxy.model import Caller


@click.command
@caller_options
@click.option("--no-clients", is_flag=True, help="Do not start the clients of this machine.")
@click.option("--vault", is_flag=True, help="Examine the login to Vault and what it may do, and nothing else.")
@click.option("--pod", is_flag=True, help="Try the ways out of this pod, as an application in it; no configuration.")
@click.option(
    "--target",
    metavar="HOST:PORT",
    help="With --pod: an address that answers where nothing stops it. Default: the cluster's API.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@config_option
def doctor(
    tenant: str | None,
    agent: str | None,
    actor: str,
    no_clients: bool,
    vault: bool,
    pod: bool,
    target: str | None,
    as_json: bool,
    config: Path | None,
) -> int:
    """Prove on the wire which credential each rule injects, against an echo on this machine. No provider is called.

    Starts an instance of its own with this configuration and store. Exit code 1 when a rule's call leaves without its
    credential, or a client does not trust the proxy under `sluicegate run`; with --vault when the login lacks a right
    it needs, or has one that it should not have; with --pod when something leaves the pod past the proxy.
    """
    if pod:
        return _pod(target, as_json)
    settings = load(config)
    logs.configure("error", settings.log.format)
    if vault:
        return _vault(settings, as_json)
    environment = dict(os.environ)
    found = asyncio.run(_examine(settings, caller_of(settings, tenant, agent, actor), no_clients, environment))
    click.echo(msgspec.json.encode(found).decode() if as_json else "\n".join(_lines(found)))
    return 0 if found["ok"] else 1


def _vault(settings: Settings, as_json: bool) -> int:
    from proxy.commands.doctor_vault import examine

    findings = asyncio.run(examine(settings))
    rows = [finding._asdict() for finding in findings]
    click.echo(msgspec.json.encode(rows).decode() if as_json else "\n".join(map(str, findings)))
    return 1 if any(finding.ok is False for finding in findings) else 0


def _pod(target: str | None, as_json: bool) -> int:
    from proxy.diagnosis.pod import examine, target_of

    findings = examine(target_of(target, os.environ))
    rows = [finding._asdict() for finding in findings]
    click.echo(msgspec.json.encode(rows).decode() if as_json else "\n".join(map(str, findings)))
    return 0 if all(finding.ok for finding in findings) else 1


async def _examine(
    settings: Settings, caller: Caller, no_clients: bool, environment: Mapping[str, str]
) -> dict[str, Any]:
    from proxy.diagnosis.credential_files import readable_files
    from proxy.diagnosis.wire import findings
    from proxy.running.private_settings import private_settings
    from proxy.running.session import RunSession

    session = RunSession(caller, settings.tenants, time.time())
    rules = await findings(private_settings(settings, environment), session)
    clients = [] if no_clients else await _clients(settings, environment)
    failed = any(rule.result == "failed" for rule in rules) or any(client.run is False for client in clients)
    return {
        "ok": not failed,
        "rules": [rule._asdict() for rule in rules],
        "clients": [client._asdict() for client in clients],
        "credential_files": [str(path) for path in readable_files(environment)],
    }


async def _clients(settings: Settings, environment: Mapping[str, str]) -> list[Trust]:
    from proxy.diagnosis.clients import clients_found
    from proxy.listeners.certificate_authority import CertificateAuthority

    authority = CertificateAuthority.open(settings.ca.dir, settings.ca.required, time.time())
    try:
        return await clients_found(authority, settings.upstream.extra_ca_file, environment)
    finally:
        authority.close()


def _lines(found: dict[str, Any]) -> Iterator[str]:
    yield "What each rule injects, seen by an echo on this machine:"
    for rule in found["rules"]:
        yield f"  {_rule_line(rule)}"
    if not found["rules"]:
        yield "  no rule allows this caller anything"
    if found["clients"]:
        yield "Clients on this machine: do they trust the proxy (as things are / under `sluicegate run`)?"
    for client in found["clients"]:
        yield f"  {client['name']:<7} {_word(client['here'])} / {_word(client['run'])}. {client['advice']}"
    if found["credential_files"]:
        yield "Files with credentials that a process of this user can read past the proxy:"
    for path in found["credential_files"]:
        yield f"  {path}"


def _rule_line(rule: dict[str, Any]) -> str:
    told = [f"{rule['result']:<7} {rule['policy']} / {rule['rule']}"]
    if rule["call"]:
        told.append(rule["call"])
    if rule["placed"]:
        told.append(f"{rule['credential']} in {', '.join(rule['placed'])}")
    if rule["why"]:
        told.append(rule["why"])
    return ": ".join(told)


def _word(trusted: bool | None) -> str:
    return {True: "yes", False: "no", None: "not known"}[trusted]
