"""The webhook as a process: TLS, health, and what is taken up while it runs."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from proxy.catalog import Catalog
from proxy.cluster import Cluster, ClusterError, address_in
from proxy.errors import ConfigurationError
from proxy.listeners.sockets import bound_socket
from proxy.ops import Readiness, serve_ops
from proxy.reloading import Reloadable, signature
from proxy.rules import provider_facts
from proxy.webhook.application import Webhook, application
from proxy.webhook.certificates import Keeper, Served
from proxy.webhook.configuration import CertificateFiles, Injection
from proxy.webhook.profiles import load_checked

log = logging.getLogger("sluicegate.webhook")
FILES_SECONDS: Final = 1.0
SECRET_SECONDS: Final = 30.0
_GRACE: Final = 10.0


async def serve_webhook(file: Path) -> int:
    """Serves until SIGTERM; 0 then. Raises ConfigurationError or OSError when it cannot start."""
    from aiohttp import web

    from proxy.webhook.metrics import WebhookMetrics

    injection = load_checked(file)
    catalog = Catalog.load(Catalog.builtin_dir(), ())
    webhook = Webhook(injection, partial(_dummies, catalog), provider_facts(catalog))
    served, readiness = Served(), Readiness("certificate")
    metrics = WebhookMetrics(lambda: served.expires)
    runner = web.AppRunner(application(webhook, metrics.count), access_log=None, shutdown_timeout=_GRACE)
    await runner.setup()
    settings = injection.settings
    ops = await serve_ops(settings.ops, readiness, metrics.render) if settings.ops else None
    tasks = [
        asyncio.create_task(_forever(_certificate(injection, served, readiness))),
        asyncio.create_task(_forever(_configuration(file, webhook))),
    ]
    try:
        socket = bound_socket(settings.bind.host, settings.bind.port)
        await web.SockSite(runner, socket, ssl_context=served.context).start()
        log.info("webhook serving", extra={"bind": str(settings.bind)})
        await _told_to_stop()
        readiness.stop()
    finally:
        for task in tasks:
            task.cancel()
        await runner.cleanup()
        if ops is not None:
            await ops.close()
    return 0


def _dummies(catalog: Catalog, provider: str) -> Mapping[str, str]:
    """Read when a pod's profile asks for them: most providers' files never are."""
    found = catalog.by_name(provider)
    return found.env if found is not None else {}


async def _told_to_stop() -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    await stopping.wait()


Look = tuple[Callable[[], Awaitable[None]], float]
"""What is looked at, and every how many seconds."""


async def _forever(look: Look) -> None:
    """Looks again and again; what goes wrong is told once and does not end it."""
    once, seconds = look
    told = ""
    while True:
        try:
            await once()
            told = ""
        except (ClusterError, ConfigurationError, OSError, ssl.SSLError) as error:
            if str(error) != told:
                log.warning("not taken up: %s", error)
            told = str(error)
        except Exception as error:  # whatever it is, the next look has to come
            log.error("looking failed", exc_info=error)
        await asyncio.sleep(seconds)


def _certificate(injection: Injection, served: Served, readiness: Readiness) -> Look:
    wanted = injection.settings.tls
    if isinstance(wanted, CertificateFiles):
        return _files(wanted, served, readiness), FILES_SECONDS
    keeper = Keeper(wanted, Cluster(address_in(os.environ)), served)

    async def look() -> None:
        await keeper.look(time.time())
        readiness.met("certificate")

    return look, SECRET_SECONDS


def _files(wanted: CertificateFiles, served: Served, readiness: Readiness) -> Callable[[], Awaitable[None]]:
    seen: object = None

    async def look() -> None:
        nonlocal seen
        now = signature([wanted.cert, wanted.key])
        if now != seen:
            served.take(wanted.key.read_bytes() + b"\n" + wanted.cert.read_bytes())
            seen = now
            readiness.met("certificate")

    return look


def _configuration(file: Path, webhook: Webhook) -> Look:
    """The profiles and the floor, taken up when they change; what binds sockets stays as it was at start."""

    def seen() -> object:
        settings = webhook.injection.settings
        return signature([file, *filter(None, (settings.floor, settings.roots))])

    def take(injection: Injection) -> None:
        webhook.injection = injection

    found = Reloadable("profiles and floor", seen, lambda: load_checked(file), take, seen())
    return found.look, FILES_SECONDS
