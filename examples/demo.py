"""The main job on one screen: an agent that holds no key calls an API, and the call arrives with the tenant's key.

Makes everything it needs in a temporary folder and removes it: a throw-away upstream with TLS that echoes what it
received, a configuration, one policy, one credential in the embedded store, and the proxy. Then unmodified clients
(Python's urllib in a process of its own) call through it. Exits 1 when anything is not as it should be.

usage: make demo
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))  # runs from a clone that is not installed

from proxy.listeners.certificates import Authority, authority_certificate, generate_key, leaf_certificate  # noqa: E402
from proxy.listeners.server_contexts import server_context  # noqa: E402

DUMMY_KEY = "dummy-key-of-the-agent"
REAL_KEY = "sk-demo-" + secrets.token_hex(16)
PATIENCE_S = 20.0

CLIENT = """
import os, sys, json, urllib.error, urllib.request
method, url = sys.argv[1:]
request = urllib.request.Request(url, method=method, headers={"Authorization": "Bearer " + os.environ["API_KEY"]})
try:
    with urllib.request.urlopen(request, timeout=10) as reply:
        status, headers, body = reply.status, dict(reply.headers), reply.read().decode()
except urllib.error.HTTPError as refusal:
    status, headers, body = refusal.code, dict(refusal.headers), refusal.read().decode()
except OSError as error:
    status, headers, body = 0, {}, str(error)
print(json.dumps({"status": status, "headers": headers, "body": body}))
"""
"""What the agent runs. It knows nothing of the proxy: only the standard variables tell it."""

CONFIGURATION = """\
listeners:
  - {{kind: proxy, bind: 127.0.0.1:{proxy}}}
  - {{kind: base-url, bind: 127.0.0.1:{base_url}}}
ops: 127.0.0.1:{ops}
control: unix:./control.sock
identity: [{{kind: static, tenant: demo, agent: order-bot}}]
tenants: [demo]
store: {{kind: file, path: ./secrets.enc, key_file: ./secrets.key}}
policies: {{dirs: [./policies]}}
ca: {{dir: ./ca}}
upstream: {{extra_ca_file: ./upstream-ca.pem}}
audit: {{sink: file, path: ./audit.jsonl}}
"""

POLICY = """\
apiVersion: sluicegate/v1
kind: EgressPolicy
metadata: {{name: order-bot}}
subjects:
  - {{agent: order-bot, tenant: demo}}
allow:
  - name: orders
    host: localhost
    port: {upstream}
    methods: [GET, POST]
    paths: ["/v1/orders/**"]
    networks: [127.0.0.0/8, "::1/128"]
    credential: {{name: orders-api}}
"""


class Failed(RuntimeError):
    """A step could not be done at all; the message says which and what was printed."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What the agent got back."""

    status: int
    headers: Mapping[str, str]
    body: str


@dataclass
class Verdict:
    """The things that have to hold, and those that did not."""

    broken: list[str] = field(default_factory=list)

    def expect(self, sentence: str, holds: bool) -> None:
        print(f"   {'ok  ' if holds else 'NOT '} {sentence}")
        if not holds:
            self.broken.append(sentence)


