"""Sends one call for each rule through an instance of its own and compares what went in with what came out."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from proxy.app import Instance, Outside
from proxy.diagnosis.asking import asked
from proxy.diagnosis.echo import Echo, Received
from proxy.diagnosis.probes import Probe, probes_for
from proxy.model import Destination
from proxy.running.session import RunSession
from proxy.settings import Settings
from proxy.settings.audit import FileAudit
from proxy.upstream.addresses import Networks
from proxy.upstream.dial import Dialler
from proxy.upstream.resolver import Dialable
from proxy.upstream.resolver import Resolver as AddressResolver
from proxy.upstream.tls_identity import TlsIdentity
from proxy.wire.client_connection import ClientConnection
from proxy.wire.framing import Limits
from proxy.wire.pool import Ended, PoolKey
from proxy.wire.tls import Transport

DUMMY: Final = "sluicegate-doctor-not-a-key"
STORE_SECONDS: Final = 10.0
CALL_SECONDS: Final = 20.0


class Finding(NamedTuple):
    """What one rule does. `result` is ok, failed or skipped; `placed` names headers, parameters, cookies and a
    client certificate; no value."""

    policy: str
    rule: str
    call: str
    result: str
    placed: tuple[str, ...] = ()
    credential: str = ""
    why: str = ""


async def findings(settings: Settings, session: RunSession) -> list[Finding]:
    """One Finding for each allow rule of the session's caller. Nothing is sent to anybody but the echo.

    Raises ConfigurationError and OSError when an instance cannot be started with these settings.
    """
    with tempfile.TemporaryDirectory(prefix="sluicegate-doctor-") as folder:
        audit = Path(folder) / "audit.jsonl"
        private = settings.model_copy(
            update={"audit": FileAudit.model_validate({"sink": "file", "path": audit}), "tracing": None}
        )
        sent = await _through_an_instance(private, session, Path(folder) / "echo")
        return [_finding(probe, answer, received, _records(audit)) for probe, answer, received in sent]


class _Answer(NamedTuple):
    status: int = 0
    call_id: str = ""
    why: str = ""
    certificate: bool = False
    """A client certificate was ready to be shown to the destination."""


async def _through_an_instance(
    settings: Settings, session: RunSession, folder: Path
) -> list[tuple[Probe, _Answer, Received | None]]:
    echoes: list[Echo] = []
    shown: set[Destination] = set()

    def outside(limits: Limits) -> Outside:
        return Outside(_Anywhere(), _EchoDialler(limits, echoes, shown))

    instance = Instance(settings, identities=lambda fetch: session, frozen=True, outside=outside)
    probes = list(probes_for(instance.rules, session.caller))
    at_once = asyncio.Event()
    at_once.set()
    async with Echo(folder, {probe.destination.host for probe in probes if probe.destination}) as echo:
        echoes.append(echo)
        await instance.start()
        try:
            async with asyncio.timeout(STORE_SECONDS):
                await instance.store_opened.wait()
        except TimeoutError:
            pass  # each rule that needs the store says so below
        try:
            answers = [await _send(number, probe, session, instance.bound[0]) for number, probe in enumerate(probes)]
        finally:
            await instance.stop(at_once)
        for number, answer in enumerate(answers):
            answers[number] = answer._replace(certificate=probes[number].destination in shown)
        return [(probe, answers[number], echo.received.get(str(number))) for number, probe in enumerate(probes)]


class _Anywhere(AddressResolver):
    """No name is looked up: what is dialled is the echo in any case."""

    def resolve(self, host: str, port: int, networks: Networks = ()) -> Dialable:
        return ("127.0.0.1",)


class _EchoDialler(Dialler):
    """Dials the echo whatever the destination, and trusts it alone. `shown` gets the destinations that a client
    certificate would be shown to: the echo asks for none."""

    def __init__(self, limits: Limits, echoes: Sequence[Echo], shown: set[Destination]) -> None:
        super().__init__(limits, lambda _: self._trusted(), lambda _: 5.0)
        self._echoes = echoes
        self._shown = shown
        self._context: ssl.SSLContext | None = None

    def _trusted(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = self._echoes[0].trusted()
        return self._context

    async def dial(self, key: PoolKey, addresses: Dialable, ended: Ended, session: Any) -> ClientConnection:
        if isinstance(key.tls, TlsIdentity) and key.tls.certificate is not None:
            key.tls.check_own(key.destination.host, time.time())
            self._shown.add(key.destination)
        return await super().dial(PoolKey(key.destination, ""), addresses, ended, session)

    async def open(self, destination: Destination, addresses: Dialable) -> tuple[Transport, str]:
        echo = Destination("http", "127.0.0.1", self._echoes[0].ports[destination.scheme])
        return await super().open(echo, ("127.0.0.1",))


async def _send(number: int, probe: Probe, session: RunSession, proxy: tuple[str, int]) -> _Answer:
    if probe.destination is None:
        return _Answer()
    raw = await asked(proxy, _request(number, probe, session), CALL_SECONDS)
    if raw.why:
        return _Answer(why=raw.why)
    head, _, body = raw.reply.partition(b"\r\n\r\n")
    lines = dict(line.split(": ", 1) for line in head.decode("latin-1").split("\r\n")[1:] if ": " in line)
    return _Answer(int(head.split(b" ")[1]), lines.get("Sluicegate-Call-Id", ""), _reason(body))


def _request(number: int, probe: Probe, session: RunSession) -> bytes:
    """In absolute-form, with a key of the caller's own that must not win."""
    assert probe.destination is not None
    pair = base64.b64encode(f"agent:{session.token}".encode()).decode()
    lines = [
        f"{probe.method} {probe.destination.origin}{probe.path} HTTP/1.1",
        f"Host: {probe.destination.authority}",
        f"Proxy-Authorization: Basic {pair}",
        *(f"{name}: {value}" for name, value in _own_lines(number)),
        "Connection: close",
        *(f"{name}: {value}" for name, value in probe.lines),
        *([f"Content-Length: {len(probe.body)}"] if probe.method not in ("GET", "HEAD") else []),
    ]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + probe.body


