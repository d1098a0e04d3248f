"""A pod as the webhook makes it, run as the kubelet would: init containers in order, the sidecar, then the application.

Each container is a process in the pod's network namespace with a mount namespace of its own, in which /run holds the
volumes that its spec mounts and nothing else.
"""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.webhook.configuration import Injection, WebhookSettings
from tests.flows.conftest import Authority
from tests.flows.product import REPOSITORY, as_yaml, eventually, policy
from tests.flows.upstreams import Upstream
from tests.pods.namespaces import IP, PROXY, Folders, Network, Pod, as_user, in_namespace
from tests.pods.test_transparent import At
from tests.webhook.pods import DOCUMENT, FLOOR, Json, annotated, container, inject, named, pod

NAME = "api.pod.example"
NETWORKS = ["10.99.0.0/16"]
ALLOW = [{"name": "api", "host": NAME, "networks": NETWORKS, "credential": {"name": "api", "header": "X-Key"}}]
NET_ADMIN = ["setpriv", "--bounding-set=-all,+net_admin,+dac_read_search", "--no-new-privs"]
SETTINGS = {
    "store": {"kind": "directory", "path": "/run/sluicegate-policies/records"},
    "policies": {"dirs": ["/run/sluicegate-policies"], "floor": "/run/sluicegate-config/floor"},
}


class Kubelet:
    """Runs the containers of one pod."""

    def __init__(self, namespace: Pod, spec: Json, volumes: Path) -> None:
        self.namespace = namespace
        self.spec = spec
        self.volumes = volumes
        for volume in spec["volumes"]:
            folder = volumes / volume["name"]
            folder.mkdir(exist_ok=True)
            folder.chmod(0o777)

    def command(self, name: str, *words: str) -> list[str]:
        """What runs a container: its own words, or the image's entry point with the spec's arguments."""
        one = named(self.spec["initContainers"] + self.spec["containers"])[name]
        context = one["securityContext"]
        ran = words or (sys.executable, "-m", "proxy", *one["args"])
        script = ["set -e", f"mkdir -p {self.volumes}/empty", "mount -t tmpfs tmpfs /run"]
        for mount in one.get("volumeMounts", ()):
            place = mount["mountPath"].replace("/etc/", "/run/").replace("/var/run/", "/run/")
            source = self.volumes / mount["name"]
            script += [f"mkdir -p {place}", f"mount --bind {source} {place}"]
            script += [f"mount -o remount,bind,ro {place}"] if mount.get("readOnly") else []
        user = context["runAsUser"]
        dropped = (
            as_user(user) if user else ["setpriv", "--bounding-set=-all,+net_admin,+dac_read_search", "--no-new-privs"]
        )
        script.append(f"exec {shlex.join([*dropped, *ran])}")
        return [str(IP), "netns", "exec", self.namespace.name, "unshare", "--mount", "sh", "-c", "\n".join(script)]

    def environment(self, name: str) -> dict[str, str]:
        one = named(self.spec["initContainers"] + self.spec["containers"])[name]
        variables = {entry["name"]: entry["value"] for entry in one.get("env", ())}
        return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": str(REPOSITORY), **variables}

    def run(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(name, *words), env=self.environment(name), capture_output=True, text=True, timeout=60
        )

    def start(self, name: str) -> subprocess.Popen[bytes]:
        log = (self.volumes / "log").open("ab")
        return subprocess.Popen(self.command(name), env=self.environment(name), stdout=log, stderr=log)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def upstream(network: Network, authority: Authority) -> Iterator[Upstream]:
    tls = authority.context(NAME)
    with network.inside(lambda: At("10.99.0.1", 443, tls)) as found:
        yield found


def kubelet(network: Network, authority: Authority, volumes: Path) -> Kubelet:
    profile = {"settings": SETTINGS, "placeholders": ["slack"]}
    settings = WebhookSettings.model_validate({**DOCUMENT, "profiles": {"default": profile}})
    injection = Injection(settings, {"floor.yaml": FLOOR}, authority.pem.decode())
    spec = inject(annotated(pod(containers=[container()])), "team-a", injection)["spec"]
    found = Kubelet(network.pod([f"10.99.0.1 {NAME}"]), spec, volumes)
    policies = volumes / "sluicegate-policies"
    (policies / "bot.yaml").write_text(as_yaml(policy(ALLOW)))
    record = policies / "records" / "tenants" / "team-a" / "api"
    record.parent.mkdir(parents=True)
    record.write_text(json.dumps({"kind": "api_key", "value": "key-of-team-a", "hosts": [NAME]}))
    record.chmod(0o600)
    shutil.chown(record, PROXY)
    return found


def ready(given: Kubelet) -> bool:
    def asked() -> bytes:
        with socket.create_connection(("127.0.0.1", 18490), 2) as sock:
            sock.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
            return sock.recv(64)

    try:
        return b" 200 " in in_namespace(given.namespace.name, asked)
    except OSError:
        return False


def test_a_pods_life(network: Network, authority: Authority, upstream: Upstream, folders: Folders) -> None:
    """Start, calls with and without proxy variables, a killed sidecar, the end of a Job, and what is out of reach."""
    given = kubelet(network, authority, folders())
    for name in ("sluicegate-prepare", "sluicegate-firewall"):
        done = given.run(name)
        assert done.returncode == 0, done.stderr
    sidecar = given.start("sluicegate")
    try:
        _started(given, sidecar)
        _calls(given, upstream)
        _what_is_out_of_reach(given)
        sidecar.kill()
        sidecar.wait(10)
        assert given.run("app", "curl", "-sS", f"https://{NAME}/").returncode != 0, "nothing leaves without the sidecar"
        sidecar = given.start("sluicegate")
        _started(given, sidecar)
        _calls(given, upstream)
        # The application has ended, as a Job's does; the sidecar is told last, and ends.
        sidecar.send_signal(signal.SIGTERM)
        assert sidecar.wait(20) == 0
    finally:
        if sidecar.poll() is None:
            sidecar.kill()
            sidecar.wait(10)


def _started(given: Kubelet, sidecar: subprocess.Popen[bytes]) -> None:
    def probe() -> bool:
        assert sidecar.poll() is None, (given.volumes / "log").read_text()
        return ready(given)

    eventually(probe, within=20)


def _calls(given: Kubelet, upstream: Upstream) -> None:
    upstream.forget()
    for words in (("curl", "-sS"), ("env", "-u", "HTTPS_PROXY", "-u", "https_proxy", "curl", "-sS")):
        done = given.run("app", *words, f"https://{NAME}/")
        assert done.returncode == 0, done.stderr
    assert [request.all("X-Key") for request in upstream.requests] == [["key-of-team-a"]] * 2


def _what_is_out_of_reach(given: Kubelet) -> None:
    seen: Any = given.run("app", "sh", "-c", "ls /run; cat /run/sluicegate/ca/ca.key; touch /run/sluicegate-trust/x")
    assert set(seen.stdout.split()) <= {"sluicegate-trust", "mount"}, "mount is what mount(8) leaves behind"
    assert "Read-only" in seen.stderr
    refused = given.run("app", "curl", "-sS", "-X", "DELETE", f"https://{NAME}/")
    assert "policy_denied" in refused.stdout, "the operator's floor holds"
    assert given.run(
        "app", "env", "-u", "HTTPS_PROXY", "-u", "https_proxy", "curl", "-sS", "https://10.99.0.1/"
    ).returncode
