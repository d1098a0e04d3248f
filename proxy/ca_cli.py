"""`sluicegate ca`: hands out what clients need in order to trust the instance's certificates."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, cast

import click

from proxy.commands.options import config_option
from proxy.errors import ConfigurationError, Fault
from proxy.listeners.authority_files import certificate_pem, open_authority, read_certificate_pem
from proxy.listeners.trust import Format, export, system_roots


class AuthoritySettings(NamedTuple):
    """The `ca:` section of the configuration, and the roots that `upstream.extra_ca_file` adds to the system's."""

    directory: Path
    required: bool
    extra_ca_file: Path | None = None


def ca_group(settings_of: Callable[[Path | None], AuthoritySettings]) -> click.Group:
    """The command group; `settings_of` reads a configuration (None: the default one)."""

    @click.group("ca", help="The certificate authority of this instance.")
    def group() -> None:
        pass

    @group.command("export", help="Write what clients have to trust. Never the key.")
    @click.option(
        "--format",
        "kind",
        type=click.Choice(["pem", "pkcs12", "bundle"]),
        default="pem",
        show_default=True,
        help="pem: our certificate alone. bundle: with the system's roots. pkcs12: those as a Java trust store, "
        "password changeit.",
    )
    @click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Default: standard output.")
    @config_option
    def export_command(kind: str, output: Path | None, config: Path | None) -> None:
        content = exported(cast(Format, kind), settings_of(config))
        if output is not None:
            output.write_bytes(content)
        elif kind == "pkcs12" and sys.stdout.isatty():
            raise click.UsageError("a trust store is binary: name a file with --output.")
        else:
            click.echo(content, nl=False)

    return group


def exported(kind: Format, settings: AuthoritySettings) -> bytes:
    """The bytes to hand out. Raises ConfigurationError.

    The authority is made if there is none yet, unless `required`: an init step can export before the first `serve`.
    """
    pem = read_certificate_pem(settings.directory)
    if pem is None:
        pem = certificate_pem(open_authority(settings.directory, required=settings.required, now=time.time()))
    return export(kind, pem, "" if kind == "pem" else _roots(settings.extra_ca_file))


def _roots(extra: Path | None) -> str:
    if extra is None:
        return system_roots()
    try:
        return system_roots() + "\n" + extra.read_text()
    except (OSError, UnicodeDecodeError):
        raise ConfigurationError([Fault(str(extra), 0, "cannot be read as PEM certificates")]) from None
