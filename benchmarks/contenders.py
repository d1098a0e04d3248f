"""What is measured: how each contender is started, when it is ready, where each scenario's load goes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import preparation, rivals
from benchmarks.ground import DATA_PATH, SIGNED_PATH, Ground, free_port
from benchmarks.processes import accepts, answers_200
from benchmarks.product import Product

REFERENCE = "envoy"


@dataclass(frozen=True, slots=True)
class Target:
    """Where one scenario's load goes: an URL for wrk, or a proxy port and the authority its tunnels' clients trust."""

    url: str = ""
    authorization: str = "Bearer placeholder"
    proxy_port: int = 0
    proxy_authorization: str = ""
    ca_file: Path | None = None


@dataclass(frozen=True, slots=True)
class Contender:
    """One program under test. `targets` has a row for each scenario it can do: plain, tls, tunnel, sigv4."""

    name: str
    command: list[str]
    ready: Callable[[], bool]
    targets: dict[str, Target]
    environment: dict[str, str] = field(default_factory=dict)


def nginx(ground: Ground) -> Contender:
    plain, tls = free_port(), free_port()
    configuration = ground.write("nginx.conf", rivals.nginx_proxy(ground, plain, tls))
    command = [str(preparation.program("nginx")), "-c", str(configuration)]
    return Contender("nginx", command, lambda: accepts(tls), {"plain": _by_url(plain), "tls": _by_url(tls)})


def envoy(ground: Ground, binary: Path) -> Contender:
    plain, tls, tunnel, signed = free_port(), free_port(), free_port(), free_port()
    configuration = ground.write("envoy.json", rivals.envoy(ground, plain, tls, tunnel, signed))
    options = ["--concurrency", "1", "-l", "warn", "--disable-hot-restart"]
    inside = Target(proxy_port=tunnel, ca_file=ground.leaf_ca)
    return Contender(
        REFERENCE,
        [str(binary), *options, "-c", str(configuration)],
        lambda: accepts(tunnel),
        {"plain": _by_url(plain), "tls": _by_url(tls), "tunnel": inside, "sigv4": _by_url(signed, SIGNED_PATH)},
    )


def bare_relay(ground: Ground) -> Contender:
    plain, tls = free_port(), free_port()
    listeners = [f"{plain}={ground.plain_url}", f"{tls}={ground.tls_url}"]
    files = [str(ground.secret_file), str(ground.upstream_ca)]
    command = [sys.executable, "-m", "benchmarks.bare_relay", *files, *listeners]
    return Contender("bare-relay", command, lambda: accepts(tls), {"plain": _by_url(plain), "tls": _by_url(tls)})


def mitmproxy(ground: Ground, mitmdump: Path) -> Contender:
    plain, tls, tunnel = free_port(), free_port(), free_port()
    home = ground.file("mitmproxy")
    home.mkdir(exist_ok=True)
    addon = ground.write("mitmproxy_addon.py", rivals.MITMPROXY_ADDON)
    modes = [f"reverse:{ground.plain_url}@{plain}", f"reverse:{ground.tls_url}@{tls}", f"regular@{tunnel}"]
    command = [str(mitmdump), "-q", "--listen-host", "127.0.0.1", "-s", str(addon)]
    command += [part for mode in modes for part in ("--mode", mode)]
    settings = [
        f"confdir={home}",
        f"bearer_file={ground.secret_file}",
        f"ssl_verify_upstream_trusted_ca={ground.upstream_ca}",
    ]
    command += [part for setting in settings for part in ("--set", setting)]
    inside = Target(proxy_port=tunnel, ca_file=home / "mitmproxy-ca-cert.pem")
    targets = {"plain": _by_url(plain), "tls": _by_url(tls), "tunnel": inside}
    return Contender("mitmproxy", command, lambda: accepts(tunnel) and accepts(tls), targets)


def sluicegate(product: Product) -> Contender:
    base = f"http://127.0.0.1:{product.ports.base_url}"
    bearer = f"Bearer {product.token}"
    inside = Target(
        proxy_port=product.ports.proxy,
        proxy_authorization="" if product.identity == "static" else bearer,
        ca_file=product.ca_file,
    )
    return Contender(
        "sluicegate",
        product.command,
        lambda: answers_200(product.ready_url),
        {
            "plain": Target(f"{base}/plain{DATA_PATH}", bearer),
            "tls": Target(f"{base}/tls{DATA_PATH}", bearer),
            "tunnel": inside,
            "sigv4": Target(f"{base}/signed{SIGNED_PATH}", bearer),
        },
    )


def _by_url(port: int, path: str = DATA_PATH) -> Target:
    return Target(f"http://127.0.0.1:{port}{path}")