class Echo(BaseHTTPRequestHandler):
    """An API that answers with everything it received, the Authorization header included, and remembers it."""

    protocol_version = "HTTP/1.1"
    seen: list[dict[str, str]] = []  # noqa: RUF012  shared on purpose: one upstream, one record

    def answer(self) -> None:
        self.seen.append({"method": self.command, "path": self.path, **{k.lower(): v for k, v in self.headers.items()}})
        body = json.dumps({"received": self.seen[-1]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_DELETE = answer

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing on the screen but the demo."""


@contextmanager
def upstream(folder: Path) -> Iterator[int]:
    """Serve the echo over TLS with a certificate of a throw-away authority; yields the port."""
    context = throwaway_context(folder / "upstream-ca.pem")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def throwaway_context(authority_file: Path) -> ssl.SSLContext:
    """TLS for localhost, with a certificate of a new authority, whose own is written to the file."""
    now, key, leaf_key = time.time(), generate_key(), generate_key()
    authority = authority_certificate(key, now)
    leaf = leaf_certificate("localhost", leaf_key, Authority(authority, key, (authority,)), now)
    authority_file.write_bytes(authority.public_bytes(Encoding.PEM))
    secret = leaf_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return server_context(secret + leaf.public_bytes(Encoding.PEM))


def free_ports(count: int) -> list[int]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def sluicegate(folder: Path, *arguments: str) -> list[str]:
    """The command line of one of the product's commands."""
    return [sys.executable, "-m", "proxy", *arguments, "--config", str(folder / "sluicegate.yaml")]


def command(folder: Path, *arguments: str, given: str = "") -> str:
    done = subprocess.run(
        sluicegate(folder, *arguments), input=given, capture_output=True, text=True, cwd=REPOSITORY, timeout=PATIENCE_S
    )
    if done.returncode:
        raise Failed(f"sluicegate {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


@contextmanager
def proxy(folder: Path, ops: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run `sluicegate serve` until the block ends; raise Failed when it does not get ready."""
    with (folder / "proxy.log").open("wb") as log:
        process = subprocess.Popen(sluicegate(folder, "serve"), stdout=log, stderr=log, cwd=REPOSITORY)
    try:
        wait_until_ready(process, f"http://127.0.0.1:{ops}/readyz", folder / "proxy.log")
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def wait_until_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise Failed(f"sluicegate serve did not get ready:\n{log.read_text()}")


def agent(method: str, url: str, environment: Mapping[str, str]) -> Reply:
    """One call by the agent: a process whose environment holds a dummy key and, if given, where the proxy is."""
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, method, url],
        env={**inherited, "API_KEY": DUMMY_KEY, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    if done.returncode:
        raise Failed(f"the agent's client failed:\n{done.stderr}")
    return Reply(**json.loads(done.stdout))


def echoed(reply: Reply) -> str:
    """The Authorization header as it stands in the echo's answer; the whole answer when it is not the echo's."""
    try:
        return str(json.loads(reply.body)["received"]["authorization"])
    except (ValueError, KeyError, TypeError):
        return reply.body[:200]


def masked(text: str) -> str:
    return text.replace(REAL_KEY, f"{REAL_KEY[:8]}••••••{REAL_KEY[-4:]}")


def show_call(verdict: Verdict, reply: Reply) -> None:
    got = Echo.seen[-1].get("authorization", "(none)") if Echo.seen else "(nothing)"
    print(f"   agent sent     Authorization: Bearer {DUMMY_KEY}")
    print(f"   upstream got   Authorization: {masked(got)}")
    print(f"   agent got      {reply.status}, in which the echoed header reads: {masked(echoed(reply))}")
    verdict.expect("the upstream got the tenant's real key", got == f"Bearer {REAL_KEY}")
    verdict.expect("the agent's call succeeded", reply.status == 200)
    verdict.expect("the key that the upstream echoed did not come back to the agent", REAL_KEY not in reply.body)


def show_refusal(verdict: Verdict, reply: Reply, calls_before: int) -> None:
    problem: dict[str, Any] = json.loads(reply.body) if reply.body.startswith("{") else {}
    print(f"   agent got      {reply.status} {problem.get('code', '')}: {problem.get('detail', reply.body)}")
    verdict.expect(
        "policy refused it with 403 policy_denied", (reply.status, problem.get("code")) == (403, "policy_denied")
    )
    verdict.expect("nothing reached the upstream", len(Echo.seen) == calls_before)


def show_audit(verdict: Verdict, folder: Path) -> None:
    text = (folder / "audit.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    calls = [line for line in lines if line.get("outcome") in ("ok", "denied")]
    shown = ("tenant", "agent", "method", "host", "path", "status", "outcome", "code", "rule", "credential")
    for line in calls:
        print("   " + json.dumps({name: line[name] for name in shown if line.get(name)}))
    outcomes = [line["outcome"] for line in calls]
    verdict.expect("both calls and both refusals have their line", sorted(outcomes) == ["denied"] * 2 + ["ok"] * 2)
    verdict.expect("no line holds the key", REAL_KEY not in text)


def play(verdict: Verdict, folder: Path) -> None:
    with upstream(folder) as upstream_port:
        proxy_port, base_url_port, ops = free_ports(3)
        settings = CONFIGURATION.format(proxy=proxy_port, base_url=base_url_port, ops=ops)
        (folder / "sluicegate.yaml").write_text(settings)
        (folder / "policies").mkdir()
        (folder / "policies" / "order-bot.yaml").write_text(POLICY.format(upstream=upstream_port))
        print("1. One record in the embedded store: sluicegate secrets set tenants/demo/orders-api")
        record = {"kind": "bearer", "token": REAL_KEY, "hosts": ["localhost"]}
        command(folder, "secrets", "set", "tenants/demo/orders-api", given=json.dumps(record))
        with proxy(folder, ops) as process:
            trusted = folder / "trusted.pem"
            trusted.write_text(command(folder, "ca", "export"))
            calls(verdict, upstream_port, proxy_port, base_url_port, trusted)
            process.send_signal(signal.SIGTERM)
            verdict.expect("the proxy ended cleanly on SIGTERM", process.wait(PATIENCE_S) == 0)
        print("6. The audit file")
        show_audit(verdict, folder)


def calls(verdict: Verdict, upstream_port: int, proxy_port: int, base_url_port: int, trusted: Path) -> None:
    through_proxy = {"HTTPS_PROXY": f"http://127.0.0.1:{proxy_port}", "SSL_CERT_FILE": str(trusted)}
    orders = f"https://localhost:{upstream_port}/v1/orders"
    base = f"http://127.0.0.1:{base_url_port}/orders/v1/orders"
    print(f"2. An unmodified client with HTTPS_PROXY set: GET {orders}/42")
    show_call(verdict, agent("GET", f"{orders}/42", through_proxy))
    print(f"3. The same API by base URL, no proxy variable: GET {base}/43")
    show_call(verdict, agent("GET", f"{base}/43", {}))
    before = len(Echo.seen)
    print(f"4. A method that no rule allows: DELETE {orders}/42")
    show_refusal(verdict, agent("DELETE", f"{orders}/42", through_proxy), before)
    print("5. A path that no rule allows, by base URL: GET …/orders/v1/customers")
    show_refusal(verdict, agent("GET", base.removesuffix("/orders") + "/customers", {}), before)


def main() -> int:
    verdict, begun = Verdict(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sluicegate-demo-") as folder:
        try:
            play(verdict, Path(folder))
        except Failed as failure:
            print(f"The demo could not go on: {failure}", file=sys.stderr)
            return 1
    if verdict.broken:
        print(f"\n{len(verdict.broken)} thing(s) were not as they should be.", file=sys.stderr)
        return 1
    print(f"\nAll of it as it should be, in {time.monotonic() - begun:.1f} s. The temporary folder is gone.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
