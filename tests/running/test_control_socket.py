"""What the operator sees and stops through the control socket of a running instance."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme

from tests.running.stand import (
    CANARY,
    INTERCEPTED,
    LOOPBACK,
    TUNNELLED,
    Serving,
    Stand,
    Upstream,
    eventually,
    policy,
)

PARCELS = f"""
name: parcels
title: Parcels
verified: 2026-09-30
source: [https://parcels.test/docs]
hosts: [{INTERCEPTED}]
auth: {{bearer: {{header: Authorization, format: "Bearer {{value}}"}}}}
operations: [{{name: track, method: GET, path: /x}}]
"""


@pytest.fixture(scope="module")
def upstream(roots: trustme.CA) -> Iterator[Upstream]:
    server = Upstream(roots)
    yield server
    server.close()


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream, roots: trustme.CA) -> Iterator[Serving]:
    with Serving(Stand(tmp_path_factory.mktemp("c"), upstream, roots)) as serving:
        yield serving


def test_status_shows_what_an_operator_asks_first(serving: Serving):
    assert serving.get("/shop/x")[0] == 200
    status = serving.status()
    assert [listener["kind"] for listener in status["listeners"]] == ["proxy", "base-url"]
    assert all(listener["port"] for listener in status["listeners"])
    assert status["store"] == {"kind": "file", "changes_waiting": 0, "changes_durable": True}
    assert status["credentials"] == [
        {"tenant": "acme", "actor": None, "credential": "shop@1", "expires": None, "state": "fresh"}
    ]
    assert status["reload_failures"] == {}
    assert {"side": "client", "state": "active", "count": 0} in status["connections"]
    assert len(status["policies"]["hash"]) == 12
    assert "canary" not in str(status)


@pytest.mark.parametrize(
    "block", [{"tenant": "acme"}, {"agent": "bot"}, {"credential": "shop"}, {"tenant": "acme", "credential": "shop"}]
)
def test_a_block_holds_at_once_until_it_is_let_go(serving: Serving, block: dict[str, str]):
    assert serving.control("POST", "/block", **block)[1]["blocks"] == [block]
    status, body = serving.get("/shop/x")
    assert (status, b"The operator has stopped calls of" in body) == (403, True)
    assert serving.status()["blocks"] == [block]
    assert serving.control("POST", "/unblock", **block) == (200, {"blocks": []})
    assert serving.get("/shop/x")[0] == 200


def test_a_block_of_others_stops_nobody_else(serving: Serving):
    serving.control("POST", "/block", tenant="globex")
    assert serving.get("/shop/x")[0] == 200
    assert serving.control("POST", "/unblock", tenant="acme")[0] == 422
    assert serving.control("POST", "/unblock", tenant="globex")[0] == 200
    assert serving.control("POST", "/block", nobody="x")[0] == 422
    assert serving.control("POST", "/block")[0] == 422


def test_a_blocked_tenants_tunnels_are_cut_and_no_new_ones_opened(
    serving: Serving, upstream: Upstream, roots: trustme.CA
):
    tunnel = _tunnel(serving, upstream, roots)
    tunnel.sendall(b"GET /x HTTP/1.1\r\nHost: files\r\n\r\n")
    assert tunnel.recv(1000).startswith(b"HTTP/1.1 200")
    assert serving.control("POST", "/block", tenant="acme")[1]["ended"] == 1
    assert _is_cut(tunnel)
    assert _connect(serving, upstream, TUNNELLED)[0].startswith(b"HTTP/1.1 403")
    assert _connect(serving, upstream, INTERCEPTED)[0].startswith(b"HTTP/1.1 403")
    serving.control("POST", "/unblock", tenant="acme")
    assert _connect(serving, upstream, TUNNELLED)[0].startswith(b"HTTP/1.1 200")
    cut = eventually(
        lambda: [line for line in serving.stand.audit() if line.get("outcome") == "canceled" and line.get("code")]
    )
    assert cut[0]["code"] == "policy_denied"


def test_a_blocked_tenants_idle_inspected_tunnels_are_closed_and_nobody_elses(serving: Serving, upstream: Upstream):
    authority = trusting((serving.stand.folder / "ca" / "ca.crt").read_text())
    tunnel = authority.wrap_socket(_connect(serving, upstream, INTERCEPTED)[1], server_hostname=INTERCEPTED)
    for blocked in ("globex", "acme"):
        tunnel.sendall(f"GET /x HTTP/1.1\r\nHost: {INTERCEPTED}:{upstream.port}\r\n\r\n".encode())
        reply = tunnel.recv(10_000)
        while not reply.endswith(b"hello\n"):
            more = tunnel.recv(10_000)
            assert more, reply
            reply += more
        serving.control("POST", "/block", tenant=blocked)
    assert tunnel.recv(1) == b""
    for blocked in ("globex", "acme"):
        serving.control("POST", "/unblock", tenant=blocked)


@pytest.mark.parametrize("block", [{"credential": "shop"}, {"agent": "bot", "credential": "shop"}])
def test_a_block_of_a_credential_holds_inside_tunnels_that_are_open(
    serving: Serving, upstream: Upstream, block: dict[str, str]
):
    """The tunnel stays, since it may lead to what is not blocked; its next call is refused and nothing is sent."""
    authority = trusting((serving.stand.folder / "ca" / "ca.crt").read_text())
    tunnel = authority.wrap_socket(_connect(serving, upstream, INTERCEPTED)[1], server_hostname=INTERCEPTED)
    asked = f"GET /x HTTP/1.1\r\nHost: {INTERCEPTED}:{upstream.port}\r\n\r\n".encode()
    tunnel.sendall(asked)
    reply = b""
    while not reply.endswith(b"hello\n"):
        reply += tunnel.recv(10_000)
    upstream.seen.clear()
    serving.control("POST", "/block", **block)
    tunnel.sendall(asked)
    assert tunnel.recv(10_000).startswith(b"HTTP/1.1 403")
    assert upstream.seen == []
    serving.control("POST", "/unblock", **block)


def test_a_block_of_a_provider_holds_inside_tunnels_that_are_open(
    tmp_path: Path, upstream: Upstream, roots: trustme.CA
):
    """The next call is refused, at most a second after the block and here at once; it passes again when unblocked."""
    stand = Stand(tmp_path, upstream, roots, providers=["./providers"])
    (stand.folder / "providers").mkdir()
    (stand.folder / "providers" / "parcels.yaml").write_text(PARCELS)
    rule = {
        "name": "parcels",
        "provider": "parcels",
        "host": INTERCEPTED,
        "port": upstream.port,
        "networks": [*LOOPBACK],
    }
    stand.write_policy(policy(upstream, {**rule, "credential": {"name": "parcels"}}))
    stand.store({"tenants/acme/parcels": {"kind": "bearer", "token": CANARY, "hosts": [INTERCEPTED]}})
    asked = f"GET /x HTTP/1.1\r\nHost: {INTERCEPTED}:{upstream.port}\r\n\r\n".encode()
    with Serving(stand) as serving:
        authority = trusting((stand.folder / "ca" / "ca.crt").read_text())
        tunnel = authority.wrap_socket(_connect(serving, upstream, INTERCEPTED)[1], server_hostname=INTERCEPTED)
        tunnel.sendall(asked)
        reply = b""
        while not reply.endswith(b"hello\n"):
            reply += tunnel.recv(10_000)
        upstream.seen.clear()
        serving.control("POST", "/block", provider="parcels")
        tunnel.sendall(asked)
        assert tunnel.recv(10_000).startswith(b"HTTP/1.1 403")
        assert upstream.seen == []
        serving.control("POST", "/unblock", provider="parcels")
        tunnel.sendall(asked)
        assert tunnel.recv(10_000).startswith(b"HTTP/1.1 200")


def test_a_breaker_that_is_open_is_shown_with_the_time_left(tmp_path: Path, roots: trustme.CA):
    gone = Upstream(roots)
    stand = Stand(tmp_path, gone, roots)
    gone.close()
    with Serving(stand) as serving:
        assert serving.status()["breakers"] == []
        eventually(lambda: b"breaker_open" in serving.get("/shop/x")[1])
        (shown,) = serving.status()["breakers"]
    assert (shown["tenant"], shown["destination"]) == ("acme", f"https://{INTERCEPTED}:{gone.port}")
    assert 0 < shown["seconds"] <= 5


def test_drain_lets_running_calls_finish_and_ends_with_0(tmp_path: Path, upstream: Upstream, roots: trustme.CA):
    with Serving(Stand(tmp_path, upstream, roots)) as serving:
        begun = socket.create_connection(("127.0.0.1", urlsplit(serving.base).port or 0), timeout=10)
        begun.sendall(b"POST /shop/x HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\na")
        eventually(lambda: serving.status()["calls_in_flight"] == 1)
        assert serving.control("POST", "/drain") == (200, {"draining": True})
        eventually(lambda: _refuses(serving.base))
        begun.sendall(b"b")
        assert begun.recv(10_000).startswith(b"HTTP/1.1 200")
        assert serving.process.wait(10) == 0


def _refuses(base: str) -> bool:
    try:
        socket.create_connection(("127.0.0.1", urlsplit(base).port or 0), timeout=10).close()
    except ConnectionRefusedError:
        return True
    return False


def test_explain_answers_for_the_running_instance(serving: Serving, upstream: Upstream):
    asked = {"method": "GET", "url": upstream.url(INTERCEPTED), "tenant": "acme", "agent": "bot"}
    assert serving.control("POST", "/explain", **asked)[1]["decision"] == "allowed"
    done = serving.stand.command(
        "explain", "--live", "--config", str(serving.stand.config), "get", upstream.url(INTERCEPTED)
    )
    assert done.returncode == 0, done.stderr
    assert "decided by rule shop" in done.stdout
    assert serving.control("POST", "/explain", **{**asked, "url": "http://0x7f.1/"})[0] == 422


def test_explain_live_says_when_nothing_runs(
    tmp_path_factory: pytest.TempPathFactory, upstream: Upstream, roots: trustme.CA
):
    stand = Stand(tmp_path_factory.mktemp("n"), upstream, roots)
    done = stand.command("explain", "--live", "--config", str(stand.config), "GET", "https://x.test/")
    assert done.returncode == 1
    assert done.stderr.endswith("control.sock: no instance answers there; start `sluicegate serve`\n")


def _is_cut(tunnel: ssl.SSLSocket) -> bool:
    """Whether the tunnel ends without being closed in order, once what had come is read."""
    try:
        while tunnel.recv(1000):
            pass
    except (ConnectionError, ssl.SSLError):
        return True
    return False


def _connect(serving: Serving, upstream: Upstream, host: str) -> tuple[bytes, socket.socket]:
    client = socket.create_connection(("127.0.0.1", urlsplit(serving.proxy).port or 0), timeout=10)
    authority = f"{host}:{upstream.port}".encode()
    client.sendall(b"CONNECT " + authority + b" HTTP/1.1\r\nHost: " + authority + b"\r\n\r\n")
    return client.recv(1000), client


def _tunnel(serving: Serving, upstream: Upstream, roots: trustme.CA) -> ssl.SSLSocket:
    reply, client = _connect(serving, upstream, TUNNELLED)
    assert reply.startswith(b"HTTP/1.1 200")
    context = trusting(roots.cert_pem.bytes().decode())
    return context.wrap_socket(client, server_hostname=TUNNELLED, suppress_ragged_eofs=False)


def trusting(pem: str) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=pem)
