"""The ground all contenders stand on: ports, one secret, two certificate authorities, and the folder it all lies in."""

from __future__ import annotations

import json
import secrets
import socket
from dataclasses import dataclass
from pathlib import Path

import trustme

DATA_PATH = "/v1/data"
SIGNED_PATH = "/v1/signed"
ACCESS_KEY_ID, SERVICE, REGION = "AKIABENCH00000000000", "s3", "us-east-1"
"""What requests to SIGNED_PATH are signed for; the secret key is the ground's secret."""
DATA_BYTES = 1024
NAME = "localhost"


@dataclass(frozen=True, slots=True)
class Ground:
    """What every configuration is written from.

    `secret` is the bearer token the upstream insists on; `upstream_ca` signed its certificate; `leaf` and `leaf_ca`
    are what a contender shows to clients inside a tunnel when it mints nothing itself.
    """

    folder: Path
    secret: str
    plain_port: int
    tls_port: int

    @property
    def secret_file(self) -> Path:
        return self.folder / "secret.txt"

    @property
    def upstream_ca(self) -> Path:
        return self.folder / "upstream-ca.pem"

    @property
    def upstream_chain(self) -> Path:
        return self.folder / "upstream.pem"

    @property
    def leaf_ca(self) -> Path:
        return self.folder / "leaf-ca.pem"

    @property
    def leaf(self) -> Path:
        return self.folder / "leaf.pem"

    @property
    def plain_url(self) -> str:
        return f"http://{NAME}:{self.plain_port}"

    @property
    def tls_url(self) -> str:
        return f"https://{NAME}:{self.tls_port}"

    def file(self, name: str) -> Path:
        return self.folder / name

    def write(self, name: str, content: object) -> Path:
        """Write text as it is, anything else as JSON (which nginx's neighbours here all read as YAML)."""
        path = self.folder / name
        path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
        return path


def free_port() -> int:
    """A port of the loopback that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def lay(folder: Path) -> Ground:
    """Make the folder, a fresh secret and fresh certificates."""
    folder.mkdir(parents=True, exist_ok=True)
    ground = Ground(folder, "real-" + secrets.token_hex(16), free_port(), free_port())
    ground.secret_file.write_text(ground.secret)
    ground.secret_file.chmod(0o600)
    for authority, certificate in ((ground.upstream_ca, ground.upstream_chain), (ground.leaf_ca, ground.leaf)):
        ca = trustme.CA()
        ca.cert_pem.write_to_path(authority)
        ca.issue_cert(NAME, "127.0.0.1").private_key_and_cert_chain_pem.write_to_path(certificate)
        certificate.chmod(0o600)
    return ground


def reply_body() -> str:
    """1 KB of JSON of the kind an API answers with."""
    body: dict[str, object] = {"ok": True, "items": [{"id": n, "name": f"item-{n}"} for n in range(9)], "pad": ""}
    body["pad"] = "x" * (DATA_BYTES - len(json.dumps(body)))
    return json.dumps(body)
