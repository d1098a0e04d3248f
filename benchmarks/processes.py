"""Start a contender on its core, see when it is ready, and read what it costs from /proc."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PROXY_CORE, LOAD_CORE = 0, 1
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class NotReady(RuntimeError):
    """A program ended or stayed silent instead of becoming ready; the message names its log."""


@dataclass(frozen=True, slots=True)
class Running:
    """A started program: its process and the seconds from start to ready."""

    process: subprocess.Popen[bytes]
    ready_s: float


def pinned(core: int, command: Sequence[str]) -> list[str]:
    """The command line that runs `command` on one core."""
    return ["taskset", "-c", str(core), *command]


def accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 0.2).close()
    except OSError:
        return False
    return True


def answers_200(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=0.5) as reply:
            return bool(reply.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def start(
    command: Sequence[str],
    core: int,
    ready: Callable[[], bool],
    log: Path,
    environment: Mapping[str, str] | None = None,
    patience_s: float = 20.0,
) -> Running:
    """Start `command` on `core` and wait until `ready()`; raise NotReady when it ends before, or after `patience_s`."""
    begun = time.perf_counter()
    with log.open("wb") as output:
        process = subprocess.Popen(
            pinned(core, command),
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
    while not ready():
        if process.poll() is not None or time.perf_counter() - begun > patience_s:
            stop(process)
            raise NotReady(f"did not get ready, see {log}: {last_line(log)}")
        time.sleep(0.005)
    return Running(process, time.perf_counter() - begun)


def last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "(nothing printed)"


def stop(process: subprocess.Popen[bytes], grace_s: float = 5.0) -> None:
    """End a program's whole process group: politely, then not."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(grace_s)
            return
        except ProcessLookupError:
            process.poll()
            return
        except subprocess.TimeoutExpired:
            continue


def tree(pid: int) -> list[int]:
    """The process and all its living descendants."""
    found, todo = [], [pid]
    while todo:
        current = todo.pop()
        found.append(current)
        for children in Path(f"/proc/{current}/task").glob("*/children"):
            todo += [int(child) for child in _read(children).split()]
    return found


def cpu_seconds(pid: int) -> float:
    """User and system time used so far by the process tree, ended threads included."""
    total = 0
    for member in tree(pid):
        fields = _read(Path(f"/proc/{member}/stat")).rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12]) if fields else 0
    return total / TICKS_PER_SECOND


def rss_mb(pid: int) -> float:
    """Resident memory of the process tree in MB (pages that several processes share count in each)."""
    sizes = (re.search(r"VmRSS:\s+(\d+)", _read(Path(f"/proc/{member}/status"))) for member in tree(pid))
    return sum(int(size[1]) for size in sizes if size) / 1024


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # it has ended meanwhile
        return ""
