"""What the tests of whole commands share: an upstream that records what reaches it, and a folder to run from."""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import trustme
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
NAMED = [sys.executable, str(Path(__file__).with_name("named.py"))]
INTERCEPTED = "api.shop.test"
TUNNELLED = "files.shop.test"
CANARY = "sk-canary-0f3b9a62c1d84e57"
LOOPBACK = ["127.0.0.0/8"]


class Upstream:
    """An https server for every name below shop.test; `seen` holds (method, path, headers) of each request."""

    def __init__(self, authority: trustme.CA) -> None:
        self.seen: list[tuple[str, str, dict[str, str]]] = []
        self.files: dict[str, bytes] = {}
        upstream = self

        class Answer(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                upstream.seen.append((self.command, self.path, headers))
                self.rfile.read(int(headers.get("content-length", 0)))
                body = upstream.files.get(self.path.partition("?")[0], b"" if "no-body" in self.path else b"hello\n")
                known = self.path.partition("?")[0] in upstream.files or not upstream.files
                self.send_response(200 if known else 404)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Content-Type", "text/html" if self.path.endswith("/") else "application/octet-stream")
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_PUT = do_GET

            def log_message(self, *_: object) -> None:
                pass

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("*.shop.test").configure_cert(context)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self._server.daemon_threads = True
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def url(self, host: str, path: str = "/x") -> str:
        return f"https://{host}:{self.port}{path}"


def policy(upstream: Upstream, *allow: Mapping[str, Any]) -> dict[str, Any]:
    rules = allow or (
        {
            "name": "shop",
            "host": INTERCEPTED,
            "port": upstream.port,
            "networks": [*LOOPBACK],
            "credential": {"name": "shop", "header": "X-Shop-Key"},
        },
        {"name": "files", "tunnel": f"{TUNNELLED}:{upstream.port}", "networks": [*LOOPBACK], "reason": "pinned"},
    )
    return {
        "apiVersion": "sluicegate/v1",
        "kind": "EgressPolicy",
        "metadata": {"name": "shop"},
        "subjects": [{"tenant": "*", "agent": "*"}],
        "allow": [dict(rule) for rule in rules],
    }


class Stand:
    """A configuration in a folder."""

    program: Sequence[str] = NAMED
    """The product, with the names that its tests want."""

    def __init__(self, folder: Path, upstream: Upstream, authority: trustme.CA, **settings: Any) -> None:
        self.folder = folder
        self.upstream = upstream
        self.config = folder / "sluicegate.yaml"
        (folder / "policies").mkdir()
        (folder / "roots.pem").write_bytes(authority.cert_pem.bytes())
        document = {
            "identity": [{"kind": "static", "tenant": "acme", "agent": "bot"}],
            "upstream": {"extra_ca_file": "./roots.pem"},
            "audit": {"sink": "file", "path": "./audit.jsonl"},
            **settings,
        }
        self.config.write_text(yaml.safe_dump(document, sort_keys=False))
        self.write_policy(policy(upstream))
        self.store({"tenants/acme/shop": {"kind": "api_key", "value": CANARY, "hosts": [INTERCEPTED]}})

    def write_policy(self, document: Mapping[str, Any]) -> None:
        (self.folder / "policies" / "shop.yaml").write_text(yaml.safe_dump(dict(document), sort_keys=False))

    def store(self, records: Mapping[str, Any]) -> None:
        done = self.command("secrets", "import", "-", "--config", str(self.config), stdin=json.dumps(records))
        assert done.returncode == 0, done.stderr

    def command(
        self, *words: str, stdin: str = "", environment: Mapping[str, str] | None = None, timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """A `sluicegate` command that ends by itself."""
        return subprocess.run(
            [*self.program, *words], input=stdin, capture_output=True, text=True, timeout=timeout, cwd=self.folder,
            env=self.environment(environment or {}),
        )  # fmt: skip

    def run(
        self, *command: str, options: Sequence[str] = ("--quiet",), environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """`sluicegate run` of a command."""
        return self.command("run", "--config", str(self.config), *options, "--", *command, environment=environment)

    def environment(self, more: Mapping[str, str]) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        return {**kept, "HOME": str(self.folder), "PYTHONPATH": str(REPOSITORY), **more}

    def audit(self) -> list[dict[str, Any]]:
        path = self.folder / "audit.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


PRINT_ENVIRONMENT = """
import json, os, signal, sys
report = {
    "variables": dict(os.environ),
    "descriptors": sorted(int(name) for name in os.listdir("/proc/self/fd")),
    "umask": os.umask(0),
    "masked": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
}
print(json.dumps(report), flush=True)
sys.stdin.read()
"""


class Running:
    """A `sluicegate run` that goes on until `stop`; `variables` is the environment its command was given."""

    def __init__(self, stand: Stand, options: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> None:
        self.stand = stand
        words = ["run", "--config", str(stand.config), *options, "--", sys.executable, "-c", PRINT_ENVIRONMENT]
        self.process = subprocess.Popen(
            [*stand.program, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            cwd=stand.folder, env=stand.environment(environment or {}),
        )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(self.process.communicate()[1])
        self.report: dict[str, Any] = json.loads(line)
        self.variables: dict[str, str] = self.report["variables"]

    def client(
        self, *command: str, cwd: Path | None = None, timeout: float = 60, **more: str
    ) -> subprocess.CompletedProcess[str]:
        """A client as the command would have started it."""
        return subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, cwd=cwd or self.stand.folder,
            env={**self.variables, **more}, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def stop(self) -> tuple[int, str]:
        """Lets the command end; exit code and standard error."""
        _, said = self.process.communicate(timeout=30)
        return self.process.returncode, said


class Serving:
    """A `sluicegate serve` of a stand, on ports of its own. A context manager: ready inside, stopped after."""

    def __init__(self, stand: Stand) -> None:
        self.stand = stand
        self.socket = stand.folder / "run" / "control.sock"
        document = yaml.safe_load(stand.config.read_text())
        document["listeners"] = [{"kind": kind, "bind": "127.0.0.1:0"} for kind in ("proxy", "base-url")]
        document["ops"] = "127.0.0.1:0"
        stand.config.write_text(yaml.safe_dump(document, sort_keys=False))

    def __enter__(self) -> Serving:
        self.log = (self.stand.folder / "diagnostics.log").open("w+")
        self.process = subprocess.Popen(
            [*self.stand.program, "serve", "--config", str(self.stand.config)], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=self.log, cwd=self.stand.folder, env=self.stand.environment({}),
        )  # fmt: skip
        eventually(lambda: self._up() and self.status()["ready"], 30)
        proxy, base = (listener["port"] for listener in self.status()["listeners"])
        self.proxy, self.base = f"http://127.0.0.1:{proxy}", f"http://127.0.0.1:{base}"
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(3)
        except subprocess.TimeoutExpired:
            self.process.terminate()  # the second time at once
            self.process.wait(10)
        self.log.close()

    def _up(self) -> bool:
        assert self.process.poll() is None, self.diagnostics()
        return self.socket.exists()

    def diagnostics(self) -> str:
        return (self.stand.folder / "diagnostics.log").read_text()

    def status(self) -> dict[str, Any]:
        return self.control("GET", "/status")[1]

    def control(self, method: str, path: str, /, **asked: str) -> tuple[int, dict[str, Any]]:
        """One question to the operator's socket."""
        body = json.dumps(asked).encode()
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(10)
            client.connect(str(self.socket))
            client.sendall(
                b"%s %s HTTP/1.1\r\nHost: control\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
                % (method.encode(), path.encode(), len(body)) + body
            )  # fmt: skip
            received = b""
            while piece := client.recv(65_536):
                received += piece
        head, _, body = received.partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(body)

    def get(self, path: str) -> tuple[int, bytes]:
        """One call on the base-URL listener, on a connection of its own."""
        client = http.client.HTTPConnection(self.base.removeprefix("http://"), timeout=10)
        try:
            client.request("GET", path)
            reply = client.getresponse()
            return reply.status, reply.read()
        finally:
            client.close()


def eventually(probe: Callable[[], Any], within: float = 10.0) -> Any:
    """The first true value of `probe`."""
    deadline = time.monotonic() + within
    while not (value := probe()):
        assert time.monotonic() < deadline, "never came true"
        time.sleep(0.02)
    return value
