"""A node without IPv6: the sidecar's listener for redirected IPv6 connections is left out, and nothing else is."""

from __future__ import annotations

import errno
import socket
from types import SimpleNamespace
from typing import Any, cast

import pytest

from proxy.app import Instance
from proxy.listeners.sockets import bound_socket, unheard


def instance(*listeners: tuple[str, str]) -> Instance:
    services = [
        (SimpleNamespace(kind=kind, bind=SimpleNamespace(host=host, port=0)), object()) for kind, host in listeners
    ]
    return cast(Instance, SimpleNamespace(services=services))


def without_ipv6(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def bind(host: str, port: int) -> socket.socket:
        if ":" in host:
            raise unheard(host, port, OSError(number, ""))
        return bound_socket(host, port)

    monkeypatch.setattr("proxy.app.bound_socket", bind)


def bind(given: Instance) -> list[Any]:
    """Binds, closes again, and tells which listeners are left to serve."""
    for sock in Instance._bind(given):
        sock.close()
    return [(listener.kind, listener.bind.host) for listener, _ in given.services]


@pytest.mark.parametrize("number", [errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT])
def test_a_pod_on_a_node_without_ipv6_starts_with_what_there_is(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    without_ipv6(monkeypatch, number)
    given = instance(("proxy", "127.0.0.1"), ("transparent", "127.0.0.1"), ("transparent", "::1"))
    assert bind(given) == [("proxy", "127.0.0.1"), ("transparent", "127.0.0.1")]


def test_a_port_that_is_taken_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    without_ipv6(monkeypatch, errno.EADDRINUSE)
    with pytest.raises(OSError, match="cannot listen on"):
        bind(instance(("transparent", "127.0.0.1"), ("transparent", "::1")))


def test_another_listener_without_its_address_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    without_ipv6(monkeypatch, errno.EADDRNOTAVAIL)
    with pytest.raises(OSError, match="cannot listen on"):
        bind(instance(("proxy", "::1")))
