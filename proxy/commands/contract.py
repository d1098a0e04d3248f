"""`sluicegate contract PROVIDER`: does the provider still answer as its file says?"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from proxy import logs
from proxy.commands.options import caller_of, caller_options, config_option
from proxy.errors import GatewayError
from proxy.settings import Settings, load

if TYPE_CHECKING:
    from proxy.catalog.provider import Provider
    from proxy.diagnosis.contracts import Record, Reply
    from proxy.diagnosis.shapes import Drift
    from proxy.model import Destination

STALE_DAYS: Final = 180


@click.command
@click.argument("provider", required=False)
@click.option("--record", is_flag=True, help="Keep the shapes of the answers, for later runs to compare with.")
@click.option("--all", "every", is_flag=True, help=f"List the providers verified more than {STALE_DAYS} days ago.")
@click.option(
    "--at", metavar="ORIGIN", help="Where the provider is, if it is not its own host: https://git.acme.example"
)
@click.option(
    "--shapes", metavar="DIR", type=click.Path(path_type=Path), help="Default: contracts in the state folder."
)
@caller_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@config_option
def contract(
    provider: str | None,
    record: bool,
    every: bool,
    at: str | None,
    shapes: Path | None,
    tenant: str | None,
    agent: str | None,
    actor: str,
    as_json: bool,
    config: Path | None,
) -> int:
    """Send the probes of PROVIDER's file, as this tenant's agent would, and compare types, codes and headers.

    Uses the configured policies and the real credential; probes only read. What is recorded holds no values. Exit code
    0 when the answers are as expected, 1 when they differ or a probe could not be sent.
    """
    settings = load(config)
    logs.configure("error", settings.log.format)
    if every or provider is None:
        if not every:
            raise click.UsageError("Name a provider, or --all.")
        return _stale(settings, as_json)
    found = _provider(settings, provider)
    session_caller = caller_of(settings, tenant, agent, actor)
    from proxy.diagnosis.contracts import drift_of, record_of, replies
    from proxy.running.private_settings import private_settings
    from proxy.running.session import RunSession

    session = RunSession(session_caller, settings.tenants, time.time())
    private = private_settings(settings, dict(os.environ))
    answered = asyncio.run(replies(private, session, found, _origin(found, at)))
    file = (shapes or settings.state.dir / "contracts") / f"{found.name}.json"
    known = {} if record else _recorded(file)
    drift = [one for probe, reply in answered for one in drift_of(probe, reply, known.get(probe.name))]
    if record and not any(one.fails for one in drift):
        _write(file, found.name, [(probe.name, record_of(reply)) for probe, reply in answered])
    _tell(found, answered, drift, as_json)
    return 1 if any(one.fails for one in drift) else 0


def _provider(settings: Settings, name: str) -> Provider:
    from proxy.catalog import Catalog

    found = Catalog.load(Catalog.builtin_dir(), settings.providers).by_name(name)
    if found is None:
        raise click.BadParameter(f"the catalogue has no {name!r}", param_hint="PROVIDER")
    if not found.probes:
        raise click.ClickException(f"{name} declares no probes: add them to its file, under `probes:`")
    return found


def _origin(provider: Provider, at: str | None) -> Destination:
    from proxy.listeners.target import parse_absolute

    if at is None and not provider.first_host:
        raise click.UsageError(f"{provider.name} has no host of its own: name yours with --at https://…")
    try:
        destination, _ = parse_absolute((at.rstrip("/") + "/" if at else f"https://{provider.first_host}/").encode())
    except GatewayError as error:
        raise click.BadParameter(error.detail, param_hint="--at") from None
    return destination


def _stale(settings: Settings, as_json: bool) -> int:
    from proxy.catalog import Catalog
    from proxy.diagnosis.contracts import stale

    catalog = Catalog.load(Catalog.builtin_dir(), settings.providers)
    rows = stale(catalog.providers, datetime.now(UTC).date(), STALE_DAYS)
    if as_json:
        click.echo(json.dumps([{"provider": name, "verified": day, "days": days} for name, day, days in rows]))
    else:
        click.echo("\n".join(f"{name:<20} verified {day}, {days} days ago" for name, day, days in rows) or "none")
    return 0


def _recorded(file: Path) -> dict[str, Record]:
    """The shapes of an earlier run; none where there was none."""
    from proxy.diagnosis.contracts import Record

    try:
        probes = json.loads(file.read_text("utf-8"))["probes"]
        return {name: Record(one["status"], one["headers"], one["shape"]) for name, one in probes.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise click.ClickException(f"{file}: is no recorded contract; record it anew with --record") from None


def _write(file: Path, provider: str, records: Sequence[tuple[str, Record]]) -> None:
    document = {
        "provider": provider,
        "recorded": datetime.now(UTC).date().isoformat(),
        "probes": {name: record._asdict() for name, record in records},
    }
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", "utf-8")


def _tell(provider: Provider, answered: Sequence[tuple[Any, Reply]], drift: Sequence[Drift], as_json: bool) -> None:
    if as_json:
        click.echo(
            json.dumps(
                {
                    "provider": provider.name,
                    "verified": provider.verified.isoformat(),
                    "ok": not any(one.fails for one in drift),
                    "probes": [{"name": probe.name, "status": reply.status} for probe, reply in answered],
                    "drift": [one._asdict() for one in drift],
                }
            )
        )
        return
    click.echo("\n".join(_lines(provider, answered, drift)))


def _lines(provider: Provider, answered: Sequence[tuple[Any, Reply]], drift: Sequence[Drift]) -> Iterator[str]:
    yield f"{provider.title}: {len(answered)} probes, {sum(one.fails for one in drift)} differences"
    if drift:
        rows = [("probe", "what", "where", "expected", "found"), *((str(cell) for cell in one) for one in drift)]
        cells = [tuple(row) for row in rows]
        widths = [min(40, max(len(row[column]) for row in cells)) for column in range(5)]
        for row in cells:
            yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
