"""Sluicegate as it is measured: every stage on, 1,000 policy rules, session tokens, an audit file, metrics, masking."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt
import yaml
from cryptography.hazmat.primitives.asymmetric import ec

from benchmarks.ground import ACCESS_KEY_ID, NAME, REGION, SERVICE, SIGNED_PATH, Ground, free_port
from benchmarks.processes import LOAD_CORE, Running, accepts, start

RULES = 1000
CANDIDATES = 30  # of them name the measured host, so that a decision has something to choose from
RULES_PER_FILE = 100
LOOPBACK = ["127.0.0.0/8", "::1/128"]
TENANT, AGENT = "bench", "bench-agent"
ISSUER, AUDIENCE = "https://issuer.bench.example", "sluicegate"


@dataclass(frozen=True, slots=True)
class Ports:
    """Where one instance listens."""

    base_url: int
    proxy: int
    ops: int


def rule_documents(ground: Ground) -> list[dict[str, Any]]:
    """1,000 allow rules in ten documents; those that the load needs are the segments `plain`, `tls` and `signed`."""
    measured = [
        _rule("plain", ground.plain_port, "/v1/**", plaintext=True),
        _rule("tls", ground.tls_port, "/v1/**"),
        {**_rule("signed", ground.plain_port, SIGNED_PATH, plaintext=True), "credential": {"name": "bench-aws"}},
    ]
    others_here = [
        _rule(f"resource-{n}", ground.tls_port, f"/v2/resource-{n}/**") for n in range(CANDIDATES - len(measured))
    ]
    elsewhere = [
        {**_rule(f"service-{n}", 443, f"/v1/service-{n}/**"), "host": f"service-{n}.bench.example", "credential": None}
        for n in range(RULES - CANDIDATES)
    ]
    rules = [{k: v for k, v in rule.items() if v is not None} for rule in measured + others_here + elsewhere]
    return [
        {
            "apiVersion": "sluicegate/v1",
            "kind": "EgressPolicy",
            "metadata": {"name": f"bench-{first // RULES_PER_FILE}"},
            "subjects": [{"agent": AGENT, "tenant": "*"}],
            "allow": rules[first : first + RULES_PER_FILE],
        }
        for first in range(0, len(rules), RULES_PER_FILE)
    ]


def _rule(name: str, port: int, path: str, plaintext: bool | None = None) -> dict[str, Any]:
    return {
        "name": name,
        "host": NAME,
        "port": port,
        "methods": ["GET", "POST"],
        "paths": [path],
        "networks": list(LOOPBACK),  # a copy for each: a shared one would become a YAML alias
        "plaintext": plaintext,
        "credential": {"name": "bench-api"},
    }


class Product:
    """One configured instance in its own folder; `command` runs it with the interpreter that runs the benchmark."""

    def __init__(self, ground: Ground, store: str, identity: str, python: str = sys.executable) -> None:
        self.ground, self.store, self.identity, self.python = ground, store, identity, python
        self.folder = ground.file("sluicegate")
        self.ports = Ports(free_port(), free_port(), free_port())
        self.vault: Running | None = None

    @property
    def command(self) -> list[str]:
        return [self.python, "-m", "proxy", "serve", "--config", str(self.folder / "sluicegate.yaml")]

    @property
    def ready_url(self) -> str:
        return f"http://127.0.0.1:{self.ports.ops}/readyz"

    @property
    def ca_file(self) -> Path:
        return self.folder / "trusted.pem"

    def prepare(self) -> None:
        """Write configuration, policies and record; export the certificate authority that its clients trust."""
        policies = self.folder / "policies"
        policies.mkdir(parents=True, exist_ok=True)
        for document in rule_documents(self.ground):
            text = yaml.safe_dump(document, sort_keys=False)
            (policies / f"{document['metadata']['name']}.yaml").write_text(text)
        self.token = self._token()
        if self.store == "vault":
            self._start_vault()
        (self.folder / "sluicegate.yaml").write_text(yaml.safe_dump(self._settings(), sort_keys=False))
        for name, record in self._records().items():
            self._run("secrets", "set", f"tenants/{TENANT}/{name}", given=json.dumps(record))
        self.ca_file.write_text(self._run("ca", "export"))

    def _records(self) -> dict[str, dict[str, Any]]:
        keys = {"access_key_id": ACCESS_KEY_ID, "secret_access_key": self.ground.secret}
        return {
            "bench-api": {"kind": "bearer", "token": self.ground.secret, "hosts": [NAME]},
            "bench-aws": {"kind": "aws", **keys, "service": SERVICE, "region": REGION, "hosts": [NAME]},
        }

    def _settings(self) -> dict[str, Any]:
        return {
            "listeners": [
                {"kind": "proxy", "bind": f"127.0.0.1:{self.ports.proxy}"},
                {"kind": "base-url", "bind": f"127.0.0.1:{self.ports.base_url}"},
            ],
            "ops": f"127.0.0.1:{self.ports.ops}",
            "control": "unix:./control.sock",
            "identity": [self._identity()],
            "tenants": [TENANT],
            "store": self._store(),
            "policies": {"dirs": ["./policies"]},
            "ca": {"dir": "./ca"},
            "upstream": {"extra_ca_file": str(self.ground.upstream_ca)},
            "audit": {"sink": "file", "path": "./audit.jsonl"},
        }

    def _store(self) -> dict[str, Any]:
        if self.store == "file":
            return {"kind": "file", "path": "./secrets.enc", "key_file": "./secrets.key"}
        auth = {"kind": "token", "token_file": "./vault.token"}
        return {
            "kind": "vault",
            "address": f"http://127.0.0.1:{self.vault_port}",
            "mount": "secret",
            "kv": 2,
            "auth": auth,
        }

    def _identity(self) -> dict[str, Any]:
        if self.identity == "static":
            return {"kind": "static", "tenant": TENANT, "agent": AGENT}
        issuer = {
            "issuer": ISSUER,
            "audience": AUDIENCE,
            "algorithms": ["ES256"],
            "jwks_file": "./keys.json",
            "tenants": [TENANT],
        }
        return {"kind": "session_token", "leeway": 60, "issuers": [issuer]}

    def _token(self) -> str:
        """What the client presents: a signed session token, or a dummy when the identity is the listener's own."""
        if self.identity == "static":
            return "placeholder"
        key = ec.generate_private_key(ec.SECP256R1())
        public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key()))
        keys = {"keys": [{**public, "kid": "bench", "alg": "ES256", "use": "sig"}]}
        (self.folder / "keys.json").write_text(json.dumps(keys))
        now = int(time.time())
        claims = {"iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + 6 * 3600, "sub": AGENT}
        return jwt.encode(claims | {"tenant": TENANT, "agent": AGENT}, key, "ES256", headers={"kid": "bench"})

    def _run(self, *arguments: str, given: str | None = None) -> str:
        """One command of the product; raise RuntimeError with what it said when it fails."""
        done = subprocess.run(
            [self.python, "-m", "proxy", *arguments, "--config", str(self.folder / "sluicegate.yaml")],
            input=given,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"sluicegate {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def _start_vault(self) -> None:
        """A real OpenBao in development mode, from the PyPI package that the tests use."""
        self.vault_port, root = free_port(), "bench-root-token"
        bao = Path(self.python).parent / "bao"
        options = [f"-dev-listen-address=127.0.0.1:{self.vault_port}", f"-dev-root-token-id={root}"]
        self.vault = start(
            [str(bao), "server", "-dev", *options],
            LOAD_CORE,
            lambda: accepts(self.vault_port) and _unsealed(self.vault_port),
            self.ground.file("vault.log"),
            {"HOME": str(self.folder)},
        )
        token = self.folder / "vault.token"
        token.touch(0o600)
        token.write_text(root)


def _unsealed(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/sys/health", timeout=0.5) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False
