"""Every tool of the catalogue through the `tools` listener, against servers that answer as the providers do."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trustme
from aiohttp import web

from proxy.app import Instance, Outside
from proxy.model import Destination
from proxy.settings.loading import load
from proxy.upstream.dial import Dialler
from proxy.upstream.resolver import Resolver
from proxy.wire.framing import Limits
from tests.flows.product import Product, free_port, record

ISSUE = {
    "id": 7,
    "number": 3,
    "title": "t",
    "state": "open",
    "created_at": "2026-01-02T03:04:05Z",
    "user": {"login": "a"},
}
PAGE = {"object": "page", "id": "p1", "url": "https://n.example/p1", "created_time": "2026-01-02T03:04:05.000Z"}
CUSTOMER = {"id": "cus_1", "object": "customer", "created": 1767323045, "email": None}
EVENT = {"id": "e1", "start": {"dateTime": "2026-01-02T04:04:05+01:00"}, "end": {}}
SENT = "2026-01-02T03:04:05Z"
REPOSITORY = {"owner": "o", "repo": "r"}
CASES: dict[str, tuple[dict[str, Any], Any, dict[str, Any]]] = {
    "slack_list_channels": (
        {"limit": 2},
        {"ok": True, "channels": [{"id": "C1", "created": 1767323045}]},
        {"id": "C1", "created": SENT, "name": None},
    ),
    "slack_read_channel": ({"channel": "C1"}, {"ok": True, "messages": [{"ts": "1767323045.000000"}]}, {"sent": SENT}),
    "slack_send_message": (
        {"channel": "C1", "text": "x"},
        {"ok": True, "ts": "1767323045.000000", "channel": "C1"},
        {"sent": SENT},
    ),
    "github_list_issues": (REPOSITORY, [ISSUE], {"id": "7", "created": SENT}),
    "github_get_issue": ({**REPOSITORY, "number": 3}, ISSUE, {"id": "7", "body": None, "labels": []}),
    "github_create_issue": ({**REPOSITORY, "title": "t"}, ISSUE, {"id": "7", "url": None}),
    "notion_search": (
        {"query": "x"},
        {"object": "list", "results": [PAGE], "has_more": False},
        {"id": "p1", "edited": None},
    ),
    "notion_get_page": ({"page": "p1"}, PAGE, {"id": "p1", "created": SENT}),
    "notion_create_page": ({"parent": "p0", "title": "t"}, PAGE, {"id": "p1", "created": SENT}),
    "stripe_list_customers": (
        {},
        {"object": "list", "data": [CUSTOMER], "has_more": False},
        {"created": SENT, "email": None},
    ),
    "stripe_get_customer": ({"customer": "cus_1"}, CUSTOMER, {"id": "cus_1", "created": SENT}),
    "stripe_create_customer": ({"email": "a@b.example"}, CUSTOMER, {"id": "cus_1", "created": SENT}),
    "calendar_list_events": ({"calendar": "primary"}, {"items": [EVENT]}, {"starts": SENT, "ends": None}),
    "calendar_create_event": (
        {"calendar": "primary", "title": "t", "starts": SENT, "ends": SENT},
        EVENT,
        {"id": "e1", "starts": SENT},
    ),
    "jira_get_issue": (
        {"site": "acme", "issue": "OPS-1"},
        {"id": "1", "key": "OPS-1", "fields": {"summary": "s"}},
        {"id": "1", "status": None},
    ),
    "jira_create_issue": (
        {"site": "acme", "project": "OPS", "type": "Bug", "summary": "s"},
        {"id": "1", "key": "OPS-1"},
        {"key": "OPS-1"},
    ),
}
HOSTS = ("slack.com", "api.github.com", "api.notion.com", "api.stripe.com", "www.googleapis.com", "acme.atlassian.net")
PROVIDERS = {"slack": 0, "github": 1, "notion": 2, "stripe": 3, "google-calendar": 4, "jira": 5}


class _Anywhere(Resolver):
    def resolve(self, host: str, port: int, networks: Any = ()) -> Any:
        return ("127.0.0.1",)


class _ToFake(Dialler):
    """Dials the fake, whatever the destination."""

    port = 0

    async def open(self, destination: Destination, addresses: Any) -> Any:
        return await super().open(Destination("http", "127.0.0.1", self.port), ("127.0.0.1",))


class Fake:
    """All six providers: answers with `replies` in turn, the last one for ever, and keeps what it was sent."""

    def __init__(self) -> None:
        self.replies: list[tuple[int, Any, Mapping[str, str]]] = []
        self.requests: list[tuple[str, str, bytes, Mapping[str, str]]] = []

    def answers(self, *replies: Any) -> None:
        self.requests.clear()
        self.replies = [one if isinstance(one, tuple) else (200, one, {}) for one in replies]

    async def serve(self, request: web.Request) -> web.Response:
        self.requests.append((request.method, request.path_qs, await request.read(), dict(request.headers)))
        status, body, headers = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        return web.json_response(body, status=status, headers=headers)


class Stand:
    """The product with two tools listeners: `acme` may call everything, `other` may only read from GitHub."""

    def __init__(self, fake: Fake, product: Product, ports: Mapping[str, int], session: aiohttp.ClientSession) -> None:
        self.fake, self.product, self._ports, self._session = fake, product, ports, session

    async def call(self, name: str, body: Any, tenant: str = "acme") -> tuple[int, Any]:
        url = f"http://127.0.0.1:{self._ports[tenant]}/v1/tools/{name}"
        async with self._session.post(url, json=body) as reply:
            return reply.status, await reply.json()

    async def send(self, name: str, raw: bytes) -> tuple[int, Any]:
        async with self._session.post(f"http://127.0.0.1:{self._ports['acme']}/v1/tools/{name}", data=raw) as reply:
            return reply.status, await reply.json()

    async def get(self, path: str, tenant: str = "acme", **headers: str) -> tuple[int, Any]:
        async with self._session.get(f"http://127.0.0.1:{self._ports[tenant]}{path}", headers=headers) as reply:
            return reply.status, await reply.json()


def documents() -> list[dict[str, Any]]:
    def policy(name: str, tenant: str, allow: list[dict[str, Any]]) -> dict[str, Any]:
        head = {"apiVersion": "sluicegate/v1", "kind": "EgressPolicy", "metadata": {"name": name}}
        return {**head, "subjects": [{"tenant": tenant, "agent": "*"}], "allow": allow}

    every = [{"name": name, "provider": name, "methods": ["GET", "POST"]} for name in PROVIDERS]
    return [
        policy("all", "acme", every),
        policy("few", "other", [{"name": "reading", "provider": "github", "methods": ["GET"]}]),
    ]


@asynccontextmanager
async def standing(folder: Path) -> AsyncIterator[Stand]:
    fake, authority, ports = Fake(), trustme.CA(), {"acme": free_port(), "other": free_port()}
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*HOSTS).configure_cert(context)
    trusted = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
    runner = web.ServerRunner(web.Server(fake.serve))  # type: ignore[arg-type]
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    listeners = [
        {"kind": "tools", "bind": f"127.0.0.1:{port}", "identity": [{"kind": "static", "tenant": tenant, "agent": "a"}]}
        for tenant, port in ports.items()
    ]
    records = {
        name: record("bearer", HOSTS[at], token=f"secret-of-{name}-0123456789") for name, at in PROVIDERS.items()
    }
    records["tenants/other/github"] = record("bearer", "api.github.com", token="secret-of-other-0123456789")
    product = Product(folder, records=records, documents=documents(), listeners=listeners, ops=None, control=None)
    product.write()

    def outside(limits: Limits) -> Outside:
        dialler = _ToFake(limits, lambda _: trusted, lambda _: 5.0)
        dialler.port = runner.addresses[0][1]
        return Outside(_Anywhere(), dialler)

    instance = Instance(load(product.config), outside=outside)
    await instance.start()
    await instance.store_opened.wait()
    try:
        async with aiohttp.ClientSession() as session:
            yield Stand(fake, product, ports, session)
    finally:
        at_once = asyncio.Event()
        at_once.set()
        await instance.stop(at_once)
        await runner.cleanup()


def in_stand(folder: Path, script: Callable[[Stand], Awaitable[None]]) -> None:
    async def run() -> None:
        async with standing(folder) as stand:
            await script(stand)

    asyncio.run(run())


def test_every_tool_projects_its_providers_answer(tmp_path: Path) -> None:
    async def script(stand: Stand) -> None:
        for name, (arguments, answer, expected) in CASES.items():
            stand.fake.answers(answer)
            status, told = await stand.call(name, {"arguments": arguments})
            assert (status, told["ok"], told["error"]) == (200, True, None), (name, told)
            data = told["data"]["items"][0] if "items" in told["data"] else told["data"]
            assert data | expected == data, name
            provider = next(one for one in PROVIDERS if name.startswith(one.removeprefix("google-")))
            assert stand.fake.requests[0][3]["Authorization"] == f"Bearer secret-of-{provider}-0123456789"
            line = await asyncio.to_thread(stand.product.audited, told["meta"]["call_id"])
            assert (line["tool"], line["listener"], line["tenant"]) == (name, "tools", "acme")

    in_stand(tmp_path, script)


def test_arguments_that_the_schema_refuses_are_named_and_nothing_is_sent(tmp_path: Path) -> None:
    async def script(stand: Stand) -> None:
        for name, (arguments, answer, _) in CASES.items():
            stand.fake.answers(answer)
            for wrong in ({**arguments, "surplus": 1}, *({**arguments, key: {}} for key in arguments)):
                status, told = await stand.call(name, {"arguments": wrong})
                assert (status, told["error"]["kind"]) == (400, "bad_input"), (name, wrong, told)
                assert any(key in told["error"]["detail"] for key in wrong)
            assert stand.fake.requests == []

    in_stand(tmp_path, script)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "bad_input"),
        (401, "auth"),
        (403, "permission"),
        (404, "not_found"),
        (429, "rate_limit"),
        (503, "unavailable"),
    ],
)
def test_each_kind_reaches_the_caller_in_the_envelope(tmp_path: Path, status: int, kind: str) -> None:
    async def script(stand: Stand) -> None:
        for name in ("github_create_issue", "jira_create_issue", "notion_create_page"):
            stand.fake.answers((status, {"message": "raw prose", "errorMessages": ["raw prose"]}, {}))
            _, told = await stand.call(name, {"arguments": CASES[name][0]})
            assert (told["ok"], told["data"], told["error"]["kind"]) == (False, None, kind), told
            assert "raw prose" not in json.dumps(told)

    in_stand(tmp_path, script)


def test_pages_are_walked_with_the_cursor_and_a_cursor_is_its_tenants_alone(tmp_path: Path) -> None:
    async def script(stand: Stand) -> None:
        link = {"Link": '<https://api.github.com/repos/o/r/issues?page=2>; rel="next"'}
        stand.fake.answers((200, [ISSUE], link), [ISSUE | {"id": 8}])
        _, first = await stand.call("github_list_issues", {"arguments": REPOSITORY})
        assert first["next_cursor"]
        again = {"arguments": REPOSITORY, "cursor": first["next_cursor"]}
        status, foreign = await stand.call("github_list_issues", again, "other")
        assert (status, foreign["error"]["kind"], len(stand.fake.requests)) == (400, "bad_input", 1)
        _, second = await stand.call("github_list_issues", again)
        assert (second["data"]["items"][0]["id"], second["next_cursor"]) == ("8", None)
        assert stand.fake.requests[1][1].endswith("page=2")

    in_stand(tmp_path, script)


def test_a_write_repeated_with_its_key_is_sent_once(tmp_path: Path) -> None:
    async def script(stand: Stand) -> None:
        stand.fake.answers(ISSUE)
        body = {"arguments": CASES["github_create_issue"][0], "idempotency_key": "k-1"}
        first = (await stand.call("github_create_issue", body))[1]
        second = (await stand.call("github_create_issue", body))[1]
        assert first["data"] == second["data"]
        assert len(stand.fake.requests) == 1

    in_stand(tmp_path, script)


def test_a_field_that_the_provider_removed_is_one_error_naming_tool_and_field(tmp_path: Path) -> None:
    async def script(stand: Stand) -> None:
        stand.fake.answers({key: value for key, value in ISSUE.items() if key != "title"})
        _, told = await stand.call("github_get_issue", {"arguments": {**REPOSITORY, "number": 3}})
        assert told["error"]["kind"] == "unavailable"
        assert "github_get_issue" in told["error"]["detail"]
        assert "'title'" in told["error"]["detail"]

    in_stand(tmp_path, script)


def test_two_tenants_see_and_reach_their_own_tools_alone(tmp_path: Path) -> None:
    async def script(stand: Stand) -> None:
        stand.fake.answers(ISSUE)
        assert {tool["name"] for tool in (await stand.get("/v1/tools"))[1]["tools"]} == set(CASES)
        theirs = {tool["name"] for tool in (await stand.get("/v1/tools", "other"))[1]["tools"]}
        assert theirs == {"github_list_issues", "github_get_issue"}
        for name in CASES.keys() - theirs:
            status, told = await stand.call(name, {"arguments": CASES[name][0]}, "other")
            assert (status, told["error"]["code"]) == (403, "policy_denied"), name
        assert stand.fake.requests == []

    in_stand(tmp_path, script)


def test_what_is_no_call_is_refused_with_an_envelope(tmp_path: Path) -> None:
    async def script(stand: Stand) -> None:
        stand.fake.answers({})
        for body in (
            list[Any](),
            {"arguments": {}, "other": 1},
            {"cursor": 1},
            {"timeout": True},
            {"idempotency_key": "a\nb"},
        ):
            status, told = await stand.call("notion_search", body)
            assert (status, told["ok"], told["error"]["kind"]) == (400, False, "bad_input"), body
        for raw in (b"", b"{", b'{"arguments": {"query": NaN}}', b'{"arguments": {"query": "\\ud800"}}'):
            assert (await stand.send("notion_search", raw))[0] == 400, raw
        assert (await stand.get("/elsewhere"))[0] == 404
        assert (await stand.call("nothing", {}))[1]["error"]["code"] == "tool_unknown"
        for argument in ("..", "a/b", "a\\b", ""):
            assert (await stand.call("notion_get_page", {"arguments": {"page": argument}}))[0] == 400
        assert (await stand.get("/v1/tools", Origin="https://evil.example"))[0] == 403
        assert (await stand.get("/v1/tools", Host="evil.example"))[0] == 421
        assert stand.fake.requests == []
        assert (await stand.get("/v1"))[1]["kinds"]

    in_stand(tmp_path, script)
