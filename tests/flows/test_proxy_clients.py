"""Real clients, unmodified: curl, requests, httpx, aiohttp, Node fetch and git, through both listeners."""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import aiohttp
import httpx
import pytest
import requests

from tests.flows.conftest import Authority
from tests.flows.product import Product, record, rule
from tests.flows.upstreams import Connection, Upstream

SECRET = "sk-live-0123456789abcdef"
BACKEND = Path("/usr/lib/git-core/git-http-backend")


class Flow:
    def __init__(self, product: Product, plain: Upstream, tls: Upstream, folder: Path) -> None:
        self.product = product
        self.plain = plain
        self.tls = tls
        self.folder = folder
        self.proxy_url = f"http://127.0.0.1:{product.proxy}"
        self.ca_file = folder / "ca" / "ca.crt"

    def environment(self) -> dict[str, str]:
        """What a user exports for a client that reads the usual variables."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "http_proxy": self.proxy_url,
            "https_proxy": self.proxy_url,
            "HTTP_PROXY": self.proxy_url,
            "HTTPS_PROXY": self.proxy_url,
            "SSL_CERT_FILE": str(self.ca_file),
            "CURL_CA_BUNDLE": str(self.ca_file),
            "REQUESTS_CA_BUNDLE": str(self.ca_file),
            "NODE_EXTRA_CA_CERTS": str(self.ca_file),
            "NODE_USE_ENV_PROXY": "1",
            "GIT_SSL_CAINFO": str(self.ca_file),
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_CONFIG_NOSYSTEM": "1",
        }

    def run(self, *words: str, **more: str) -> str:
        done = subprocess.run(
            words, capture_output=True, timeout=40, cwd=self.folder, env={**self.environment(), **more}
        )
        assert done.returncode == 0, (words, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout.decode()


@pytest.fixture(scope="module")
def running(folder: Path, authority: Authority) -> Iterator[Flow]:
    credential = {"name": "key", "header": "Authorization", "format": "Bearer {value}"}
    with ExitStack() as stack:
        plain = stack.enter_context(Upstream(host="localhost"))
        tls = stack.enter_context(Upstream(host="localhost", tls=authority.context("localhost")))
        rules = [rule("plain", plain, credential=credential), rule("tls", tls, credential=credential)]
        records = {"key": record("api_key", "localhost", value=SECRET)}
        product = stack.enter_context(Product(folder, rules, records, extra_ca=authority.pem))
        yield Flow(product, plain, tls, folder)


@pytest.fixture
def flow(running: Flow) -> Flow:
    running.plain.forget()
    running.tls.forget()
    return running


def assert_signed(upstream: Upstream, count: int) -> None:
    assert [request.all("Authorization") for request in upstream.requests] == [[f"Bearer {SECRET}"]] * count


@pytest.mark.parametrize("kind", ["plain", "tls"])
def test_curl(flow: Flow, kind: str) -> None:
    """B22: absolute-form and CONNECT on one port, by the variables alone; a chunked upload; --proxy-anyauth."""
    upstream: Upstream = getattr(flow, kind)
    url = f"{upstream.url}/a"
    common = ["curl", "-sS", "--fail", "--noproxy", ""]
    assert flow.run(*common, url, url) == "okok"
    assert flow.run(*common, "--proxy-anyauth", "-x", flow.proxy_url.replace("//", "//agent:x@"), url) == "ok"
    assert flow.run(*common, "-H", "Transfer-Encoding: chunked", "-d", "x" * 3000, url) == "ok"
    assert flow.run(*common, "--http2", url) == "ok"
    assert flow.run(*common, "-p", url) == "ok"
    assert_signed(upstream, 6)
    assert upstream.requests[3].body == b"x" * 3000


def test_curl_by_base_url(flow: Flow) -> None:
    base = f"http://127.0.0.1:{flow.product.base}"
    assert flow.run("curl", "-sS", "--fail", "--noproxy", "*", f"{base}/plain/a", f"{base}/tls/b") == "okok"
    assert_signed(flow.plain, 1)
    assert_signed(flow.tls, 1)


@pytest.mark.parametrize("kind", ["plain", "tls"])
def test_requests(flow: Flow, kind: str) -> None:
    upstream: Upstream = getattr(flow, kind)
    with requests.Session() as session:
        session.trust_env = False
        session.proxies = {"http": flow.proxy_url, "https": flow.proxy_url}
        session.verify = str(flow.ca_file)
        for number in range(3):
            reply = session.post(f"{upstream.url}/{number}", json={"a": number}, timeout=8)
            assert (reply.status_code, reply.text) == (200, "ok")
        streamed = session.put(f"{upstream.url}/stream", data=iter([b"a" * 10000, b"b" * 10000]), timeout=8)
        assert streamed.status_code == 200
    assert_signed(upstream, 4)
    assert upstream.requests[3].body == b"a" * 10000 + b"b" * 10000


@pytest.mark.parametrize("kind", ["plain", "tls"])
def test_httpx(flow: Flow, kind: str) -> None:
    upstream: Upstream = getattr(flow, kind)
    context = ssl.create_default_context(cafile=str(flow.ca_file))
    with httpx.Client(proxy=flow.proxy_url, verify=context, trust_env=False) as client:
        for number in range(3):
            assert client.post(f"{upstream.url}/{number}", json={"a": number}).text == "ok"
    assert_signed(upstream, 3)


@pytest.mark.parametrize("kind", ["plain", "tls"])
def test_aiohttp(flow: Flow, kind: str) -> None:
    upstream: Upstream = getattr(flow, kind)
    context = ssl.create_default_context(cafile=str(flow.ca_file))

    async def main() -> None:
        async with aiohttp.ClientSession() as session:
            for number in range(3):
                async with session.post(
                    f"{upstream.url}/{number}", json={"a": number}, proxy=flow.proxy_url, ssl=context
                ) as reply:
                    assert (reply.status, await reply.text()) == (200, "ok")

    asyncio.run(main())
    assert_signed(upstream, 3)


UNDICI = """
const { createRequire } = require('module');
const undici = createRequire(process.argv[1])('undici');
const ca = require('fs').readFileSync(process.argv[3]);
const agent = new undici.ProxyAgent({ uri: process.argv[2], requestTls: { ca } });
(async () => {
  for (const path of ['/1', '/2']) {
    const reply = await undici.fetch(process.argv[4] + path, { method: 'POST', body: 'hello', dispatcher: agent });
    process.stdout.write(await reply.text());
  }
  await agent.close();
})();
"""


@pytest.mark.parametrize("kind", ["plain", "tls"])
def test_node_fetch(flow: Flow, kind: str) -> None:
    """B21: undici tunnels plain http through CONNECT too."""
    node = shutil.which("node")
    root = Path("/usr/lib/node_modules/npm/node_modules")
    if not node or not (root / "undici").is_dir():
        pytest.skip("no node with undici")
    upstream: Upstream = getattr(flow, kind)
    printed = flow.run(node, "-e", UNDICI, str(root / "x.js"), flow.proxy_url, str(flow.ca_file), upstream.url)
    assert printed == "okok"
    assert_signed(upstream, 2)
    assert [request.body for request in upstream.requests] == [b"hello", b"hello"]


def git_server(repositories: Path) -> Callable[[Connection], None]:
    """Smart HTTP: each request given to git http-backend as CGI, its output sent as it comes."""

    def script(connection: Connection) -> None:
        request = connection.head()
        if request.all("Expect"):
            connection.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        connection.body(request)
        path, _, query = request.target.decode().partition("?")
        variables = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(repositories),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": request.method,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": (request.all("Content-Type") or [""])[0],
            "HTTP_CONTENT_ENCODING": (request.all("Content-Encoding") or [""])[0],
            "CONTENT_LENGTH": str(len(request.body)),
            "HTTP_GIT_PROTOCOL": (request.all("Git-Protocol") or [""])[0],
            "REMOTE_USER": "robot",
            "HOME": str(repositories),
        }
        done = subprocess.run([str(BACKEND)], input=request.body, capture_output=True, timeout=30, env=variables)
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        status = b"200 OK"
        lines = []
        for line in head.split(b"\r\n"):
            if line.lower().startswith(b"status:"):
                status = line[7:].strip()
            elif line:
                lines.append(line)
        lines.append(b"Content-Length: %d" % len(body))
        connection.send(b"HTTP/1.1 " + status + b"\r\n" + b"\r\n".join(lines) + b"\r\n\r\n" + body)

    return script


@pytest.mark.parametrize("way", ["plain proxy", "tls proxy", "base-url"])
def test_git_clones_and_pushes(flow: Flow, way: str, tmp_path: Path) -> None:
    """B79: a 2 MiB push (probe, then chunked) and a clone of it; the credential is there before any challenge."""
    if not BACKEND.exists():
        pytest.skip("no git http-backend")
    upstream = flow.tls if way == "tls proxy" else flow.plain
    bare = tmp_path / "repositories" / "r.git"
    flow.run("git", "init", "-q", "--bare", "-b", "main", str(bare))
    flow.run("git", "-C", str(bare), "config", "http.receivepack", "true")
    upstream.forget(git_server(tmp_path / "repositories"))
    more: dict[str, str] = {}
    url = f"{upstream.url}/r.git"
    if way == "base-url":
        url = f"http://127.0.0.1:{flow.product.base}/plain/r.git"
        more = {name: "" for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")}
    work = tmp_path / "work"
    flow.run("git", "init", "-q", "-b", "main", str(work))
    (work / "blob").write_bytes(os.urandom(2 * 1024 * 1024))
    author = ["-c", "user.name=a", "-c", "user.email=a@b.test"]
    flow.run("git", *author, "-C", str(work), "add", "blob")
    flow.run("git", *author, "-C", str(work), "commit", "-q", "-m", "first")
    flow.run("git", "-C", str(work), "push", "-q", url, "main", **more)
    flow.run("git", "clone", "-q", url, str(tmp_path / "copy"), **more)
    assert (tmp_path / "copy" / "blob").read_bytes() == (work / "blob").read_bytes()
    assert {tuple(request.all("Authorization")) for request in upstream.requests} == {(f"Bearer {SECRET}",)}
    assert any(request.all("Transfer-Encoding") == ["chunked"] for request in upstream.requests)


def test_many_clients_at_once(flow: Flow) -> None:
    """Each thread on its own kept connection, both listeners, no reply mixed up with another."""

    def echo(connection: Connection) -> None:
        request = connection.request()
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(request.target), request.target))

    flow.plain.forget(echo)
    wrong: list[object] = []

    def client(number: int) -> None:
        with requests.Session() as session:
            session.trust_env = False
            if number % 2:
                session.proxies = {"http": flow.proxy_url}
            start = flow.plain.url if number % 2 else f"http://127.0.0.1:{flow.product.base}/plain"
            for turn in range(20):
                path = f"/{number}/{turn}"
                reply = session.get(start + path, timeout=8)
                if reply.text != path:
                    wrong.append((path, reply.status_code, reply.text))

    threads = [threading.Thread(target=client, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not wrong
    assert len(flow.plain.requests) == 320
