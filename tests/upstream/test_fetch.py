"""Documents of the operator's choosing are fetched whole, bounded, and from nowhere else."""

from __future__ import annotations

import asyncio
import ssl

import pytest
from aiohttp import web

from proxy.upstream.fetch import MAX_BYTES, Fetcher


async def in_two(request: web.Request) -> web.StreamResponse:
    reply = web.StreamResponse()
    await reply.prepare(request)
    await reply.write(b'{"keys"')
    await asyncio.sleep(0.02)  # so that the two writes are two segments
    await reply.write(b": []}")
    return reply


async def moved(_: web.Request) -> web.StreamResponse:
    raise web.HTTPFound("/in-two")


async def long(request: web.Request) -> web.StreamResponse:
    return web.Response(body=bytes(MAX_BYTES + int(request.query["over"])))


async def missing(_: web.Request) -> web.StreamResponse:
    return web.Response(status=404)


@pytest.fixture
async def origin(aiohttp_server):
    app = web.Application()
    app.router.add_get("/in-two", in_two)
    app.router.add_get("/moved", moved)
    app.router.add_get("/long", long)
    app.router.add_get("/missing", missing)
    server = await aiohttp_server(app)
    return str(server.make_url("/"))


def fetcher() -> Fetcher:
    return Fetcher(ssl.create_default_context, None)


async def test_a_document_in_several_segments_is_read_whole(origin: str) -> None:
    assert await fetcher().fetch(f"{origin}in-two") == b'{"keys": []}'


@pytest.mark.parametrize(("path", "said"), [("moved", "answered 302"), ("missing", "answered 404")])
async def test_anything_but_a_200_is_an_error_that_says_so(origin: str, path: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        await fetcher().fetch(origin + path)


async def test_a_document_is_bounded(origin: str) -> None:
    assert len(await fetcher().fetch(f"{origin}long?over=0")) == MAX_BYTES
    with pytest.raises(ValueError, match="longer than"):
        await fetcher().fetch(f"{origin}long?over=1")


async def test_proxy_variables_of_the_environment_are_not_used(origin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert await fetcher().fetch(f"{origin}in-two") == b'{"keys": []}'


async def test_a_server_that_is_not_there_is_an_oserror_without_details_of_ours(unused_tcp_port: int) -> None:
    with pytest.raises(OSError, match="could not be fetched"):
        await fetcher().fetch(f"http://127.0.0.1:{unused_tcp_port}/")
