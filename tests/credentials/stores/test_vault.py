"""The Vault store against a scripted Vault: every way to fail, and how many requests each costs."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from proxy.credentials.store import Conflict, NotFound
from proxy.credentials.stores.vault import VaultStore
from proxy.credentials.stores.vault_login import AppRoleLogin, TokenLogin
from proxy.errors import StoreError
from tests.credentials.stores.scripted_vault import Request, ScriptedVault, login, reply, scripted_vault, secret

PATH = "tenants/acme/slack"
READ = f"GET /v1/secret/data/{PATH}"
LOGIN = "POST /v1/auth/approle/login"
Answer = Callable[[Request], bytes | None]
Servers = Callable[[Answer], ScriptedVault]


@pytest.fixture
def secret_id(tmp_path: Path) -> Path:
    path = tmp_path / "secret-id"
    path.touch(0o600)
    path.write_text("the-secret-id\n")
    return path


@pytest.fixture
def servers() -> Iterator[Servers]:
    with ExitStack() as stack:
        yield lambda answer: stack.enter_context(scripted_vault(with_login(answer)))


def with_login(answer: Answer) -> Answer:
    logins = 0

    def wrapped(request: Request) -> bytes | None:
        nonlocal logins
        if request.path == "/v1/auth/approle/login":
            logins += 1
            return login(f"token-{logins}")
        return answer(request)

    return wrapped


@asynccontextmanager
async def opened(secret_id: Path, *vaults: ScriptedVault | str, **settings: object) -> AsyncIterator[VaultStore]:
    addresses = [vault if isinstance(vault, str) else vault.address for vault in vaults]
    store = VaultStore(addresses, AppRoleLogin("role", secret_id), read_timeout=0.25, **settings)  # type: ignore[arg-type]
    try:
        await store.start()
        yield store
    finally:
        await store.close()


async def test_a_read_carries_the_token_and_no_request_more_than_needed(servers: Servers, secret_id: Path) -> None:
    vault = servers(lambda request: secret({"token": "t"}, 7))
    async with opened(secret_id, vault, namespace="team") as store:
        stored = await store.read(PATH)
        await store.read(PATH)
    assert (stored.fields, stored.version) == ({"token": "t"}, 7)
    assert [f"{request.method} {request.path}" for request in vault.requests] == [LOGIN, READ, READ]
    assert vault.requests[0].token is None
    assert vault.requests[0].body == {"role_id": "role", "secret_id": "the-secret-id"}
    assert {request.token for request in vault.requests[1:]} == {"token-1"}
    assert {request.headers["x-vault-namespace"] for request in vault.requests} == {"team"}
    assert {request.headers["x-vault-request"] for request in vault.requests} == {"true"}


async def test_a_403_costs_one_login_and_one_more_read(servers: Servers, secret_id: Path) -> None:
    vault = servers(
        lambda request: secret({"token": "t"}) if request.token == "token-2" else reply(403, {"errors": []})
    )
    async with opened(secret_id, vault) as store:
        assert (await store.read(PATH)).fields == {"token": "t"}
    assert (vault.count(LOGIN), vault.count(READ)) == (2, 2)


async def test_a_path_that_stays_denied_is_an_error_not_a_login_storm(servers: Servers, secret_id: Path) -> None:
    vault = servers(lambda request: reply(403, {"errors": ["permission denied"]}))
    async with opened(secret_id, vault) as store:
        for _ in range(10):
            with pytest.raises(StoreError, match=r"403 .permission denied"):
                await store.read(PATH)
    assert vault.count(LOGIN) == 2
    assert vault.count(READ) == 11


@pytest.mark.parametrize("status", [400, 405, 412, 429])
async def test_a_refusal_is_an_error_after_one_request(servers: Servers, secret_id: Path, status: int) -> None:
    first = servers(lambda request: reply(status, {"errors": ["hush: secret-in-error"]}))
    second = servers(lambda request: secret({"token": "t"}))
    async with opened(secret_id, first, second) as store:
        with pytest.raises(StoreError, match=str(status)) as caught:
            await store.read(PATH)
    assert "hush" not in str(caught.value)
    assert (first.count(READ), second.count(READ)) == (1, 0)


@pytest.mark.parametrize("status", [472, 473, 500, 502, 503])
async def test_a_standby_or_failing_node_is_left_for_the_next_and_not_asked_first_again(
    servers: Servers, secret_id: Path, status: int
) -> None:
    first = servers(lambda request: reply(status, {"errors": ["sealed"]}))
    second = servers(lambda request: secret({"token": "t"}))
    async with opened(secret_id, first, second) as store:
        await store.read(PATH)
        await store.read(PATH)
    assert (first.count(READ), second.count(READ)) == (1, 2)


async def test_when_every_node_fails_each_is_asked_once(servers: Servers, secret_id: Path) -> None:
    both = [servers(lambda request: reply(503, {"errors": ["Vault is sealed"]})) for _ in range(2)]
    async with opened(secret_id, *both) as store:
        with pytest.raises(StoreError, match=r"503 .sealed"):
            await store.read(PATH)
    assert [vault.count(READ) for vault in both] == [1, 1]


async def test_an_address_nobody_listens_at_is_passed_over(servers: Servers, secret_id: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{closed.getsockname()[1]}"
        vault = servers(lambda request: secret({"token": "t"}))
        async with opened(secret_id, dead, vault) as store:
            assert (await store.read(PATH)).version == 1
        with pytest.raises(StoreError, match="cannot connect"):
            async with opened(secret_id, dead):
                pass


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\n{"])
async def test_a_read_cut_short_by_one_node_is_asked_of_the_next(
    servers: Servers, secret_id: Path, answer: bytes
) -> None:
    first = servers(lambda request: answer)
    second = servers(lambda request: secret({"token": "t"}))
    async with opened(secret_id, first, second) as store:
        assert (await store.read(PATH)).fields == {"token": "t"}
    assert (first.count(READ), second.count(READ)) == (1, 1)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_never_followed_and_the_token_goes_nowhere_else(
    servers: Servers, secret_id: Path, status: int
) -> None:
    elsewhere = servers(lambda request: secret({"token": "stolen"}))
    location = f"Location: {elsewhere.address}/v1/secret/data/{PATH}"
    vault = servers(lambda request: reply(status, None, location))
    async with opened(secret_id, vault) as store:
        with pytest.raises(StoreError, match="redirect, which is never followed"):
            await store.read(PATH)
    assert vault.count(READ) == 1
    assert elsewhere.requests == []


async def test_a_login_is_not_redirected_either(secret_id: Path) -> None:
    with (
        scripted_vault(lambda request: login("stolen")) as elsewhere,
        scripted_vault(lambda request: reply(307, None, f"Location: {elsewhere.address}{request.path}")) as vault,
    ):
        with pytest.raises(StoreError, match="redirect"):
            async with opened(secret_id, vault):
                pass
        assert elsewhere.requests == []


TRUNCATED = b'HTTP/1.1 200 OK\r\nContent-Length: 4000\r\nConnection: close\r\n\r\n{"data":'
CHUNK_CUT = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n4000\r\n{"data":'
ENDLESS = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + b" " * (1024 * 1024 + 20_000)
NOT_JSON = reply(200).replace(b"Content-Length: 0", b"Content-Length: 5") + b"<html"
GZIPPED = reply(200, {"data": {}}, "Content-Encoding: gzip")
OTHER_SHAPE = reply(200, {"data": {"token": "kv-version-1"}})
NO_VERSION = reply(200, {"data": {"data": {"token": "t"}, "metadata": {}}})
EMPTY = reply(200)
LIST = reply(200, [1])
GARBAGE = b"\x00\x01garbage\r\n\r\nConnection: close"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (TRUNCATED, "cut short"),
        (CHUNK_CUT, "cut short"),
        (ENDLESS, "too long"),
        (NOT_JSON, "not JSON"),
        (GZIPPED, "failed"),
        (OTHER_SHAPE, "KV v2"),
        (NO_VERSION, "KV v2"),
        (EMPTY, "KV v2"),
        (LIST, "KV v2"),
        (GARBAGE, "failed"),
        (b"", "failed"),
    ],
)
async def test_an_answer_that_cannot_be_trusted_is_an_error_after_one_request(
    servers: Servers, secret_id: Path, answer: bytes, words: str
) -> None:
    vault = servers(lambda request: answer)
    async with opened(secret_id, vault) as store:
        with pytest.raises(StoreError, match=words):
            await store.read(PATH)
    assert vault.count(READ) == 1


async def test_a_silent_vault_times_out_and_the_loop_goes_on(servers: Servers, secret_id: Path) -> None:
    vault = servers(lambda request: None)
    async with opened(secret_id, vault) as store:
        read = asyncio.ensure_future(store.read(PATH))
        for _ in range(5):
            await asyncio.sleep(0.01)
        assert not read.done()
        with pytest.raises(StoreError, match="timed out"):
            await read
        vault.released.set()
    assert vault.count(READ) == 1


async def test_a_missing_and_a_deleted_record_are_not_found_but_a_missing_mount_is_an_error(
    servers: Servers, secret_id: Path
) -> None:
    deleted = {"data": {"data": None, "metadata": {"version": 3, "deletion_time": "2024-01-01T00:00:00Z"}}}
    answers = {"a": reply(404, {"errors": []}), "b": reply(404, deleted), "c": reply(404, {"errors": ["no handler"]})}
    vault = servers(lambda request: answers[request.path[-1]])
    async with opened(secret_id, vault) as store:
        with pytest.raises(NotFound) as missing:
            await store.read("a")
        with pytest.raises(NotFound) as gone:
            await store.read("b")
        with pytest.raises(StoreError, match="404"):
            await store.read("c")
    assert (missing.value.version, gone.value.version) == (0, 3)


async def test_a_write_whose_outcome_is_unknown_is_not_sent_to_another_node(servers: Servers, secret_id: Path) -> None:
    first = servers(lambda request: b"" if request.method == "POST" else secret({}))
    second = servers(lambda request: reply(200, {"data": {"version": 1}}))
    async with opened(secret_id, first, second) as store:
        with pytest.raises(StoreError):
            await store.write(PATH, {"token": "t"}, 0)
    assert second.count("POST /v1/secret/data") == 0


async def test_a_version_that_does_not_match_is_a_conflict(servers: Servers, secret_id: Path) -> None:
    mismatch = "check-and-set parameter did not match the current version"
    vault = servers(lambda request: reply(400, {"errors": [mismatch]}))
    async with opened(secret_id, vault) as store:
        with pytest.raises(Conflict):
            await store.write(PATH, {"token": "t"}, 3)
    assert vault.requests[-1].body == {"data": {"token": "t"}, "options": {"cas": 3}}


async def test_proxies_of_the_environment_never_see_the_token(
    servers: Servers, secret_id: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = servers(lambda request: secret({"token": "from-the-proxy"}))
    vault = servers(lambda request: secret({"token": "t"}))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, proxy.address)
    async with opened(secret_id, vault) as store:
        assert (await store.read(PATH)).fields == {"token": "t"}
    assert proxy.requests == []


async def test_a_failed_start_goes_on_trying_in_the_background(secret_id: Path) -> None:
    healthy = asyncio.Event()
    answered = [reply(503, {"errors": ["sealed"]})]
    with scripted_vault(lambda request: answered.pop() if answered else login("t")) as vault:
        store = VaultStore([vault.address], AppRoleLogin("role", secret_id), random=lambda: 0.0)
        with pytest.raises(StoreError, match="sealed"):
            await store.start()
        assert not store.status.logged_in

        async def watch() -> None:
            while not store.status.logged_in:
                await asyncio.sleep(0.02)
            healthy.set()

        await asyncio.wait_for(watch(), 10)
        await store.close()
    assert vault.count(LOGIN) == 2
    assert healthy.is_set()


@pytest.mark.parametrize("bits", [0o604, 0o644])
async def test_a_secret_id_or_token_that_everybody_can_read_is_refused(
    servers: Servers, secret_id: Path, bits: int
) -> None:
    vault = servers(lambda request: secret({}))
    secret_id.chmod(bits)
    for way in (AppRoleLogin("role", secret_id), TokenLogin(secret_id)):
        store = VaultStore([vault.address], way)
        with pytest.raises(StoreError, match="open to everybody"):
            await store.start()
        await store.close()
    assert vault.requests == []


async def test_names_in_a_listing_that_we_would_not_read_are_left_out(servers: Servers, secret_id: Path) -> None:
    pages = {
        "/v1/secret/metadata/tenants?list=true": ["acme/", "../", "a b", "x/../y"],
        "/v1/secret/metadata/tenants/acme?list=true": ["slack"],
    }
    vault = servers(lambda request: reply(200, {"data": {"keys": pages[request.path]}}))
    async with opened(secret_id, vault) as store:
        assert await store.list("tenants") == [PATH]


async def test_no_logger_at_debug_holds_a_token_a_secret_id_or_a_value(
    servers: Servers, secret_id: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    answers = [secret({"token": "the-value"}), reply(403, {"errors": ["the-value"]}), b"", b"the-value\r\n\r\n"]
    vault = servers(lambda request: answers.pop(0) if answers else reply(500, {"errors": ["the-value"]}))
    async with opened(secret_id, vault) as store:
        await store.read(PATH)
        for _ in range(4):
            with pytest.raises(StoreError):
                await store.read(PATH)
    logged = caplog.text + "".join(str(record.__dict__) for record in caplog.records)
    assert "urllib3" in logged
    assert not any(text in logged for text in ("the-value", "the-secret-id", "token-1", "token-2"))
