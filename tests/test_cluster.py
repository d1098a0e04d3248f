"""The Kubernetes API is asked with the pod's own token, and its answer is taken whole or not at all."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trustme
from aiohttp import web

from proxy import cluster
from proxy.cluster import Cluster, ClusterError, address_in

PIECES = [b'{"items": ["', b"a" * 100_000, b'"]}']


async def in_pieces(request: web.Request) -> web.StreamResponse:
    reply = web.StreamResponse(headers={"Content-Type": "application/json"})
    await reply.prepare(request)
    for piece in PIECES:
        await reply.write(piece)
        await asyncio.sleep(0.02)  # so that each comes by itself
    await reply.write_eof()
    return reply


async def who(request: web.Request) -> web.Response:
    return web.json_response({"authorization": request.headers["Authorization"], "type": request.content_type})


async def refused(_: web.Request) -> web.Response:
    return web.json_response({"message": "taken"}, status=409)


async def listed(_: web.Request) -> web.Response:
    return web.json_response([])


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Cluster]:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    (tmp_path / "token").write_text("first\n")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    app = web.Application()
    app.add_routes([web.get(f"/{answer.__name__}", answer) for answer in (in_pieces, refused, listed)])
    app.add_routes([web.put("/who", who)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    yield Cluster(f"https://127.0.0.1:{runner.addresses[0][1]}/", tmp_path / "token", tmp_path / "ca.crt")
    await runner.cleanup()


async def test_an_answer_in_many_pieces_is_taken_whole(api: Cluster) -> None:
    assert await api.request("GET", "/in_pieces") == {"items": ["a" * 100_000]}


async def test_an_answer_without_end_is_left(api: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "LARGEST", 50_000)
    with pytest.raises(ClusterError, match="GET /in_pieces was answered with more than 50000 bytes"):
        await api.request("GET", "/in_pieces")


async def test_each_request_shows_the_token_of_its_time(api: Cluster, tmp_path: Path) -> None:
    for token in ("first", "second"):
        (tmp_path / "token").write_text(f"{token}\n")
        assert await api.request("PUT", "/who", {}) == {"authorization": f"Bearer {token}", "type": "application/json"}


@pytest.mark.parametrize(
    ("path", "status", "said"), [("/refused", 409, "was answered 409"), ("/listed", 200, "no JSON object")]
)
async def test_other_answers_are_errors_with_their_status(api: Cluster, path: str, status: int, said: str) -> None:
    with pytest.raises(ClusterError, match=said) as error:
        await api.request("GET", path)
    assert error.value.status == status


async def test_a_server_of_another_authority_gets_no_token(api: Cluster, tmp_path: Path) -> None:
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    with pytest.raises(ClusterError, match="PUT /who: ClientConnectorCertificateError"):
        await api.request("PUT", "/who")


def test_the_address_is_the_one_that_a_pod_is_told() -> None:
    assert address_in({}) == "https://kubernetes.default.svc:443"
    told = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    assert address_in(told) == "https://[fd00::1]:6443"
