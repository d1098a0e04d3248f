"""Servers that speak AWS's protocols and check every signature, each as a process of its own on a loopback address.

All come with the development requirements; a test whose server is absent is skipped by name.
"""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from tests.flows.product import Product, eventually, free_port

DUMMY = ("AKIASLUICEGATEDUMMY1", "sluicegate-dummy-not-a-key")
"""What an SDK in a sandbox has in its environment."""


def program(name: str) -> Path:
    return Path(sys.executable).parent / name


def needs(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not program(name).exists(), reason=f"{name} is not installed")


class AwsServer:
    """One server process. Use as a context manager: it answers inside, and is stopped after."""

    scheme = "http"

    def __init__(self, folder: Path, host: str) -> None:
        self.folder = folder
        self.host = host
        self.port = free_port()

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"

    def command(self) -> Sequence[str]:
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        return {}

    health = "/"

    def __enter__(self) -> Any:
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                list(self.command()), env={**os.environ, **self.environment()}, cwd=self.folder,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        eventually(self._answers, within=60, pause=0.2)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(5)

    def _answers(self) -> bool:
        assert self.process.poll() is None, (self.folder / "server.log").read_text()[-2000:]
        context = ssl._create_unverified_context()
        handlers = urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        try:
            with urllib.request.build_opener(*handlers).open(self.url + self.health, timeout=2) as reply:
                return bool(reply.status == 200)
        except urllib.error.HTTPError as refused:
            return refused.code in (400, 403)
        except OSError:
            return False

    def client(self, service: str, key: Sequence[str], proxy: str = "", verify: str | bool = False, **s3: Any) -> Any:
        """boto3's client, straight to the server or through a proxy. `key` is (id, secret[, token])."""
        config = Config(
            proxies={self.scheme: proxy} if proxy else {},
            s3={"addressing_style": "path", **s3},
            retries={"total_max_attempts": 1},
        )
        token = key[2] if len(key) > 2 else None
        return boto3.session.Session().client(
            service, region_name="us-east-1", endpoint_url=self.url, verify=verify, config=config,
            aws_access_key_id=key[0], aws_secret_access_key=key[1], aws_session_token=token,
        )  # fmt: skip

    def through(self, product: Product, service: str, **s3: Any) -> Any:
        """The client of an agent: it holds dummies, and trusts the product's authority."""
        proxy, trusted = f"http://127.0.0.1:{product.proxy}", str(product.folder / "ca" / "ca.crt")
        return self.client(service, (*DUMMY, "dummy-token"), proxy, trusted, **s3)


class Moto(AwsServer):
    """moto with authentication on, after the first `unsigned` calls."""

    health = "/moto-api/data.json"
    unsigned = 4

    def command(self) -> Sequence[str]:
        return [str(program("moto_server")), "-H", self.host, "-p", str(self.port)]

    def environment(self) -> Mapping[str, str]:
        return {"INITIAL_NO_AUTH_ACTION_COUNT": str(self.unsigned)}


class Ministack(AwsServer):
    """ministack with authentication on; `root` is the key that may do everything."""

    health = "/_ministack/health"
    root = ("AKIAMINISTACKROOT000", "root-secret-of-the-ministack-0123456789ab")

    def command(self) -> Sequence[str]:
        return [str(program("ministack"))]

    def environment(self) -> Mapping[str, str]:
        return {
            "AUTH": "true",
            "BIND_HOST": self.host,
            "GATEWAY_PORT": str(self.port),
            "AWS_ACCESS_KEY_ID": self.root[0],
            "AWS_SECRET_ACCESS_KEY": self.root[1],
            "SERVICES": "dynamodb,sqs,iam,sts",
            "IOT_MTLS_ENABLED": "0",
            "HOME": str(self.folder),
        }


class Seaweed(AwsServer):
    """SeaweedFS with one identity, its S3 gateway over TLS."""

    scheme = "https"
    health = "/healthz"
    key = ("AKIASEAWEEDAGENT0000", "secret-of-the-seaweed-agent-0123456789abc")

    def __init__(self, folder: Path, host: str, certificate: Path, private_key: Path) -> None:
        super().__init__(folder, host)
        self._tls = certificate, private_key
        credentials = [{"accessKey": self.key[0], "secretKey": self.key[1]}]
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        identities = [{"name": "agent", "credentials": credentials, "actions": actions}]
        (folder / "s3.json").write_text(json.dumps({"identities": identities}))
        (folder / "data").mkdir()

    def command(self) -> Sequence[str]:
        ports = {
            name: free_port()
            for name in ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port",
                         "filer.port.grpc", "s3.port.grpc")
        }  # fmt: skip
        options = {
            "dir": "data", "ip": self.host, "ip.bind": self.host, **ports, "s3": "true", "s3.port": self.port,
            "s3.config": "s3.json", "s3.cert.file": self._tls[0], "s3.key.file": self._tls[1],
            "s3.port.iceberg": 0, "s3.port.lance": 0, "master.volumeSizeLimitMB": 64, "volume.max": 8,
        }  # fmt: skip
        return [str(program("weed")), "server", *[f"-{name}={value}" for name, value in options.items()]]
