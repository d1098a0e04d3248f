"""The load: wrk on plain HTTP, our own client through tunnels. Both count every answer that is not the right one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass

from benchmarks.contenders import Target
from benchmarks.ground import DATA_PATH, Ground
from benchmarks.preparation import program
from benchmarks.processes import LOAD_CORE, pinned

MILLISECONDS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4}


class LoadFailed(RuntimeError):
    """The load generator itself did not do its work."""


@dataclass(frozen=True, slots=True)
class Served:
    """What came of one load: requests, seconds it took, latency in ms, and how many answers were wrong."""

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float
    bad: int


def apply(ground: Ground, target: Target, connections: int, seconds: float) -> Served:
    """Load one target; raise LoadFailed when nothing could be measured."""
    return _wrk(target, connections, seconds) if target.url else _tunnels(ground, target, connections, seconds)


def _wrk(target: Target, connections: int, seconds: float) -> Served:
    load = ["-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "--timeout", "5s", "--latency"]
    command = [str(program("wrk")), *load, "-H", f"Authorization: {target.authorization}", target.url]
    return parse_wrk(_run(command))


def parse_wrk(output: str) -> Served:
    """Read wrk's report; raise LoadFailed when it holds no count of requests."""
    counted = re.search(r"(\d+) requests in ([\d.]+)(us|ms|s|m)", output)
    if counted is None:
        raise LoadFailed(f"wrk reported no requests: {output.strip()[-200:]}")
    refused = re.search(r"Non-2xx or 3xx responses: (\d+)", output)
    errors = re.search(r"Socket errors: (.*)", output)
    bad = int(refused[1]) if refused else 0
    bad += sum(int(number) for number in re.findall(r"\d+", errors[1])) if errors else 0
    seconds = float(counted[2]) * MILLISECONDS[counted[3]] / 1e3
    return Served(int(counted[1]), seconds, _percentile(output, 50), _percentile(output, 99), bad)


def _percentile(output: str, percent: int) -> float:
    found = re.search(rf"^\s+{percent}%\s+([\d.]+)(us|ms|s|m)", output, re.MULTILINE)
    return float(found[1]) * MILLISECONDS[found[2]] if found else 0.0


def _tunnels(ground: Ground, target: Target, connections: int, seconds: float) -> Served:
    numbers = [str(target.proxy_port), str(ground.tls_port), str(target.ca_file), str(connections), str(seconds)]
    command = [sys.executable, "-m", "benchmarks.tunnel_load", *numbers, DATA_PATH, target.proxy_authorization]
    served = json.loads(_run(command))
    if served["faults"]:
        print(f"  faults: {served['faults']}", file=sys.stderr)
    return Served(served["requests"], served["seconds"], served["p50_ms"], served["p99_ms"], served["bad"])


def _run(command: list[str]) -> str:
    done = subprocess.run(pinned(LOAD_CORE, command), capture_output=True, text=True)
    if done.returncode:
        raise LoadFailed(f"{command[0]} ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    return done.stdout
