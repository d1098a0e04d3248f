"""One run from start to end: the private instance comes up, the command runs, both are gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from proxy.app import Instance
from proxy.running.child import Before, Unstartable, ended, pass_signals_on, start, stop_wanted
from proxy.running.environment import Prepared, Ways, child_environment, placeholders_of
from proxy.running.owned_listener import OwnedListener
from proxy.running.session import RunSession
from proxy.running.trust_files import trust_files
from proxy.settings import Settings

log = logging.getLogger("sluicegate.run")
STORE_SECONDS: Final = 5.0
"""How long a command waits for a store that does not let us in; it can still do what needs no credential."""


class Run(NamedTuple):
    """What is to be run, and with what it is started."""

    command: Sequence[str]
    inherited: Mapping[str, str]
    keep: Collection[str]
    before: Before
    told: Callable[[Prepared], None]
    """Called with the environment just before the command starts."""


async def supervise(settings: Settings, session: RunSession, run: Run) -> int:
    """Runs the command behind an instance of its own; its exit code.

    Raises ConfigurationError and OSError before the command is started, Unstartable when it cannot be.
    """
    instance = Instance(settings, identities=lambda fetch: session, frozen=True)
    at_once = asyncio.Event()
    at_once.set()
    await instance.start()
    try:
        owned = await _owned(instance, session)
        proxy, base = (f"{host}:{port}" for host, port in instance.bound)
        await _store_opened(instance)
        with trust_files(instance.authority.certificate_pem, settings.upstream.extra_ca_file) as trust:
            rules = instance.rules
            placeholders = placeholders_of(rules.policies, rules.catalog, session.caller)
            ways = Ways(proxy, base, owned, session.token)
            return await _run(run, child_environment(run.inherited, ways, trust, placeholders, run.keep))
    finally:
        await instance.stop(at_once)


async def _run(run: Run, prepared: Prepared) -> int:
    signalled = stop_wanted()
    if signalled is not None:
        return 128 + signalled
    run.told(prepared)
    pid = start(run.command, prepared.variables, run.before)
    exited = ended(pid)
    pass_signals_on(pid)
    return await exited


async def _owned(instance: Instance, session: RunSession) -> str:
    listener = instance.forward(session.owners_chain(), OwnedListener)
    assert isinstance(listener, OwnedListener)
    listener.secret = session.token.encode()
    host, port = await instance.listen("127.0.0.1", 0, listener)
    return f"{host}:{port}"


async def _store_opened(instance: Instance) -> None:
    try:
        async with asyncio.timeout(STORE_SECONDS):
            await instance.store_opened.wait()
    except TimeoutError:
        log.warning("the credential store is not there yet; calls that need a credential will fail until it is")


__all__ = ["Run", "Unstartable", "supervise"]
