"""The product as a process: a folder of configuration, `sluicegate serve`, its ports, its audit lines, its end."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.flows.upstreams import Upstream
from tests.flows.wire import Client, Reply

REPOSITORY = Path(__file__).resolve().parents[2]
LOOPBACK = ["127.0.0.0/8", "::1/128"]
TENANT = "acme"
AGENT = "support-bot"


def eventually(probe: Callable[[], Any], within: float = 6.0, pause: float = 0.02) -> Any:
    """The first true value of `probe`."""
    deadline = time.monotonic() + within
    while True:
        value = probe()
        if value:
            return value
        assert time.monotonic() < deadline, f"never came true: {probe}"
        time.sleep(pause)


class WrittenOut(yaml.SafeDumper):
    """YAML without aliases."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def as_yaml(document: Any) -> str:
    return str(yaml.dump(document, Dumper=WrittenOut, sort_keys=False))


def free_port() -> int:
    """A port below the ephemeral range, so that no upstream or client of another test takes it first."""
    for _ in range(200):
        port = random.randint(20000, 32000)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no free port")


def rule(name: str, upstream: Upstream, **more: Any) -> dict[str, Any]:
    """An allow rule for one upstream of the tests, reachable on loopback; its name is its base-URL segment."""
    plain = {} if upstream.tls else {"plaintext": True}
    return {"name": name, "host": upstream.host, "port": upstream.port, "networks": LOOPBACK, **plain, **more}


def policy(allow: Sequence[Mapping[str, Any]], deny: Sequence[Mapping[str, Any]] = (), **more: Any) -> dict[str, Any]:
    document = {
        "apiVersion": "sluicegate/v1",
        "kind": "EgressPolicy",
        "metadata": {"name": "flows"},
        "subjects": [{"tenant": "*", "agent": "*"}],
        "allow": [dict(one) for one in allow],
        **more,
    }
    if deny:
        document["deny"] = [dict(one) for one in deny]
    return document


def record(kind: str, *hosts: str, **fields: Any) -> dict[str, Any]:
    return {"kind": kind, "hosts": list(hosts), **fields}


def environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "COVERAGE_PROCESS_START") if name in os.environ}
    return {**kept, "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1"}


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "proxy", *words]


