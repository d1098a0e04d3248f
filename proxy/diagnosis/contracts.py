"""Sends a provider's probes through an instance of its own and compares the answers with what is expected."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from proxy.app import Instance
from proxy.catalog.probe import Probe
from proxy.catalog.provider import Provider
from proxy.diagnosis.asking import asked
from proxy.diagnosis.shapes import Drift, Shape, differences, shape_of, type_of
from proxy.dialect import Answer
from proxy.model import Destination, Headers
from proxy.running.session import RunSession
from proxy.settings import Settings
from proxy.wire.chunks import ChunkReader
from proxy.wire.framing import Limits

STORE_SECONDS: Final = 10.0
CALL_SECONDS: Final = 60.0
USER_AGENT: Final = "sluicegate-contract"


class Reply(NamedTuple):
    """The answer to one probe; `why` says why there is none."""

    status: int = 0
    headers: Headers = []  # noqa: RUF012 - a NamedTuple's default is shared and not changed
    body: bytes = b""
    why: str = ""

    def one(self, name: str) -> str:
        found = Answer(self.status, self.headers, b"").header(name)
        return found[0] if found else ""

    @property
    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


class Record(NamedTuple):
    """What is kept of an answer: no value of it."""

    status: int
    headers: list[str]
    shape: Shape


async def replies(
    settings: Settings, session: RunSession, provider: Provider, origin: Destination
) -> list[tuple[Probe, Reply]]:
    """The answer to each of the provider's probes, sent to `origin` by the session's caller through the whole path.

    Raises ConfigurationError and OSError when an instance cannot be started with these settings.
    """
    instance = Instance(settings, identities=lambda fetch: session, frozen=True)
    at_once = asyncio.Event()
    at_once.set()
    await instance.start()
    try:
        async with asyncio.timeout(STORE_SECONDS):
            await instance.store_opened.wait()
        return [(probe, await _asked(probe, origin, session, instance.bound[0])) for probe in provider.probes]
    except TimeoutError:
        return [(probe, Reply(why="the credential store is not ready")) for probe in provider.probes]
    finally:
        await instance.stop(at_once)


async def _asked(probe: Probe, origin: Destination, session: RunSession, proxy: tuple[str, int]) -> Reply:
    raw = await asked(proxy, _request(probe, origin, session), CALL_SECONDS)
    return Reply(why=raw.why) if raw.why else _read(raw.reply)


def _request(probe: Probe, origin: Destination, session: RunSession) -> bytes:
    pair = base64.b64encode(f"agent:{session.token}".encode()).decode()
    body = b"" if probe.body is None else json.dumps(probe.body).encode()
    lines = {
        "Host": origin.authority,
        "Proxy-Authorization": f"Basic {pair}",
        "User-Agent": USER_AGENT,
        "Accept": "application/json",
        **({"Content-Type": "application/json"} if body else {}),
        **dict(probe.lines),
        **({"Content-Length": str(len(body))} if probe.method == "POST" else {}),
        "Connection": "close",
    }
    head = [f"{probe.method} {origin.origin}{probe.target} HTTP/1.1", *(f"{name}: {lines[name]}" for name in lines)]
    return "\r\n".join([*head, "", ""]).encode("ascii") + body


def _read(raw: bytes) -> Reply:
    """The final reply of a connection that has ended."""
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    status = first.split(b" ")[1] if first.count(b" ") else b""
    if not status.isdigit():
        return Reply(why="no answer")
    if status.startswith(b"1"):
        return _read(body)
    headers = [(name, value.strip()) for name, _, value in (line.partition(b":") for line in lines)]
    if any(name.lower() == b"transfer-encoding" for name, _ in headers):
        body = ChunkReader(Limits()).feed(body)
    return Reply(int(status), headers, body)


def drift_of(probe: Probe, reply: Reply, recorded: Record | None) -> Iterator[Drift]:
    """How an answer differs from what the probe and the record expect."""
    if reply.why or reply.one("Sluicegate-Error-Source") == "gateway":
        problem = reply.json
        why = reply.why or (
            f"{problem.get('code')}: {problem.get('detail')}" if isinstance(problem, dict) else "refused"
        )
        yield Drift(probe.name, "failed", "", "an answer of the provider's", why)
        return
    yield from _failure(probe, reply) if probe.kind else _success(probe, reply)
    for name in probe.headers:
        if not reply.one(name):
            yield Drift(probe.name, "header", name, "present", "")
    if recorded is not None:
        yield from differences(probe.name, recorded.shape, record_of(reply).shape)


def _failure(probe: Probe, reply: Reply) -> Iterator[Drift]:
    kind = reply.one("Sluicegate-Error-Kind")
    if kind != probe.kind:
        yield Drift(probe.name, "kind", "", probe.kind, kind or f"a success with status {reply.status}")
    problem = reply.json
    code = problem.get("provider_code") if isinstance(problem, dict) else None
    if "problem+json" in reply.one("Content-Type") and code != probe.code:
        yield Drift(probe.name, "code", "", probe.code, str(code or ""))


def _success(probe: Probe, reply: Reply) -> Iterator[Drift]:
    kind = reply.one("Sluicegate-Error-Kind")
    if reply.status != probe.status or kind:
        found = f"{reply.status}{f', {kind}' if kind else ''}"
        yield Drift(probe.name, "status", "", str(probe.status), found)
        return
    answer = Answer(reply.status, reply.headers, reply.body)
    for at, written, types in probe.shape:
        values = list(at.values(answer))
        found_types = {type_of(value) for value in values}
        if not values and "null" not in types:
            yield Drift(probe.name, "missing", written, "|".join(sorted(types)), "")
        elif not found_types <= types:
            yield Drift(probe.name, "type", written, "|".join(sorted(types)), "|".join(sorted(found_types)))


def record_of(reply: Reply) -> Record:
    """What is kept of an answer. Of a failure that is ours in form only its status and headers' names."""
    names = sorted({name.decode("latin-1").lower() for name, _ in reply.headers})
    kept = [name for name in names if not name.startswith("sluicegate-")]
    return Record(reply.status, kept, {} if reply.one("Sluicegate-Error-Kind") else shape_of(reply.json))


def stale(providers: Mapping[str, Provider], today: Any, days: int) -> Sequence[tuple[str, str, int]]:
    """(provider, day on which it was verified, days since) of those verified more than `days` ago, oldest first."""
    ages = [(name, one.verified.isoformat(), (today - one.verified).days) for name, one in providers.items()]
    return sorted((age for age in ages if age[2] > days), key=lambda age: -age[2])
