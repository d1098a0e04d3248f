"""Whose connection is this? Asked of the kernel, about real sockets and processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.running.peers import holder_has

SECRET = b"a-session-token-0123456789"
CLIENT = """
import socket, sys
family = socket.AF_INET6 if sys.argv[2] == "mapped" else socket.AF_INET
client = socket.socket(family)
client.connect(("::ffff:127.0.0.1" if family == socket.AF_INET6 else "127.0.0.1", int(sys.argv[1])))
sys.stdin.read()
"""


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(20)
        yield listening


def accepted(server: socket.socket, way: str, environment: dict[str, str]) -> bool:
    """Whether a process with that environment is known by its connection."""
    port = server.getsockname()[1]
    with subprocess.Popen(
        [sys.executable, "-c", CLIENT, str(port), way], env=environment, stdin=subprocess.PIPE
    ) as process:
        taken, peer = server.accept()
        with taken:
            known = holder_has(SECRET, peer, taken.getsockname())
        process.communicate()
        return known


@pytest.mark.parametrize("way", ["plain", "mapped"])
def test_a_process_that_was_given_the_secret_is_known(server: socket.socket, way: str):
    assert accepted(server, way, {"HTTP_PROXY": f"http://agent:{SECRET.decode()}@127.0.0.1:1"})


def test_a_process_that_was_not_given_it_is_not(server: socket.socket):
    assert not accepted(server, "plain", {"HTTP_PROXY": "http://127.0.0.1:1"})


def test_a_connection_of_nobody_is_not(server: socket.socket, tmp_path: Path):
    assert not holder_has(SECRET, ("127.0.0.1", 1), server.getsockname())
    assert not holder_has(SECRET, ("127.0.0.1", 1), server.getsockname(), tmp_path)


def test_a_process_that_knows_the_secret_does_not_vouch_for_others(server: socket.socket):
    """The secret is in another process's environment; the socket is ours."""
    bystander = subprocess.Popen([sys.executable, "-c", "input()"], env={"S": SECRET.decode()}, stdin=subprocess.PIPE)
    with socket.create_connection(server.getsockname()) as client:
        taken, peer = server.accept()
        with taken:
            assert not holder_has(SECRET, peer, taken.getsockname())
        assert client.fileno() > 0
    bystander.communicate()
    assert os.path.exists("/proc/self/environ")
