"""A real PostgreSQL for tests, as an ordinary user on a unix socket: `postgres_server` for the session, `postgres_url`
a fresh database on it."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

_OPTIONS = ("-c", "listen_addresses=", "-c", "shared_buffers=8MB", "-c", "fsync=off", "-c", "max_connections=20")


@dataclass
class Postgres:
    """One server. `folder` holds its data, its socket and its log."""

    folder: Path
    account: int | None
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [program("postgres"), "-D", self.folder / "data", "-k", self.folder, *_OPTIONS],
                stdout=log,
                stderr=log,
                user=self.account,
                cwd=self.folder,
            )
        deadline = time.monotonic() + 40
        while self._ask("SELECT 1").returncode:
            assert self.process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def stop(self) -> None:
        """At once, connections and all."""
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)  # "fast": sessions are ended, none is waited for
        self.process.wait(20)

    def _ask(self, text: str) -> subprocess.CompletedProcess[bytes]:
        command = [program("psql"), "-h", self.folder, "-U", "sluicegate", "-d", "postgres", "-c", text]
        return subprocess.run(command, capture_output=True, check=False)

    def new_database(self) -> str:
        name = f"ledger_{uuid.uuid4().hex}"
        self._ask(f"CREATE DATABASE {name}").check_returncode()
        return f"postgresql://sluicegate@/{name}?host={self.folder}"


def program(name: str) -> str:
    """The newest of that name, among the system's and Debian's own places. Skips the test without one."""
    found = shutil.which(name) or next(
        (str(path) for path in sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)), None
    )
    if found is None:
        pytest.skip(f"no {name} command: install postgresql")
    return found


def _account() -> int | None:
    """Whom the server runs as: root is refused by it."""
    return pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    made = program("initdb")
    folder = Path(tempfile.mkdtemp(prefix="sluicegate-postgres-"))  # sockets need short paths, and it an own folder
    server = Postgres(folder, _account())
    if server.account is not None:
        os.chown(folder, server.account, -1)
    command = [made, "-D", folder / "data", "-U", "sluicegate", "-A", "trust", "--no-sync", "--no-locale", "-E", "UTF8"]
    subprocess.run(command, check=True, capture_output=True, user=server.account, cwd=folder)
    server.start()
    yield server
    server.stop()
    shutil.rmtree(folder)


@pytest.fixture
def postgres_url(postgres_server: Postgres) -> str:
    return postgres_server.new_database()
