"""Issued tokens: when they are asked for, how often, and what a call is told when there is none."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from proxy.catalog.token import TokenDocument
from proxy.credentials.cache import CacheLimits
from proxy.credentials.issuing import Issuing
from proxy.credentials.renewal import RenewalLimits
from proxy.credentials.resolve import Resolver
from proxy.credentials.store import Conflict, Fields
from proxy.errors import GatewayError, StoreError
from proxy.model import Material
from signers.grants.model import Grant, Issued, TokenRefused, TokenReply, TokenRequest
from signers.placement import prepare
from tests.credentials.stubs import PROVIDER, SLACK, Clock, MemoryStore, Use, caller
from tests.token_server import RotatingProvider, as_json

PATH = "tenants/acme/slack"
APP = "apps/crm"
ENDPOINT = "https://id.example.com/token"
START = 1_000_000.0
Respond = Callable[[TokenRequest], Awaitable[tuple[int, dict[str, str], bytes]]]


FACTS = {
    "two-steps": TokenDocument.model_validate(
        {
            "endpoint": ENDPOINT,
            "steps": [
                {"endpoint": "https://id.example.com/session", "method": "POST", "fields": {"access_token": "session"}}
            ],
        }
    ).compiled()
}
"""The catalogue: a provider whose logins take two requests."""


class CasStore(MemoryStore):
    """The memory store with the compare-and-set that real ones have. `broken` makes writes fail."""

    broken = False

    async def write(self, path: str, fields: Fields, expected_version: int | None) -> int:
        await asyncio.sleep(0)
        if self.broken:
            raise StoreError("down for the test")
        version = self.records[path][1] if path in self.records else 0
        if expected_version is not None and expected_version != version:
            raise Conflict(path)
        return await super().write(path, fields, None)


class Bench:
    """One process: a resolver with an issuer over a store that may be shared, and a scripted endpoint."""

    def __init__(self, store: CasStore, respond: Respond, clock: Clock, **limits: Any) -> None:
        self.store, self.respond, self.clock = store, respond, clock
        self.asked: list[TokenRequest] = []
        self.results: list[tuple[str, str]] = []
        cache = CacheLimits(ttl=60)
        self.issuing = Issuing(
            store, self._ask, clock=clock, cache=cache, limits=RenewalLimits(poll=0.01, **limits), facts=FACTS.get,
            on_renewal=lambda provider, result: self.results.append((provider, result)),
        )  # fmt: skip
        self.resolver = Resolver(store, prepare, clock=clock, limits=cache, issuing=lambda: self.issuing)

    async def _ask(self, grant: Grant, networks: Any) -> Issued:
        try:
            step = next(grant)
            while True:
                assert isinstance(step, TokenRequest)
                self.asked.append(step)
                status, headers, body = await self.respond(step)
                step = grant.send(TokenReply(status, {k.lower(): v for k, v in headers.items()}, body, self.clock.now))
        except StopIteration as done:
            return done.value

    async def get(self, use: Use | None = None, who: Any = None) -> Material:
        found = self.resolver.resolve(who or caller(), use or Use(), PROVIDER, SLACK, self.clock.now)
        return await found if inspect.isawaitable(found) else found

    async def refused(self, *arguments: Any) -> GatewayError:
        with pytest.raises(GatewayError) as caught:
            await self.get(*arguments)
        return caught.value

    async def settle(self) -> None:
        for _ in range(30):
            await asyncio.sleep(0)

    @property
    def record(self) -> dict[str, Any]:
        return dict(self.store.records[PATH][0])


def bearer(material: Material) -> bytes:
    return bytes(material.injection.lines)


def line(token: str) -> bytes:
    return f"Authorization: Bearer {token}\r\n".encode()


class World:
    """A store with one oauth2 record and its app, a rotating provider, and processes on them."""

    def __init__(self) -> None:
        self.clock = Clock(START)
        self.store = CasStore()
        self.provider = RotatingProvider()
        self.gate: asyncio.Event | None = None
        self.script: list[tuple[int, dict[str, str], bytes] | TokenRefused] = []
        self.benches: list[Bench] = []
        self.store.put(APP, token_endpoint=ENDPOINT, client_id="c", client_secret="s3cret-of-the-app")
        self.connect()

    def connect(self, *, lives: float = -1.0, **more: Any) -> None:
        self.store.put(
            PATH, kind="oauth2", app="crm", refresh_token=self.provider.consent("g"), access_token="at-old-token-0",
            issued_at=START - 3600, expires_at=START + lives, **more,
        )  # fmt: skip

    async def respond(self, request: TokenRequest) -> tuple[int, dict[str, str], bytes]:
        if self.gate is not None:
            await self.gate.wait()
        if self.script:
            answer = self.script.pop(0)
            if isinstance(answer, TokenRefused):
                raise answer
            return answer
        form = dict(pair.split("=") for pair in request.body.decode().split("&"))
        return as_json(*self.provider.refresh(form["refresh_token"]))

    def process(self, **limits: Any) -> Bench:
        bench = Bench(self.store, self.respond, self.clock, **limits)
        self.benches.append(bench)
        return bench


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    if made.gate is not None:
        made.gate.set()
    for bench in made.benches:
        await bench.resolver.close()


async def test_an_expired_token_is_renewed_and_the_rotated_one_stored_before_it_is_used(world: World) -> None:
    bench = world.process()
    assert bearer(await bench.get()) == line("at-g-1")
    assert bench.record["access_token"] == "at-g-1"
    assert bench.record["refresh_token"] == "rt-g-1"
    assert bench.record["expires_at"] == START + 3600
    assert "refresh" not in bench.record
    assert bench.results == [("", "ok")]


async def test_a_fresh_token_is_given_at_once_and_asks_for_nothing(world: World) -> None:
    world.connect(lives=1000)
    bench = world.process()
    first = await bench.get()
    assert bearer(first) == line("at-old-token-0")
    assert bench.resolver.resolve(caller(), Use(), PROVIDER, SLACK, world.clock.now) is first
    assert not bench.asked


async def test_a_stale_token_is_used_while_one_renewal_runs_in_the_background(world: World) -> None:
    world.connect(lives=50)
    world.gate = asyncio.Event()
    bench = world.process()
    assert [bearer(await bench.get()) for _ in range(20)] == [line("at-old-token-0")] * 20
    world.gate.set()
    await bench.settle()
    assert bearer(await bench.get()) == line("at-g-1")
    assert len(bench.asked) == 1


async def test_in_the_last_seconds_a_call_waits(world: World) -> None:
    world.connect(lives=5)
    assert bearer(await world.process().get()) == line("at-g-1")


async def test_many_calls_in_several_processes_make_one_request(world: World) -> None:
    """B47."""
    processes = [world.process() for _ in range(4)]
    found = await asyncio.gather(*(process.get() for process in processes for _ in range(50)))
    assert {bearer(each) for each in found} == {line("at-g-1")}
    assert world.provider.requests == ["rt-g-0"]


async def test_a_caller_that_leaves_does_not_end_the_renewal(world: World) -> None:
    """B48."""
    world.gate = asyncio.Event()
    bench = world.process()
    first = asyncio.create_task(bench.get())
    await bench.settle()
    first.cancel()
    second = asyncio.create_task(bench.get())
    await bench.settle()
    world.gate.set()
    assert bearer(await second) == line("at-g-1")
    assert len(bench.asked) == 1


async def test_a_waiter_has_a_deadline_of_its_own(world: World) -> None:
    world.gate = asyncio.Event()
    bench = world.process(wait=0.05)
    refusal = await bench.refused()
    assert (refusal.code.name, refusal.retry_after) == ("credential_unavailable", 1)
    world.gate.set()
    await bench.settle()
    assert bearer(await bench.get()) == line("at-g-1")


async def test_an_invalid_grant_about_a_token_that_is_no_longer_stored_is_no_verdict(world: World) -> None:
    """B50."""
    bench = world.process()

    async def overtaken(request: TokenRequest) -> tuple[int, dict[str, str], bytes]:
        world.connect(lives=500)
        world.store.put(PATH, **{**bench.record, "refresh_token": "rt-of-the-winner"})
        return as_json(400, {"error": "invalid_grant"})

    bench.respond = overtaken
    assert bearer(await bench.get()) == line("at-old-token-0")
    assert "rejected" not in bench.record


async def test_a_rejection_is_recorded_stops_the_tries_and_names_who_must_act(world: World) -> None:
    world.provider.ended.add("g")
    bench, other = world.process(), world.process()
    refusal = await bench.refused()
    assert refusal.code.name == "refresh_rejected"
    assert "tenant 'acme'" in refusal.detail
    assert "consent again" in refusal.detail
    assert bench.record["rejected"]["error"] == "invalid_grant"
    assert bench.record["refresh_token"] == "rt-g-0"
    for _ in range(3):
        world.clock.now += 100
        assert (await bench.refused()).code.name == "refresh_rejected"
        assert (await other.refused()).code.name == "refresh_rejected"
    assert len(bench.asked) + len(other.asked) == 1
    world.connect()
    world.clock.now += 100
    assert bearer(await other.get()) == line("at-g-1")


async def test_a_changed_app_clears_what_was_said_of_the_old_one(world: World) -> None:
    world.script = [as_json(401, {"error": "invalid_client"})]
    bench = world.process()
    refusal = await bench.refused()
    assert "apps/crm" in refusal.detail
    world.clock.now += 100
    assert (await bench.refused()).code.name == "refresh_rejected"
    world.store.put(APP, token_endpoint=ENDPOINT, client_id="c", client_secret="a-new-secret")
    world.clock.now += 100
    assert bearer(await bench.get()) == line("at-g-1")


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (as_json(500, {}), "down"),
        (as_json(503, {"error": "temporarily_unavailable"}), "down"),
        (as_json(429, {}, **{"Retry-After": "30"}), "throttled"),
        ((403, {"Content-Type": "text/html"}, b"<h1>blocked</h1>"), "down"),
        (as_json(401, {}), "down"),
        (as_json(400, {"error": "invalid_scope"}), "down"),
        ((302, {"Location": "https://evil.example/"}, b""), "down"),
        ((200, {}, b"{"), "unknown"),
        (TokenRefused("unknown", "no_reply"), "unknown"),
    ],
)
async def test_what_may_pass_is_tried_again_after_a_pause_and_not_before(
    world: World, answer: Any, outcome: str
) -> None:
    """B55."""
    world.script = [answer]
    bench, other = world.process(), world.process()
    refusal = await bench.refused()
    assert refusal.code.name == "credential_unavailable"
    assert refusal.retry_after is not None
    assert bench.results == [("", outcome)]
    assert (await bench.refused()).code.name == (await other.refused()).code.name == "credential_unavailable"
    assert len(bench.asked) + len(other.asked) == 1
    assert "rejected" not in bench.record
    world.clock.now += refusal.retry_after + 1
    assert bearer(await other.get()) == line("at-g-1")
    world.clock.now += 5
    assert bearer(await bench.get()) == line("at-g-1")


async def test_a_valid_token_is_used_while_the_endpoint_is_down(world: World) -> None:
    """B54."""
    world.connect(lives=30)
    world.script = [TokenRefused("down", "unreachable")] * 10
    bench = world.process()
    for _ in range(6):
        assert bearer(await bench.get()) == line("at-old-token-0")
        await bench.settle()
        world.clock.now += 4
    assert len(bench.asked) > 1
    world.clock.now += 7
    refusal = await bench.refused()
    assert refusal.code.name == "credential_unavailable"
    assert "cannot be reached" in refusal.detail


async def test_a_refresh_token_that_may_be_spent_is_not_tried_while_the_token_in_hand_lives(world: World) -> None:
    world.connect(lives=50)
    world.script = [TokenRefused("unknown", "no_reply")]
    bench = world.process()
    for _ in range(9):
        assert bearer(await bench.get()) == line("at-old-token-0")
        await bench.settle()
        world.clock.now += 5
    assert len(bench.asked) == 1
    world.clock.now += 60
    assert bearer(await bench.get()) == line("at-g-1")


async def test_the_refresh_token_stays_when_the_reply_has_none(world: World) -> None:
    world.provider.rotates = False
    bench = world.process()
    await bench.get()
    assert bench.record["refresh_token"] == "rt-g-0"


async def test_issued_tokens_wait_for_a_store_that_is_away(world: World) -> None:
    bench = world.process(keep_pause=0.01)
    world.gate = asyncio.Event()
    call = asyncio.create_task(bench.get())
    await bench.settle()
    world.store.broken = True
    world.gate.set()
    await asyncio.sleep(0.02)
    assert not call.done()
    assert bench.record["refresh_token"] == "rt-g-0"
    world.store.broken = False
    assert bearer(await call) == line("at-g-1")
    assert world.provider.requests == ["rt-g-0"]


async def test_a_leader_stopped_past_its_lease_does_not_ask(world: World) -> None:
    bench, other = world.process(), world.process()
    write = world.store.write

    async def stopped(path: str, fields: Fields, expected: int | None) -> int:
        version = await write(path, fields, expected)
        world.store.write = write  # type: ignore[method-assign]
        world.clock.now += 80
        assert bearer(await other.get()) == line("at-g-1")
        return version

    world.store.write = stopped  # type: ignore[method-assign]
    assert bearer(await bench.get()) == line("at-g-1")
    assert world.provider.requests == ["rt-g-0"]
    assert not bench.asked


async def test_a_late_leaders_tokens_are_kept_when_nobody_has_newer_ones(world: World) -> None:
    world.gate = asyncio.Event()
    bench = world.process()
    call = asyncio.create_task(bench.get())
    await bench.settle()
    fields, version = world.store.records[PATH]
    world.store.records[PATH] = ({**fields, "refresh": {"holder": "x", "until": START + 70, "attempt": 2}}, version + 1)
    world.gate.set()
    assert bearer(await call) == line("at-g-1")
    assert bench.record["refresh_token"] == "rt-g-1"


async def test_a_401_renews_once_and_not_again_for_the_same_token_soon(world: World) -> None:
    """C05."""
    world.connect(lives=1000)
    bench = world.process()
    used = await bench.get()
    assert await bench.resolver.reread(caller(), Use(), used)
    renewed = await bench.get()
    assert bearer(renewed) == line("at-g-1")
    assert await bench.resolver.reread(caller(), Use(), used)
    assert not await bench.resolver.reread(caller(), Use(), renewed)
    assert len(bench.asked) == 1


async def test_calls_refused_together_share_one_forced_renewal(world: World) -> None:
    world.connect(lives=1000)
    processes = [world.process() for _ in range(3)]
    used = [await process.get() for process in processes]
    forced = [p.resolver.reread(caller(), Use(), u) for p, u in zip(processes, used, strict=True) for _ in range(10)]
    assert all(await asyncio.gather(*forced))
    assert world.provider.requests == ["rt-g-0"]


async def test_a_blocked_credential_delays_no_other(world: World) -> None:
    world.gate = asyncio.Event()
    bench = world.process()
    calls = [asyncio.create_task(bench.get()) for _ in range(20)]
    await bench.settle()
    world.store.put("tenants/acme/other", token="static-other-token")
    assert bearer(await bench.get(Use("other"))) == line("static-other-token")
    world.gate.set()
    await asyncio.gather(*calls)


# Tokens that can be asked for again.


def machine(world: World, **fields: Any) -> None:
    world.store.put(PATH, kind="client_credentials", app="crm", **fields)
    counter = iter(range(1, 100))

    async def respond(request: TokenRequest) -> tuple[int, dict[str, str], bytes]:
        return as_json(200, {"access_token": f"machine-token-{next(counter)}", "expires_in": 600})

    world.respond = respond  # type: ignore[method-assign]


async def test_a_minted_token_is_kept_in_memory_and_renewed_before_it_ends(world: World) -> None:
    machine(world, scopes=["read"])
    bench = world.process()
    assert {bearer(await bench.get()) for _ in range(5)} == {line("machine-token-1")}
    assert b"scope=read" in bench.asked[0].body
    world.clock.now += 545
    assert bearer(await bench.get()) == line("machine-token-1")
    await bench.settle()
    assert bearer(await bench.get()) == line("machine-token-2")
    assert "access_token" not in bench.record


async def test_an_endpoint_that_stays_down_is_asked_less_and_less_for_minted_tokens(world: World) -> None:
    machine(world)

    async def down(request: TokenRequest) -> tuple[int, dict[str, str], bytes]:
        return 503, {}, b""

    world.respond = down  # type: ignore[method-assign]
    bench, pauses = world.process(), []
    for _ in range(8):
        await bench.refused()
        asked, begun = len(bench.asked), world.clock.now
        while len(bench.asked) == asked:
            world.clock.now += 0.5
            await bench.refused()
        pauses.append(world.clock.now - begun)
    assert pauses[0] <= 1
    assert pauses[-1] >= 45
    assert max(pauses) <= 60.5


async def test_a_rotated_client_secret_ends_the_old_tokens(world: World) -> None:
    """B56."""
    machine(world)
    bench = world.process()
    assert bearer(await bench.get()) == line("machine-token-1")
    world.store.put(APP, token_endpoint=ENDPOINT, client_id="c", client_secret="rotated-secret")
    world.clock.now += 61
    assert bearer(await bench.get()) == line("machine-token-2")


async def test_a_rejected_client_is_recorded_and_asked_no_more(world: World) -> None:
    machine(world)

    async def refuse(request: TokenRequest) -> tuple[int, dict[str, str], bytes]:
        return as_json(401, {"error": "invalid_client"})

    world.respond = refuse  # type: ignore[method-assign]
    bench, other = world.process(), world.process()
    assert (await bench.refused()).code.name == "refresh_rejected"
    assert (await other.refused()).code.name == "refresh_rejected"
    for _ in range(3):
        world.clock.now += 70
        assert (await bench.refused()).code.name == "refresh_rejected"
    assert len(bench.asked) + len(other.asked) == 1


async def test_nothing_is_asked_for_a_host_that_the_credential_is_not_meant_for(world: World) -> None:
    world.connect(hosts=["other.example.com"])
    bench = world.process()
    assert (await bench.refused()).code.name == "credential_unbound"
    assert not bench.asked


async def test_a_record_whose_app_is_missing_says_so(world: World) -> None:
    await world.store.delete(APP)
    refusal = await world.process().refused()
    assert refusal.code.name == "credential_missing"
    assert "apps/crm" in refusal.detail


async def test_a_clock_that_is_off_is_named(world: World) -> None:
    world.script = [as_json(400, {"error": "invalid_grant"}, Date="Mon, 12 Jan 1970 13:55:00 GMT")]
    assert "clock" in (await world.process().refused()).detail


async def test_a_second_step_that_fails_leaves_the_rotated_refresh_token_for_the_next_try(world: World) -> None:
    sessions = [(503, {}, b""), as_json(200, {"session": "session-token"})]

    async def respond(request: TokenRequest) -> Any:
        return sessions.pop(0) if request.url.endswith("/session") else await world.respond(request)

    world.store.put(APP, provider="two-steps", client_id="c", client_secret="s")
    bench = Bench(world.store, respond, world.clock)
    world.benches.append(bench)
    assert (await bench.refused()).code.name == "credential_unavailable"
    assert (bench.record["refresh_token"], bench.record["access_token"]) == ("rt-g-1", "at-old-token-0")
    world.clock.now += 5
    assert bearer(await bench.get()) == line("session-token")
    assert bench.record["refresh_token"] == "rt-g-2"
    assert world.provider.requests == ["rt-g-0", "rt-g-1"]