class Product:
    """One instance in `folder`. Use as a context manager: started and ready inside, stopped after."""

    program: tuple[str, ...] = (sys.executable, "-m", "proxy")
    """What `serve` is run with; a test may put a program in its place that changes the process first."""

    def __init__(
        self,
        folder: Path,
        allow: Sequence[Mapping[str, Any]] = (),
        records: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        deny: Sequence[Mapping[str, Any]] = (),
        documents: Sequence[Mapping[str, Any]] = (),
        extra_ca: bytes | None = None,
        **settings: Any,
    ) -> None:
        self.folder = folder
        self.records = records or {}
        self.documents = list(documents) or [policy(allow, deny)]
        self.extra_ca = extra_ca
        self.settings = settings
        self.proxy = free_port()
        self.base = free_port()
        self.ops = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self._context: ssl.SSLContext | None = None

    # -- the folder -----------------------------------------------------------------------------------------------
    @property
    def config(self) -> Path:
        return self.folder / "sluicegate.yaml"

    def write(self) -> None:
        settings: dict[str, Any] = {
            "listeners": [
                {"kind": "proxy", "bind": f"127.0.0.1:{self.proxy}"},
                {"kind": "base-url", "bind": f"127.0.0.1:{self.base}"},
            ],
            "ops": f"127.0.0.1:{self.ops}",
            "control": "unix:./run/control.sock",
            "identity": [{"kind": "static", "tenant": TENANT, "agent": AGENT}],
            "store": {"kind": "file", "path": "./secrets.enc", "key_file": "./secrets.key"},
            "policies": {"dirs": ["./policies"]},
            "ca": {"dir": "./ca"},
            "audit": {"sink": "file", "path": "./audit.jsonl"},
        }
        if self.extra_ca:
            (self.folder / "upstream-ca.pem").write_bytes(self.extra_ca)
            settings["upstream"] = {"extra_ca_file": "./upstream-ca.pem"}
        settings.update(self.settings)
        self.config.write_text(as_yaml(settings))
        (self.folder / "policies").mkdir(exist_ok=True)
        for number, document in enumerate(self.documents):
            (self.folder / "policies" / f"{number}.yaml").write_text(as_yaml(dict(document)))
        if self.records:
            self.run("secrets", "import", "-", stdin=json.dumps(self._record_paths()).encode())

    def _record_paths(self) -> dict[str, Any]:
        return {path if "/" in path else f"tenants/{TENANT}/{path}": dict(one) for path, one in self.records.items()}

    def run(self, *words: str, stdin: bytes = b"", check: bool = True) -> subprocess.CompletedProcess[bytes]:
        """A `sluicegate` command with this instance's configuration."""
        done = subprocess.run(
            [*command(*words), "--config", str(self.config)],
            input=stdin, capture_output=True, timeout=30, cwd=self.folder, env=environment(),
        )  # fmt: skip
        assert not check or done.returncode == 0, (words, done.stdout, done.stderr)
        return done

    # -- the process ----------------------------------------------------------------------------------------------
    def start(self, *, ready: bool = True) -> None:
        with (self.folder / "out.log").open("ab") as out, (self.folder / "diagnostics.log").open("ab") as diagnostics:
            self.process = subprocess.Popen(
                [*self.program, "serve", "--config", str(self.config)],
                stdin=subprocess.DEVNULL, stdout=out, stderr=diagnostics, cwd=self.folder, env=environment(),
            )  # fmt: skip
        if ready:
            eventually(self._is_ready, within=20)

    def _is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.diagnostics()
        return self.ops_get("/readyz")[0] == 200

    def ops_get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
                f"http://127.0.0.1:{self.ops}{path}", timeout=5
            ) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()
        except OSError:
            return 0, ""

    def stop(self, within: float = 15.0) -> int:
        """SIGTERM; the exit status."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(within)

    def _end(self) -> None:
        """At a test's end: SIGTERM, which a second one hurries on."""
        if self.process is None:
            return
        for patience in (2.0, 3.0):
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGTERM)
                try:
                    self.process.wait(patience)
                except subprocess.TimeoutExpired:
                    continue
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(5)

    def __enter__(self) -> Product:
        self.write()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    # -- what it says ---------------------------------------------------------------------------------------------
    def diagnostics(self) -> str:
        return (self.folder / "diagnostics.log").read_text() + (self.folder / "out.log").read_text()

    def audit(self) -> list[dict[str, Any]]:
        path = self.folder / "audit.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def audited(self, call_id: str) -> dict[str, Any]:
        """The closing line of a call."""
        line: dict[str, Any] = eventually(
            lambda: next((line for line in self.audit() if is_closing(line, call_id)), None)
        )
        return line

    def metric(self, name: str, **labels: str) -> float:
        """Sum of the samples of a metric whose labels include those given."""
        total = 0.0
        for line in self.ops_get("/metrics")[1].splitlines():
            matches = line.startswith(name) and line[len(name)] in " {"
            if matches and all(f'{key}="{value}"' in line for key, value in labels.items()):
                total += float(line.rsplit(" ", 1)[1])
        return total

    # -- clients --------------------------------------------------------------------------------------------------
    def trust(self) -> ssl.SSLContext:
        """What a strict client (Python 3.13) makes of this instance's CA."""
        if self._context is None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.verify_flags |= ssl.VERIFY_X509_STRICT
            context.load_verify_locations(cadata=self.ca_certificate())
            self._context = context
        return self._context

    def ca_certificate(self) -> str:
        return (self.folder / "ca" / "ca.crt").read_text()

    def client(self, timeout: float = 5.0) -> Client:
        """A connection to the proxy listener."""
        return Client.to(self.proxy, timeout=timeout)

    def base_client(self, timeout: float = 5.0) -> Client:
        """A connection to the base-URL listener."""
        return Client.to(self.base, timeout=timeout)

    def tunnel(self, upstream: Upstream, *, host: str | None = None, tls: bool = True, timeout: float = 5.0) -> Client:
        """A CONNECT tunnel to an upstream, with TLS inside when `tls`."""
        client = self.client(timeout)
        name = host or upstream.host
        reply = client.connect(f"{name}:{upstream.port}")
        assert reply.status == 200, (reply.head, reply.body)
        return client.start_tls(self.trust(), name) if tls else client

    def get(self, upstream: Upstream, path: str = "/", *lines: bytes, method: str = "GET", body: bytes = b"") -> Reply:
        """One absolute-form call on a connection of its own."""
        with self.client() as client:
            return client.ask(absolute(upstream, path, *lines, method=method, body=body), method)


def is_closing(line: Mapping[str, Any], call_id: str) -> bool:
    return line.get("call_id") == call_id and line.get("outcome") in ("ok", "error", "denied", "canceled")


def absolute(upstream: Upstream, path: str, *lines: bytes, method: str = "GET", body: bytes = b"") -> bytes:
    """A request in absolute-form, as a client of a plain-http proxy sends it."""
    target = f"http://{upstream.authority}{path}".encode("latin-1")
    return compose(method, target, upstream.authority, *lines, body=body)


def origin(upstream: Upstream, path: str, *lines: bytes, method: str = "GET", body: bytes = b"") -> bytes:
    """A request in origin-form, as it stands inside a tunnel."""
    return compose(method, path.encode("latin-1"), upstream.authority, *lines, body=body)


def compose(method: str, target: bytes, host: str, *lines: bytes, body: bytes = b"") -> bytes:
    length = (b"Content-Length: %d" % len(body),) if body or method in ("POST", "PUT", "PATCH") else ()
    head = [b"%s %s HTTP/1.1" % (method.encode(), target), b"Host: " + host.encode(), *lines, *length]
    return b"\r\n".join(head) + b"\r\n\r\n" + body