def _own_lines(number: int) -> tuple[tuple[str, str], ...]:
    return ("X-Sluicegate-Doctor", str(number)), ("Authorization", f"Bearer {DUMMY}"), ("X-Api-Key", DUMMY)


def _reason(body: bytes) -> str:
    try:
        problem = json.loads(body)
    except ValueError:
        return ""
    return f"{problem.get('code')}: {problem.get('detail')}" if isinstance(problem, dict) else ""


def _records(audit: Path) -> dict[str, dict[str, Any]]:
    lines = [json.loads(line) for line in audit.read_text().splitlines()] if audit.exists() else []
    return {line["call_id"]: line for line in lines if line.get("outcome") not in ("opened", "credential_read")}


def _finding(probe: Probe, answer: _Answer, received: Received | None, records: dict[str, dict[str, Any]]) -> Finding:
    rule, use = probe.rule, probe.rule.effect.credential
    call = f"{probe.method} {probe.destination.authority}{probe.path}" if probe.destination else ""
    if probe.destination is None:
        return Finding(rule.document, rule.name, "", "skipped", why=probe.why_not)
    if use is not None and use.placement is not None and isinstance(use.placement[0], tuple):
        return Finding(rule.document, rule.name, call, "skipped", why="it replaces a placeholder that an agent writes")
    if received is None:
        return Finding(rule.document, rule.name, call, "failed", why=answer.why or f"answered {answer.status}")
    if use is None:
        return Finding(rule.document, rule.name, call, "ok", why="no credential: the caller's own headers pass")
    placed = (*_placed(probe, received), *(["client certificate"] if answer.certificate else []))
    credential = str(records.get(answer.call_id, {}).get("credential") or use.name)
    if not placed:
        return Finding(rule.document, rule.name, call, "failed", (), credential, "the call left without it")
    return Finding(rule.document, rule.name, call, "ok", placed, credential)


def _placed(probe: Probe, received: Received) -> Iterator[str]:
    """What the request has that the probe did not send: names only."""
    known = {"host", "x-sluicegate-doctor", "content-length", "connection", "transfer-encoding"}
    known |= {name.lower() for name, _ in probe.lines}
    pins = {name.decode().lower() for name, _ in probe.provider.pins} if probe.provider is not None else set()
    for name, value in received.lines:
        if name.lower() == "cookie":
            yield from (f"cookie {pair.split('=')[0].strip()}" for pair in value.split(";"))
        elif name.lower() not in known | pins and DUMMY not in value:
            yield f"header {name}"
    path, _, query = received.target.partition("?")
    own_path, _, own_query = probe.path.partition("?")
    if path != own_path:
        yield "path"
    yield from (f"query {pair.split('=')[0]}" for pair in query.split("&") if pair and pair not in own_query.split("&"))
