"""Unmodified clients that check certificates strictly accept our leaves, by name and by IP literal."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from proxy.listeners.certificate_authority import CertificateAuthority
from proxy.listeners.trust import pkcs12_truststore

LONG = "x" * 60 + ".long.test"  # too long for a common name
HOSTS = ["api.test", "127.0.0.1", LONG]
REFS = b"0123456789abcdef0123456789abcdef01234567\trefs/heads/main\n"  # a repository served as plain files
BODIES = {b"/": b"ok", b"/info/refs": REFS, b"/HEAD": b"ref: refs/heads/main\n"}
HEAD = "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"


class Site:
    """A TLS server on loopback that answers for one host with a leaf of ours."""

    def __init__(self, host: str, port: int, folder: Path, ca_pem: str) -> None:
        self.host, self.port, self.folder = host, port, folder
        self.ca = folder / "trust.pem"
        self.ca.write_text(ca_pem)

    async def reached_by(self, *command: str | Path, **environment: str) -> str:
        """What the client printed; fails with its words when it did not succeed."""
        process = await asyncio.create_subprocess_exec(
            *map(str, command),
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder), **environment},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        printed, complaint = await process.communicate()
        assert process.returncode == 0, complaint.decode()
        return printed.decode()


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        body = BODIES[head.split()[1].partition(b"?")[0]]
        writer.write(HEAD.format(len(body)).encode() + body)
        await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass  # clients that only shake hands
    writer.close()


@pytest.fixture(params=HOSTS)
async def site(request, tmp_path):
    authority = CertificateAuthority.open(tmp_path / "ca", False, time.time())
    context = await authority.context_for(request.param)
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    async with server:
        yield Site(request.param, server.sockets[0].getsockname()[1], tmp_path, authority.certificate_pem)
    authority.close()


def needs(tool: str):
    return pytest.mark.skipif(shutil.which(tool) is None, reason=f"{tool} is not here")


@needs("curl")
async def test_curl(site):
    resolve = f"{site.host}:{site.port}:127.0.0.1"
    url = f"https://{site.host}:{site.port}/"
    command = ("curl", "-sS", "--noproxy", "*", "--resolve", resolve, "--cacert", site.ca, url)
    assert await site.reached_by(*command) == "ok"


@needs("git")
async def test_git(site):
    resolve = f"http.curloptResolve={site.host}:{site.port}:127.0.0.1"
    command = ("git", "-c", resolve, "ls-remote", f"https://{site.host}:{site.port}/")
    assert "refs/heads/main" in await site.reached_by(*command, GIT_SSL_CAINFO=str(site.ca), NO_PROXY="*")


@needs("openssl")
async def test_openssl_with_x509_strict(site):
    check = "-verify_ip" if site.host == "127.0.0.1" else "-verify_hostname"
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{site.port}", "-CAfile", site.ca, "-x509_strict", check,
               site.host, "-verify_return_error", "-purpose", "sslserver"]  # fmt: skip
    assert "Verify return code: 0 (ok)" in await site.reached_by(*command)


PYTHON = """
import socket, ssl, sys
host, port, ca = sys.argv[1:]
context = ssl.create_default_context(cafile=ca)
context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
with context.wrap_socket(socket.create_connection(("127.0.0.1", int(port))), server_hostname=host) as stream:
    print(stream.version())
"""


def working(name: str) -> str | None:
    """An interpreter that runs: a version manager leaves commands of that name that only complain."""
    managed = sorted(map(str, Path.home().glob(f".pyenv/versions/*/bin/{name}")))
    for found in filter(None, [shutil.which(name), *managed]):
        if subprocess.run([found, "-c", "import ssl"], capture_output=True, check=False).returncode == 0:
            return found
    return None


@pytest.mark.parametrize("name", [sys.executable, "python3.13", "python3.14"])
async def test_python_with_the_flags_of_3_13(site, name):
    interpreter = working(name)
    if interpreter is None:
        pytest.skip(f"{name} is not here")
    assert await site.reached_by(interpreter, "-c", PYTHON, site.host, str(site.port), site.ca) == "TLSv1.3\n"


NODE = """
const [host, port] = process.argv.slice(1)
const servername = host === "127.0.0.1" ? undefined : host
require("https").get({host: "127.0.0.1", port, servername, headers: {host}}, reply => {
  reply.on("data", bytes => process.stdout.write(bytes))
}).on("error", error => { console.error(error); process.exit(1) })
"""


@needs("node")
async def test_node(site):
    command = ("node", "-e", NODE, "--", site.host, str(site.port))
    assert await site.reached_by(*command, NODE_EXTRA_CA_CERTS=str(site.ca)) == "ok"


GO = """package main

import (
	"crypto/tls"
	"crypto/x509"
	"os"
)

func main() {
	pem, _ := os.ReadFile(os.Args[3])
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	connection, err := tls.Dial("tcp", "127.0.0.1:"+os.Args[2], &tls.Config{ServerName: os.Args[1], RootCAs: roots})
	if err != nil {
		println(err.Error())
		os.Exit(1)
	}
	connection.Close()
}
"""


@pytest.fixture(scope="module")
def go_client(tmp_path_factory):
    """The Go client, built once with the machine's build cache."""
    if shutil.which("go") is None:
        pytest.skip("go is not here")
    folder = tmp_path_factory.mktemp("go")
    (folder / "client.go").write_text(GO)
    command = ["go", "build", "-o", folder / "client", folder / "client.go"]
    environment = {**os.environ, "GOFLAGS": "", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
    try:
        subprocess.run(command, check=True, timeout=100, env=environment)
    except subprocess.TimeoutExpired:
        pytest.skip("go takes too long to build its library on this machine")
    return folder / "client"


async def test_go(site, go_client):
    await site.reached_by(go_client, site.host, str(site.port), site.ca)


JAVA = """
import java.net.Socket;
import javax.net.ssl.*;

public class Client {
    public static void main(String[] arguments) throws Exception {
        Socket plain = new Socket("127.0.0.1", Integer.parseInt(arguments[1]));
        SSLSocketFactory factory = (SSLSocketFactory) SSLSocketFactory.getDefault();
        SSLSocket socket = (SSLSocket) factory.createSocket(plain, arguments[0], plain.getPort(), true);
        SSLParameters parameters = socket.getSSLParameters();
        parameters.setEndpointIdentificationAlgorithm("HTTPS");
        socket.setSSLParameters(parameters);
        socket.startHandshake();
        System.out.print(socket.getSession().getProtocol());
        socket.close();
    }
}
"""


@needs("java")
async def test_java_with_the_exported_trust_store(site):
    source, store = site.folder / "Client.java", site.folder / "trust.p12"
    source.write_text(JAVA)
    store.write_bytes(pkcs12_truststore(site.ca.read_text()))
    command = ("java", "-Xshare:auto", f"-Djavax.net.ssl.trustStore={store}",
               "-Djavax.net.ssl.trustStorePassword=changeit", source, site.host, str(site.port))  # fmt: skip
    assert await site.reached_by(*command) == "TLSv1.3"
