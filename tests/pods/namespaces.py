"""Pods as network namespaces: a network that upstreams stand in, and pods joined to it by veth pairs.

The proxy runs in a pod as user 64100, applications as user 1000, neither with a capability that counts there: what
lets both read the interpreter's files below root's home is CAP_DAC_READ_SEARCH.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.flows.product import REPOSITORY, Product, command, environment

T = TypeVar("T")
PROXY, APP = 64100, 1000
CLONE_NEWNET = 0x40000000
_numbers = itertools.count(1)
NFT = shutil.which("nft", path="/usr/sbin:/sbin:/usr/bin:/bin")
IP = shutil.which("ip", path="/usr/sbin:/sbin:/usr/bin:/bin")


NAT = """
table inet probe {
  chain redirected {
    type nat hook output priority -100; policy accept;
    meta l4proto tcp redirect to :1
  }
}
"""


def run(*words: str, check: bool = True, stdin: str = "") -> subprocess.CompletedProcess[str]:
    done = subprocess.run(words, input=stdin, capture_output=True, text=True, timeout=30)
    assert not check or done.returncode == 0, (words, done.stdout, done.stderr)
    return done


def skip_where_not_permitted() -> None:
    if IP is None or NFT is None or shutil.which("setpriv") is None:
        pytest.skip("iproute2, nftables and setpriv are needed")
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    probe = f"sg-probe-{os.getpid()}"
    if run(IP, "netns", "add", probe, check=False).returncode:
        pytest.skip("this machine permits no network namespaces")
    try:
        done = run(IP, "netns", "exec", probe, NFT, "-f", "-", stdin=NAT, check=False)
        if done.returncode:
            pytest.skip(f"this machine's kernel has no nftables NAT: {done.stderr.strip()}")
    finally:
        run(IP, "netns", "del", probe)


def as_user(user: int) -> list[str]:
    """A prefix that drops to a user who has no capability but reading the interpreter's files."""
    return [
        "setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--no-new-privs",
        "--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search",
    ]  # fmt: skip


class Network:
    """The outside: a namespace with a bridge. Upstreams are made with `inside`."""

    def __init__(self) -> None:
        self.name = f"sg-net-{os.getpid()}-{next(_numbers)}"
        self.v4, self.v6 = "10.99.0.1", "fd99::1"
        self._pods: list[Pod] = []

    def __enter__(self) -> Network:
        ip = str(IP)
        run(ip, "netns", "add", self.name)
        run(ip, "-n", self.name, "link", "set", "lo", "up")
        run(ip, "-n", self.name, "link", "add", "br0", "type", "bridge")
        run(ip, "-n", self.name, "addr", "add", f"{self.v4}/16", "dev", "br0")
        run(ip, "-n", self.name, "addr", "add", "10.99.0.2/16", "dev", "br0")
        run(ip, "-n", self.name, "addr", "add", f"{self.v6}/64", "dev", "br0", "nodad")
        run(ip, "-n", self.name, "link", "set", "br0", "up")
        return self

    def __exit__(self, *_: object) -> None:
        for pod in self._pods:
            pod.close()
        run(str(IP), "netns", "del", self.name)

    def inside(self, make: Callable[[], T]) -> T:
        return in_namespace(self.name, make)

    def pod(self, hosts: Sequence[str]) -> Pod:
        pod = Pod(self, len(self._pods) + 2, hosts)
        self._pods.append(pod)
        return pod


