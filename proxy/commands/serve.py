"""`sluicegate serve`: the proxy in the foreground until SIGTERM."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import click

from proxy import logs
from proxy.commands.options import config_option
from proxy.hardening import harden
from proxy.settings import load


@click.command
@config_option
def serve(config: Path | None) -> int:
    """Run the proxy in the foreground. SIGTERM lets running calls end; a second one stops at once."""
    settings = load(config)
    harden(os.environ)
    logs.configure(settings.log.level, settings.log.format)
    import uvloop

    from proxy import app

    try:
        return uvloop.run(app.serve(settings))
    except OSError as error:
        if error.filename is None and error.errno in {errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES}:
            raise click.ClickException(f"{settings.file}: {error.strerror}") from None
        raise
