"""The published HTTP/1.1 probes through every listener.

Verdict for each case: a refusal with no byte upstream, or the requests that a strict reader reads, each once, each with
the injected credential once; never more, never a hang, never a 500.
"""

from __future__ import annotations

import json
import random
import re
import socket
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from tests.flows.conftest import Authority
from tests.flows.product import Product, eventually, record, rule
from tests.flows.strict import Reading, read
from tests.flows.upstreams import Connection, Upstream
from tests.flows.wire import Client, PeerEnded

SECRET = "sk-live-0123456789abcdef"
WAYS = ("absolute-form", "base-url", "plain tunnel", "tls tunnel")
LANES = 6
"""Cases run side by side, each on an upstream of its own, so that bytes are told apart."""
HANG = 5.0
NAMES_NO_RESOURCE = {"COMP-OPTIONS-STAR"}
"""`OPTIONS *` asks about a server as a whole: no policy can decide it."""
REQUEST_LINE = re.compile(rb"\A((?:\r\n)?[^\s]+ )(/[^\r\n]*)(?= HTTP/)", re.DOTALL)


def short_port() -> int:
    """Four digits: some cases count on an authority of fourteen characters."""
    while True:
        port = random.randint(2000, 9999)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


class ShortPortUpstream(Upstream):
    def _bind(self) -> list[socket.socket]:
        return [socket.create_server((self.host, short_port()), backlog=64)]


@dataclass
class Lane:
    plain: Upstream
    tls: Upstream
    segment: str


@dataclass
class Flow:
    product: Product
    lanes: SimpleQueue[Lane]


