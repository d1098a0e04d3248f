"""What an application in a pod could do to get past the proxy, tried from inside: `sluicegate doctor --pod`.

Each check is an attempt. Where the firewall refuses, the kernel says so at once (EPERM, EHOSTUNREACH); where it
redirects, the proxy answers with its own header. Anything else means that the way is open.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import click

from proxy.listeners.target import parse_host

PROXY_USER: Final = 64100
SECONDS: Final = 3.0
_NOWHERE_6: Final = "2001:db8::1"
"""A documentation address (RFC 3849): a packet to it is refused here, or lost on its way."""
_REFUSED: Final = frozenset(
    {errno.EPERM, errno.EACCES, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}
)
_PROBE: Final = b"GET / HTTP/1.1\r\nHost: doctor.invalid:%d\r\nConnection: close\r\n\r\n"
_CLUSTER_NAME: Final = "kubernetes.default.svc.cluster.local"


class PodFinding(NamedTuple):
    """One attempt; `ok` says that it failed, as it should."""

    check: str
    ok: bool
    message: str

    def __str__(self) -> str:
        return f"{'ok' if self.ok else 'OPEN':<5} {self.check}: {self.message}"


def target_of(named: str | None, environment: Mapping[str, str]) -> tuple[str, int]:
    """Where direct TCP is tried. Raises UsageError without one: an address where nobody answers would prove nothing."""
    if named is not None:
        host, port = parse_host(named.encode("ascii", "replace"))
        return host, port or 443
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    if not host:
        raise click.UsageError("no cluster's API is named in the environment: name an address with --target HOST:PORT.")
    return host, int(environment.get("KUBERNETES_SERVICE_PORT", "443"))


def examine(target: tuple[str, int], resolv: Path = Path("/etc/resolv.conf")) -> list[PodFinding]:
    """Every attempt, in order."""
    return [_user(), _setuid(), _tcp(target), _udp(target), _ipv6(), _names(_name_server(resolv))]


def _user() -> PodFinding:
    user = os.getuid()
    if user == PROXY_USER:
        return PodFinding("user", False, f"this runs as the proxy's own user {user}, whom nothing stops")
    return PodFinding("user", user != 0, f"this runs as user {user}" + (", who is root" if user == 0 else ""))


def _setuid() -> PodFinding:
    """In a process of its own: a successful change could not be undone."""
    child = os.fork()
    if child == 0:
        try:
            os.setuid(PROXY_USER)
        except OSError:
            os._exit(0)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    changed = os.waitstatus_to_exitcode(status) == 1
    message = "user {} can be taken on: drop all capabilities" if changed else "user {} cannot be taken on"
    return PodFinding("setuid", not changed, message.format(PROXY_USER))


def _tcp(target: tuple[str, int]) -> PodFinding:
    shown = f"{target[0]}:{target[1]}"
    try:
        with socket.create_connection(target, SECONDS) as sock:
            sock.sendall(_PROBE % target[1])
            reply = sock.recv(4_096)
    except TimeoutError:
        return PodFinding("tcp", False, f"{shown} took the connection and stayed silent: it is not the proxy")
    except ConnectionResetError:
        return PodFinding("tcp", False, f"{shown} answered with a reset: it is not the proxy")
    except OSError as error:
        return PodFinding("tcp", error.errno in _REFUSED, f"{shown}: {error.strerror}")
    ours = b"\r\nsluicegate-call-id:" in reply.lower()
    return PodFinding("tcp", ours, f"{shown} was {'answered by the proxy' if ours else 'reached past the proxy'}")


def _udp(target: tuple[str, int]) -> PodFinding:
    return _sent("udp", lambda: _datagram(target[0], 443, b"x"))


def _ipv6() -> PodFinding:
    return _sent("ipv6", lambda: _datagram(_NOWHERE_6, 443, b"x"))


def _sent(check: str, send: Callable[[], None]) -> PodFinding:
    try:
        send()
    except OSError as error:
        return PodFinding(check, error.errno in _REFUSED, f"a datagram: {error.strerror}")
    return PodFinding(check, False, "a datagram left the pod")


def _datagram(host: str, port: int, payload: bytes) -> None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect((host, port))
        sock.send(payload)


def _names(server: str) -> PodFinding:
    """Asks for a name that every cluster has and no policy allows."""
    labels = b"".join(bytes((len(part),)) + part.encode() for part in _CLUSTER_NAME.split("."))
    query = struct.pack("!6H", 0x5347, 0x100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!2H", 1, 1)
    try:
        with socket.socket(socket.AF_INET6 if ":" in server else socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(SECONDS)
            sock.connect((server, 53))
            sock.send(query)
            reply = sock.recv(4_096)
    except TimeoutError:
        return PodFinding("names", False, f"a query to {server} left the pod")
    except OSError as error:
        return PodFinding("names", error.errno in _REFUSED, f"a query to {server}: {error.strerror}")
    missing = len(reply) >= 12 and reply[3] & 15 == 3 and reply[4:6] == b"\0\1"
    return PodFinding("names", missing, f"{_CLUSTER_NAME} {'does not exist' if missing else 'is answered'} here")


def _name_server(resolv: Path) -> str:
    """The first name server (resolv.conf(5)); a well-known address without one."""
    try:
        lines = resolv.read_text().splitlines()
    except OSError:
        lines = []
    servers = [words[1] for line in lines if len(words := line.split()) > 1 and words[0] == "nameserver"]
    return servers[0] if servers else "10.96.0.10"
