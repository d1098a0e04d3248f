"""The way to token endpoints: what is sent, what is refused before, and what hostile answers come to."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

from proxy.upstream.resolver import Resolver
from proxy.upstream.token_endpoint import MAX_BYTES, TokenEndpoints
from signers.grants.client_credentials import client_credentials
from signers.grants.jwt_bearer import jwt_bearer
from signers.grants.model import Client, Issued, RemoteKey, SignatureRequest, TokenRefused, TokenRequest
from signers.secret import Secret
from tests.token_server import Answer, TokenServer, as_json

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)
GOOD = as_json(200, {"access_token": "an-access-token", "expires_in": 60})


def endpoints(**more: Any) -> TokenEndpoints:
    return TokenEndpoints(Resolver(), ssl.create_default_context, **more)


async def ask(url: str, way: TokenEndpoints | None = None, networks: Any = LOOPBACK) -> Issued:
    grant = client_credentials(Client(url, "me", Secret("s3cret")), 1000.0, "n")
    return await (way or endpoints()).ask(grant, networks)


def server(answer: Answer | None) -> TokenServer:
    async def respond(form: dict[str, str], headers: dict[str, str]) -> Answer | None:
        return answer

    return TokenServer(respond)


async def outcome(answer: Answer | None, **more: Any) -> tuple[str, str]:
    async with server(answer) as peer:
        with pytest.raises(TokenRefused) as refused:
            await ask(peer.url, endpoints(**more))
        assert len(peer.forms) == 1
        return refused.value.outcome, refused.value.error


async def test_nothing_is_sent_but_what_the_grant_wrote() -> None:
    async with server(GOOD) as peer:
        assert (await ask(peer.url)).access_token.reveal() == "an-access-token"
    (head,) = peer.heads
    assert set(head) <= {"host", "accept", "authorization", "content-type", "content-length", "accept-encoding"}
    assert peer.targets == ["POST /token HTTP/1.1"]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((302, {"Location": "http://127.0.0.1:1/"}, b""), ("down", "status 302")),
        ((307, {"Location": "http://127.0.0.1:1/"}, b""), ("down", "status 307")),
        ((200, {}, b"x" * (MAX_BYTES + 1)), ("unknown", "no_reply")),
        ((200, {"Content-Encoding": "gzip"}, b"not gzip"), ("unknown", "no_reply")),
        ((200, {"Content-Type": "application/json"}, b'{"access_token": "cut'), ("unknown", "unreadable_reply")),
        ((200, {"Content-Type": "application/json"}, b"[" * 100_000), ("unknown", "unreadable_reply")),
        (None, ("unknown", "no_reply")),
    ],
)
async def test_hostile_answers(answer: Answer | None, expected: tuple[str, str]) -> None:
    assert await outcome(answer) == expected


async def test_an_endpoint_that_does_not_answer_is_left_in_time_and_its_outcome_is_unknown() -> None:
    left = asyncio.Event()

    async def silent(form: dict[str, str], headers: dict[str, str]) -> Answer | None:
        await left.wait()
        return None

    async with TokenServer(silent) as peer:
        with pytest.raises(TokenRefused) as refused:
            await ask(peer.url, endpoints(total=0.2))
        assert refused.value.outcome == ("unknown" if peer.forms else "down")
        left.set()


async def test_a_refused_connection_is_down() -> None:
    async with server(GOOD) as peer:
        url = peer.url
    with pytest.raises(TokenRefused) as refused:
        await ask(url)
    assert (refused.value.outcome, refused.value.error) == ("down", "unreachable")


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/", "https://169.254.169.254/token", "https://metadata.google.internal/t"]
)
async def test_an_address_that_may_not_be_dialled_is_not(url: str) -> None:
    with pytest.raises(TokenRefused) as refused:
        await ask(url, networks=())
    assert (refused.value.outcome, refused.value.error) == ("down", "address_refused")


async def test_the_parent_proxy_is_asked_for_the_endpoint() -> None:
    async with server(GOOD) as parent, server(GOOD) as peer:
        way = endpoints(parent_url=parent.url.removesuffix("/token"))
        assert (await ask(peer.url, way)).access_token.reveal() == "an-access-token"
        assert parent.targets == [f"POST {peer.url} HTTP/1.1"]
        assert not peer.forms


class ConnectProxy:
    """A parent proxy that knows CONNECT, and where each name really is."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.asked: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.asked.append(head.splitlines()[0])
        inner, outer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(self.pump(reader, outer), self.pump(inner, writer))

    @staticmethod
    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while piece := await source.read(65_536):
                sink.write(piece)
                await sink.drain()
        except OSError:
            pass
        finally:
            sink.close()


async def test_a_parent_proxy_that_has_a_name_is_asked_to_connect_and_tls_is_the_endpoints() -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("id.example.com").configure_cert(context)

    async def addresses(host: str) -> Any:
        return [(0, 0, 0, "", ("93.184.215.14", 0))]

    trusting = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
    async with TokenServer(lambda form, headers: asyncio.sleep(0, GOOD), tls=context) as peer:
        proxy = ConnectProxy(int(peer.url.rsplit(":", 1)[1].partition("/")[0]))
        listening = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
        async with listening:
            parent = f"http://localhost:{listening.sockets[0].getsockname()[1]}"
            way = TokenEndpoints(Resolver(addresses), lambda: trusting, parent_url=parent)
            assert (await ask("https://id.example.com/token", way, ())).access_token
    assert proxy.asked == ["CONNECT id.example.com:443 HTTP/1.1"]


async def test_proxy_variables_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    async with server(GOOD) as peer:
        assert (await ask(peer.url)).access_token


async def test_a_remote_key_signs_where_there_is_one() -> None:
    async def sign(request: SignatureRequest) -> bytes:
        assert request.key == "k"
        return b"signature"

    client = Client("", "me", key=RemoteKey("k", "RS256"))
    async with server(GOOD) as peer:
        client = Client(peer.url, "me", key=RemoteKey("k", "RS256"))
        assert (await endpoints(sign=sign).ask(jwt_bearer(client, "s", 1000.0, "n"), LOOPBACK)).access_token
        assert peer.forms[0]["assertion"].endswith(".c2lnbmF0dXJl")
    with pytest.raises(ValueError, match="transit_key"):
        await endpoints().ask(jwt_bearer(client, "s", 1000.0, "n"), LOOPBACK)


def test_a_request_shows_no_secret() -> None:
    assert "s3cret" not in repr(TokenRequest("https://x/", {"Authorization": "s3cret"}, b"s3cret"))


@pytest.mark.parametrize("content", [None, b"", b"  \n", "é".encode(), b"x" * 20_000])
async def test_a_workloads_token_is_read_when_it_is_asked_for(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "token"
    async with server(GOOD) as peer:
        client = Client(peer.url, "me", assertion_file=str(file))
        for each in (b"first\n", b"second"):
            file.write_bytes(each)
            await endpoints().ask(client_credentials(client, 1000.0, "n"), LOOPBACK)
        file.unlink() if content is None else file.write_bytes(content)
        with pytest.raises(TokenRefused) as refused:
            await endpoints().ask(client_credentials(client, 1000.0, "n"), LOOPBACK)
    assert (refused.value.outcome, refused.value.error) == ("down", "workload_token")
    assert [form["client_assertion"] for form in peer.forms] == ["first", "second"]