class Pod:
    """One pod: its own loopback, one interface, default routes, and a hosts file that only the proxy sees."""

    def __init__(self, network: Network, number: int, hosts: Sequence[str]) -> None:
        self.name = f"sg-pod-{os.getpid()}-{next(_numbers)}"
        self.v4 = f"10.99.1.{number}"
        ip, net = str(IP), network.name
        run(ip, "netns", "add", self.name)
        run(ip, "-n", self.name, "link", "set", "lo", "up")
        outer = f"v{number}"
        run(ip, "-n", net, "link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        run(ip, "-n", net, "link", "set", outer, "master", "br0", "up")
        run(ip, "-n", self.name, "addr", "add", f"{self.v4}/16", "dev", "eth0")
        run(ip, "-n", self.name, "addr", "add", f"fd99::{number}/64", "dev", "eth0", "nodad")
        run(ip, "-n", self.name, "link", "set", "eth0", "up")
        run(ip, "-n", self.name, "route", "add", "default", "via", network.v4)
        run(ip, "-n", self.name, "-6", "route", "add", "default", "via", network.v6)
        self._etc = Path("/etc/netns") / self.name
        self._etc.mkdir(parents=True)
        (self._etc / "hosts").write_text("".join(f"{line}\n" for line in ("127.0.0.1 localhost", *hosts)))

    def close(self) -> None:
        run(str(IP), "netns", "del", self.name)
        shutil.rmtree(self._etc)

    @property
    def proxy_prefix(self) -> list[str]:
        return [str(IP), "netns", "exec", self.name, *as_user(PROXY)]

    def app(
        self, *words: str, user: int = APP, within: float = 30, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs a program as the application: no proxy variable, the machine's own hosts file and name servers."""
        prefix = ["nsenter", f"--net=/run/netns/{self.name}", *as_user(user)]
        env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "PYTHONPATH": str(REPOSITORY), **variables}
        return subprocess.run([*prefix, *words], capture_output=True, text=True, timeout=within, env=env)

    def python(self, body: str, *arguments: str) -> Any:
        """Runs Python as the application; what its function `main(*arguments)` returns, by way of JSON."""
        script = f"import json, socket, ssl, sys\n{body}\nprint(json.dumps(main(*sys.argv[1:])))"
        done = self.app(sys.executable, "-c", script, *arguments)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def close_off(self, config: Path) -> None:
        """What the init container does."""
        done = subprocess.run(
            [str(IP), "netns", "exec", self.name, *command("firewall", "--apply", "--config", str(config))],
            capture_output=True, text=True, timeout=30, env=environment(),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


def in_namespace(name: str, make: Callable[[], T]) -> T:
    """Calls `make` on a thread that is in a network namespace; sockets stay in the one they were made in."""
    found: list[T] = []
    failed: list[BaseException] = []

    def enter() -> None:
        try:
            descriptor = os.open(f"/run/netns/{name}", os.O_RDONLY)
            try:
                if ctypes.CDLL(None, use_errno=True).setns(descriptor, CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "setns")
            finally:
                os.close(descriptor)
            found.append(make())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return found[0]


Folders = Callable[[], Path]
"""Makes a folder that the proxy's user can come to: those of the tests' own are root's alone."""


class PodProduct(Product):
    """The product in a pod: as its own user, with the transparent listeners and the firewall in force."""

    WAYS = (
        {"kind": "transparent", "bind": "127.0.0.1:18403", "names": {"bind": "127.0.0.1:18453"}},
        {"kind": "transparent", "bind": "[::1]:18403", "names": {"bind": "[::1]:18453"}},
    )

    def __init__(
        self, pod: Pod, folder: Path, *parts: Any, explicit: bool = False, closed: bool = True, **more: Any
    ) -> None:
        super().__init__(folder, *parts, **more)
        self.pod = pod
        self.closed = closed
        self.program = (*pod.proxy_prefix, sys.executable, "-m", "proxy")
        self.proxy, self.base, self.ops = 18400, 18401, 18490
        ways = [{"kind": "proxy", "bind": "127.0.0.1:18400"}, *([] if explicit else self.WAYS)]
        self.settings = {"listeners": ways, **self.settings}

    def write(self) -> None:
        super().write()
        for path in (self.folder, *self.folder.rglob("*")):
            os.chown(path, PROXY, PROXY)

    def start(self, *, ready: bool = True) -> None:
        if self.closed:
            self.pod.close_off(self.config)
        super().start(ready=ready)

    def ops_get(self, path: str) -> tuple[int, str]:
        return in_namespace(self.pod.name, lambda: super(PodProduct, self).ops_get(path))

    @property
    def trusted(self) -> str:
        """A copy of the authority's certificate that the application may read."""
        copy = self.folder / "app-ca.pem"
        copy.write_text(self.ca_certificate())
        copy.chmod(0o644)
        return str(copy)
