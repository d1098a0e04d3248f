"""Whose connection was redirected, read from the kernel's own tables."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from proxy.listeners.original_destination import Redirected, original_destination, owner


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_a_connection_that_nothing_redirected_has_no_destination(family: int, address: str) -> None:
    with (
        socket.create_server((address, 0), family=family) as server,
        socket.create_connection(server.getsockname()[:2]) as client,
    ):
        accepted, peer = server.accept()
        with accepted:
            assert original_destination(accepted) is None
            assert owner(peer[:2], Redirected(*server.getsockname()[:2])) == os.getuid()
            assert owner(("192.0.2.1", 1), Redirected("192.0.2.2", 2)) is None
        assert client.fileno() >= 0


def test_without_the_kernels_table_nobody_is_the_owner(tmp_path: Path) -> None:
    assert owner(("127.0.0.1", 1), Redirected("127.0.0.1", 2), tmp_path) is None
