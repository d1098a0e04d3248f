"""Real TLS servers that want client certificates: nginx and `openssl s_server`, and the authorities that they trust."""

from __future__ import annotations

import datetime
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from tests.flows.product import eventually, free_port

HOST = "127.0.0.1"
PAST = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


class Server:
    """One of them, as the fixtures of the flows take an upstream."""

    tls = True

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port

    @property
    def authority(self) -> str:
        return f"{self.host}:{self.port}"


class Identity:
    """A certificate with its key, as PEM texts."""

    def __init__(self, issued: trustme.LeafCert) -> None:
        self.chain = "".join(part.bytes().decode() for part in issued.cert_chain_pems)
        self.key = issued.private_key_pem.bytes().decode()

    @property
    def serial(self) -> str:
        """As nginx writes it: whole octets, so with a leading zero where there is need for one."""
        number = x509.load_pem_x509_certificate(self.chain.encode()).serial_number
        return number.to_bytes((number.bit_length() + 7) // 8, "big").hex().upper()

    @property
    def der(self) -> bytes:
        return x509.load_pem_x509_certificate(self.chain.encode()).public_bytes(Encoding.DER)

    @property
    def fields(self) -> dict[str, str]:
        return {"certificate": self.chain, "private_key": self.key}

    def encrypted(self, passphrase: str) -> dict[str, str]:
        loaded = load_pem_private_key(self.key.encode(), None)
        wrapped = BestAvailableEncryption(passphrase.encode())
        key = loaded.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, wrapped).decode()
        return {"certificate": self.chain, "private_key": key, "passphrase": passphrase}

    def write(self, folder: Path, name: str) -> tuple[Path, Path]:
        """Puts both into files, each replaced whole."""
        paths = folder / f"{name}.pem", folder / f"{name}.key"
        for path, text in zip(paths, (self.chain, self.key), strict=True):
            (folder / "new").write_text(text)
            (folder / "new").replace(path)
        return paths


def identity(ca: trustme.CA, *names: str, **more: Any) -> Identity:
    return Identity(ca.issue_cert(*names, **more))


def pem(ca: trustme.CA) -> str:
    return ca.cert_pem.bytes().decode()


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} here")
    return found


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


@contextmanager
def _running(command: list[str], port: int, folder: Path) -> Iterator[Server]:
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=folder)
    try:
        eventually(lambda: process.poll() is not None or _answers(port))
        assert process.poll() is None, (folder / "server.log").read_text()
        yield Server(HOST, port)
    finally:
        process.terminate()
        process.wait(5)
        if process.stdin is not None:
            process.stdin.close()


NGINX = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log info;
events {{ worker_connections 64; }}
http {{
  access_log off;
  client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
  uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
  server {{
    listen 127.0.0.1:{port} ssl; ssl_protocols TLSv1.2 TLSv1.3;
    ssl_certificate {chain}; ssl_certificate_key {key};
    ssl_client_certificate {folder}/clients.pem; ssl_verify_client {verify};
    location / {{ default_type text/plain; return 200 "$ssl_client_serial $connection $http_authorization"; }}
  }}
}}
"""


@contextmanager
def nginx(folder: Path, own: Identity, clients: trustme.CA, verify: str = "on") -> Iterator[Server]:
    """nginx that answers with the serial of the client's certificate, its number for the connection and the call's
    Authorization."""
    command, port = program("nginx"), free_port()
    chain, key = own.write(folder, "own")
    (folder / "clients.pem").write_text(pem(clients))
    config = NGINX.format(folder=folder, port=port, chain=chain, key=key, verify=verify)
    (folder / "nginx.conf").write_text(config)
    with _running([command, "-c", str(folder / "nginx.conf"), "-p", str(folder)], port, folder) as server:
        yield server


@contextmanager
def s_server(folder: Path, own: Identity, clients: trustme.CA, *options: str) -> Iterator[Server]:
    """`openssl s_server`, which breaks the handshake off where the client's certificate does not please it."""
    command, port = program("openssl"), free_port()
    chain, key = own.write(folder, "own")
    (folder / "clients.pem").write_text(pem(clients))
    wanted = ["-Verify", "3", "-verify_return_error", "-CAfile", str(folder / "clients.pem")]
    place = ["-accept", f"{HOST}:{port}", "-cert", str(chain), "-cert_chain", str(chain), "-key", str(key)]
    with _running([command, "s_server", "-www", "-quiet", *place, *wanted, *options], port, folder) as server:
        yield server
