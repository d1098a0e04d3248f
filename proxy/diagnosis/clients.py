"""The HTTP clients of this machine: do they trust our certificates, and what does each of them need?"""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from proxy.listeners.certificate_authority import CertificateAuthority
from proxy.running.environment import TrustFiles, Ways, child_environment
from proxy.running.trust_files import trust_files

SECONDS: Final = 40.0
"""For one client: a JVM and a Go compiler take their time on a busy machine."""
_REPLY: Final = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

_PYTHON: Final = (
    "import sys, urllib.request as r, urllib.error as e\ntry: r.urlopen(sys.argv[1])\nexcept e.HTTPError: pass"
)
_NODE: Final = "require('https').get(process.argv[1], r => process.exit(0)).on('error', e => process.exit(1))"
_GO: Final = """package main

import (
	"net/http"
	"os"
)

func main() {
	if _, err := http.Get(os.Args[1]); err != nil {
		os.Exit(1)
	}
}
"""
_JAVA: Final = """import java.net.URI;
import java.net.http.*;

public class Probe {
    public static void main(String[] a) throws Exception {
        HttpClient.newHttpClient().send(
            HttpRequest.newBuilder(URI.create(a[0])).build(), HttpResponse.BodyHandlers.discarding());
    }
}
"""


class Client(NamedTuple):
    """A client that is looked for, and how it is asked to fetch a URL: exit code 0 means that it trusted us."""

    name: str
    program: str
    advice: str
    source: tuple[str, str] | None = None
    """A file that it needs: name and text."""
    command: Callable[[str, str, Path], list[str]] | None = None
    """(program, URL, folder) to a command line; None for clients that are only advised on."""


CLIENTS: Final = (
    Client(
        "curl", "curl", "CURL_CA_BUNDLE or SSL_CERT_FILE; the proxy from https_proxy.",
        command=lambda program, url, _: [program, "-sS", "-o", os.devnull, url],
    ),
    Client(
        "git", "git", "GIT_SSL_CAINFO or http.sslCAInfo; the proxy from https_proxy or http.proxy.",
        command=lambda program, url, _: [program, "-c", "core.askPass=true", "ls-remote", url],
    ),
    Client(
        "python", sys.executable,
        "ssl and urllib read SSL_CERT_FILE, requests REQUESTS_CA_BUNDLE, boto3 AWS_CA_BUNDLE. "
        "aiohttp uses the proxy only with trust_env=True.",
        command=lambda program, url, _: [program, "-c", _PYTHON, url],
    ),
    Client(
        "node", "node", "NODE_EXTRA_CA_CERTS; fetch uses the proxy only with NODE_USE_ENV_PROXY=1, from Node 22.21 and "
        "24.5 on. Before that give the SDK a base URL of the base-url listener.",
        command=lambda program, url, _: [program, "-e", _NODE, url],
    ),
    Client(
        "go", "go",
        "SSL_CERT_FILE. Go never uses a proxy for localhost, 127.0.0.0/8 or ::1: for an upstream of your own "
        "there, use the base-url listener.",
        source=("probe.go", _GO), command=lambda program, url, folder: [program, "run", str(folder / "probe.go"), url],
    ),
    Client(
        "java", "java",
        "Reads no proxy variable and no PEM: JAVA_TOOL_OPTIONS with -Dhttps.proxyHost, -Dhttps.proxyPort "
        "and -Djavax.net.ssl.trustStore (`sluicegate ca export --format pkcs12`). It sends no proxy password: "
        "`sluicegate run` knows it by its process; elsewhere it needs a listener with a static identity.",
        source=("Probe.java", _JAVA), command=lambda program, url, folder: [program, str(folder / "Probe.java"), url],
    ),
    Client("npm", "npm", "NODE_EXTRA_CA_CERTS, or cafile in .npmrc, which wins; the proxy from HTTPS_PROXY."),
    Client("pip", "pip", "SSL_CERT_FILE and REQUESTS_CA_BUNDLE; PIP_CERT and `cert` in pip.conf win over both."),
    Client("uv", "uv", "SSL_CERT_FILE; the proxy from HTTPS_PROXY."),
    Client("cargo", "cargo", "CARGO_HTTP_CAINFO or http.cainfo; the proxy from HTTPS_PROXY or http.proxy."),
    Client("deno", "deno", "DENO_CERT; the proxy from HTTPS_PROXY."),
)  # fmt: skip


class Trust(NamedTuple):
    """One client of this machine. None where it was not asked to connect or did not answer in time."""

    name: str
    advice: str
    here: bool | None
    """With the environment as it is now."""
    run: bool | None
    """With what `sluicegate run` sets."""


async def clients_found(
    authority: CertificateAuthority, extra_roots: Path | None, environment: Mapping[str, str]
) -> list[Trust]:
    """Every client that is there, asked to fetch from a server on loopback whose certificate is of `authority`."""
    context = authority.context_for("localhost")
    server = await asyncio.start_server(
        _answer, "127.0.0.1", 0, ssl=context if isinstance(context, ssl.SSLContext) else await context
    )
    url = f"https://localhost:{server.sockets[0].getsockname()[1]}/"
    found = [(client, path) for client in CLIENTS if (path := shutil.which(client.program))]
    with (
        tempfile.TemporaryDirectory(prefix="sluicegate-doctor-") as folder,
        trust_files(authority.certificate_pem, extra_roots) as trust,
    ):
        try:
            asked = (_asked(client, path, url, Path(folder), trust, environment) for client, path in found)
            return list(await asyncio.gather(*asked))
        finally:
            server.close()


async def _asked(
    client: Client, path: str, url: str, folder: Path, trust: TrustFiles, environment: Mapping[str, str]
) -> Trust:
    if client.command is None:
        return Trust(client.name, client.advice, None, None)
    if client.source is not None:
        (folder / client.source[0]).write_text(client.source[1])
    command = client.command(path, url, folder)
    bypass = {**environment, "NO_PROXY": "localhost", "no_proxy": "localhost"}
    inside = child_environment(environment, Ways("127.0.0.1:9", "127.0.0.1:9", "127.0.0.1:9", "-"), trust, {})
    here, run = await asyncio.gather(_trusts(command, bypass), _trusts(command, inside.variables))
    return Trust(client.name, client.advice, here, run)


async def _trusts(command: Sequence[str], environment: Mapping[str, str]) -> bool | None:
    process = await asyncio.create_subprocess_exec(
        *command, env={**environment, "GIT_TERMINAL_PROMPT": "0"}, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(SECONDS):
            _, said = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return None
    # git ends with an error in any case, as there is no repository; only whose fault it is counts.
    return process.returncode == 0 or (b"not found" in said and b"certificate" not in said)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(_REPLY)
        await writer.drain()
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        pass  # a client that does not trust us leaves
    finally:
        writer.close()