def close_after_reply(connection: Connection) -> None:
    """Answer the first request and close; whatever else comes is recorded."""
    connection.request()
    connection.send_quietly(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
    connection.wait_for_end()


@pytest.fixture(scope="module")
def cases(vectors: Path) -> list[dict[str, Any]]:
    path = vectors / "http11probe" / "cases.json"
    if not path.exists():
        pytest.skip("the http11probe vectors are not here")
    found = json.loads(path.read_text())
    return [case for case in found if case["payloads"]]


@pytest.fixture(scope="module")
def flow(folder: Path, authority: Authority) -> Iterator[Flow]:
    lanes: SimpleQueue[Lane] = SimpleQueue()
    rules, records = [], {}
    with ExitStack() as stack:
        for number in range(LANES):
            host = f"127.0.0.{number + 1}"
            plain = stack.enter_context(ShortPortUpstream(close_after_reply, host=host))
            tls = stack.enter_context(ShortPortUpstream(close_after_reply, host=host, tls=authority.context(host)))
            credential = {"name": f"lane{number}", "header": "X-Api-Key"}
            rules += [
                rule(f"lane{number}", plain, credential=credential),
                rule(f"tls{number}", tls, credential=credential),
            ]
            records[f"lane{number}"] = record("api_key", host, value=SECRET)
            lanes.put(Lane(plain, tls, f"lane{number}"))
        product = Product(folder, rules, records, extra_ca=authority.pem)
        product.base = short_port()
        yield Flow(stack.enter_context(product), lanes)


def payloads(case: dict[str, Any]) -> list[str]:
    if not case.get("described_only"):
        return list(case["payloads"])
    if "BINARY" in case["id"]:
        return [random.Random(1).randbytes(256).decode("latin-1")]
    lines = "".join(f"X-H-{number}: v\r\n" for number in range(10_000))
    return ["GET / HTTP/1.1\r\nHost: {HOST}\r\n" + lines + "\r\n"]


def to_bytes(payload: str, host: str) -> bytes:
    full = re.sub(r"<<(.)\*(\d+)>>", lambda run: run[1] * int(run[2]), payload.replace("{HOST}", host))
    try:
        return full.encode("latin-1")
    except UnicodeEncodeError:
        return full.encode()


@dataclass
class Trial:
    """One case through one listener: what was sent, what the client saw, what the upstreams recorded."""

    sent: list[bytes]
    meant: list[bytes]
    statuses: list[int]
    hung: bool
    upstream: list[bytes]


def open_client(product: Product, way: str, lane: Lane) -> Client:
    if way == "absolute-form":
        return product.client(HANG)
    if way == "base-url":
        return product.base_client(HANG)
    if way == "plain tunnel":
        return product.tunnel(lane.plain, tls=False, timeout=HANG)
    return product.tunnel(lane.tls, timeout=HANG)


def prefixed(payload: bytes, prefix: bytes) -> bytes:
    return REQUEST_LINE.sub(lambda found: found[1] + prefix + found[2], payload, count=1)


def run(product: Product, way: str, lane: Lane, case: dict[str, Any]) -> Trial:
    upstream = lane.tls if way == "tls tunnel" else lane.plain
    upstream.forget(close_after_reply)
    host = f"127.0.0.1:{product.base}" if way == "base-url" else upstream.authority
    prefix = {"absolute-form": b"http://" + host.encode(), "base-url": b"/" + lane.segment.encode()}.get(way, b"")
    meant = [to_bytes(payload, host) for payload in payloads(case)]
    trial = Trial([prefixed(payload, prefix) for payload in meant], meant, [], False, [])
    with open_client(product, way, lane) as client:
        try:
            converse(client, trial)
        except TimeoutError:
            trial.hung = True
        except (OSError, ssl.SSLError):
            pass
    if not trial.statuses:
        time.sleep(0.1)
    settle(upstream)
    trial.upstream = [bytes(connection.received) for connection in upstream.connections if connection.received]
    return trial


def converse(client: Client, trial: Trial) -> None:
    for payload in trial.sent:
        client.send_quietly(payload)
        meant = read(payload)
        if not meant.requests and meant.rest != "a fault":
            break
        if not next_status(client, trial, payload):
            return
    client.half_close()
    while next_status(client, trial, b""):
        pass


def next_status(client: Client, trial: Trial, payload: bytes) -> bool:
    """Read one more reply; False when the connection has ended."""
    method = payload.strip().split(b" ")[0].decode("latin-1")
    try:
        trial.statuses.append(client.reply(method if method == "HEAD" else "GET").status)
    except (PeerEnded, AssertionError):
        return False
    return True


def settle(upstream: Upstream) -> None:
    try:
        eventually(lambda: all(connection.gone.is_set() for connection in list(upstream.connections)), within=3)
    except AssertionError:
        pass


def verdict(case: dict[str, Any], way: str, trial: Trial) -> str | None:
    """What is wrong with a trial, or None."""
    meant = read(b"".join(trial.meant))
    got = [reading for reading in (read(received) for received in trial.upstream)]
    requests = [request for reading in got for request in reading.requests]
    if trial.hung:
        return "hung"
    if any(status >= 500 and status not in (501, 505) for status in trial.statuses):
        return f"statuses {trial.statuses}"
    if any(reading.rest == "a fault" for reading in got):
        return f"badly framed upstream: {trial.upstream}"
    if len(requests) > len(meant.requests):
        return f"{len(requests)} requests upstream, a strict reader reads {len(meant.requests)}: {trial.upstream}"
    return wrong_content(case, meant, requests) or wrong_refusal(case, way, meant, trial)


def wrong_content(case: dict[str, Any], meant: Reading, requests: list[Any]) -> str | None:
    for request, original in zip(requests, meant.requests, strict=False):
        target = re.sub(rb"\Ahttp://[^/]*", b"", original.target)
        if (request.method, request.target, request.body) != (original.method, target, original.body):
            return f"upstream read {request}, a strict reader {original}"
        if request.all(b"x-api-key") != [SECRET.encode()]:
            return f"credential {request.all(b'x-api-key')}"
    return None


def wrong_refusal(case: dict[str, Any], way: str, meant: Reading, trial: Trial) -> str | None:
    wanted = case["expected_status"] or ""
    accepted = any(200 <= status < 300 for status in trial.statuses)
    if wanted.startswith("Exact(4") and (accepted or trial.upstream):
        return f"must be refused: {trial.statuses} {trial.upstream}"
    if wanted == "Range2xx" and not accepted and case["id"] not in NAMES_NO_RESOURCE:
        return f"must be accepted: {trial.statuses}"
    refused_at_once = trial.statuses[:1] and 400 <= trial.statuses[0] < 500
    if refused_at_once and trial.upstream:
        return f"refused, and yet bytes went upstream: {trial.upstream}"
    return None


@pytest.mark.parametrize("way", WAYS)
def test_every_probe_is_refused_or_read_as_a_strict_reader_reads_it(
    flow: Flow, cases: list[dict[str, Any]], way: str
) -> None:
    def one(case: dict[str, Any]) -> str | None:
        lane = flow.lanes.get()
        try:
            trial = run(flow.product, way, lane, case)
        finally:
            flow.lanes.put(lane)
        wrong = verdict(case, way, trial)
        return (
            f"{case['id']}: {wrong[:600]}\n    statuses {trial.statuses}; sent {trial.sent[0][:160]!r}"
            if wrong
            else None
        )

    with ThreadPoolExecutor(LANES) as pool:
        wrong = [found for found in pool.map(one, cases) if found]
    assert not wrong, f"{len(wrong)} of {len(cases)}:\n" + "\n".join(wrong)
    assert flow.product.process is not None
    assert flow.product.process.poll() is None
