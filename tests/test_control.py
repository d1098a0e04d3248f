"""The operator's socket."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.control import Controls, serve_control
from proxy.errors import ConfigurationError, Fault


class Process:
    """What the socket asks: answers at once or later, and refuses when told to."""

    def __init__(self) -> None:
        self.fault: Exception | None = None

    def status(self) -> dict[str, Any]:
        return {"ready": True}

    async def reload(self) -> dict[str, Any]:
        if self.fault is not None:
            raise self.fault
        return {"hash": "abc"}

    async def drain(self) -> dict[str, Any]:
        return {"draining": True}

    def explain(self, question: Mapping[str, Any]) -> dict[str, Any]:
        if "url" not in question:
            raise ValueError("Object missing required field `url`")
        return {"decision": "denied", "url": question["url"]}

    def block(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        return {"blocks": [asked]}

    def controls(self) -> Controls:
        return Controls(self.status, self.reload, self.drain, self.explain, self.block, self.block)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "control.sock"


async def ask(path: Path, method: str, route: str, body: bytes = b"") -> tuple[int, Any]:
    connector = aiohttp.UnixConnector(str(path))
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.request(method, f"http://control{route}", data=body) as reply,
    ):
        return reply.status, await reply.json()


async def test_the_operator_asks_and_commands(path: Path):
    server = await serve_control(path, Process().controls())
    assert await ask(path, "GET", "/status") == (200, {"ready": True})
    assert await ask(path, "POST", "/reload") == (200, {"hash": "abc"})
    assert await ask(path, "POST", "/drain") == (200, {"draining": True})
    assert await ask(path, "POST", "/explain", b'{"url": "https://x"}') == (
        200,
        {"decision": "denied", "url": "https://x"},
    )
    await server.close()
    assert not path.exists()


async def test_a_fault_is_told_and_the_process_goes_on(path: Path):
    process = Process()
    process.fault = ConfigurationError([Fault("p.yaml", 3, "bad"), Fault("q.yaml", 1, "worse")])
    server = await serve_control(path, process.controls())
    assert await ask(path, "POST", "/reload") == (
        422,
        {"error": "not valid", "faults": ["p.yaml:3: bad", "q.yaml:1: worse"]},
    )
    assert await ask(path, "POST", "/explain", b"{}") == (422, {"error": "Object missing required field `url`"})
    assert (await ask(path, "POST", "/explain", b"[1]"))[0] == 400
    assert (await ask(path, "POST", "/explain", b"\xff"))[0] == 400
    assert (await ask(path, "GET", "/status"))[0] == 200
    await server.close()


async def test_the_socket_is_the_owners_alone(path: Path):
    server = await serve_control(path, Process().controls())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    await server.close()


async def test_a_socket_left_behind_is_replaced(path: Path):
    path.parent.mkdir(mode=0o700)
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    server = await serve_control(path, Process().controls())
    assert (await ask(path, "GET", "/status"))[0] == 200
    await server.close()


async def test_the_socket_of_a_live_instance_is_left_alone(path: Path):
    server = await serve_control(path, Process().controls())
    with pytest.raises(ConfigurationError, match="belongs to another instance that is running"):
        await serve_control(path, Process().controls())
    assert (await ask(path, "GET", "/status"))[0] == 200
    await server.close()
    again = await serve_control(path, Process().controls())
    await again.close()


async def test_a_path_that_will_not_do_is_named(path: Path, tmp_path: Path):
    path.parent.mkdir(mode=0o700)
    path.write_text("precious")
    with pytest.raises(ConfigurationError, match="is no socket"):
        await serve_control(path, Process().controls())
    assert path.read_text() == "precious"
    with pytest.raises(ConfigurationError, match="too long for a unix socket"):
        await serve_control(tmp_path / ("x" * 120), Process().controls())
    os.chmod(path.parent, 0o777)
    with pytest.raises(ConfigurationError, match="can be written by others"):
        await serve_control(path, Process().controls())
