"""Resolution: whose credential, for which host, how fresh, and how many reads it costs."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.credentials.cache import CacheLimits
from proxy.credentials.paths import PathTemplates
from proxy.credentials.resolve import Resolver
from proxy.credentials.store import Reader
from proxy.errors import GatewayError
from proxy.model import Caller, Destination, Material
from signers.placement import Injection
from tests.credentials.stubs import PROVIDER, SLACK, Clock, MemoryStore, StubProvider, Use, caller, prepare

ACME = "tenants/acme/slack"
LIMITS = CacheLimits(ttl=60, stale=600, negative=5, retry=1, wait=5)


class Bench:
    """A resolver over a memory store, with its clock."""

    def __init__(self, limits: CacheLimits = LIMITS, **settings: Any) -> None:
        self.clock = Clock()
        self.store = MemoryStore()
        self.prepared = 0
        self.audited: list[tuple[str, str, str]] = []
        self.resolver = Resolver(
            self.store, self._prepare, clock=self.clock, limits=limits, on_read=self._on_read, **settings
        )

    def _prepare(self, *arguments: Any) -> Injection:
        self.prepared += 1
        return prepare(*arguments)

    def _on_read(self, path: str, result: str, who: Reader) -> None:
        self.audited.append((path, result, who.caller.tenant if who.caller else ""))

    async def get(
        self,
        who: Caller | None = None,
        use: Use | None = None,
        to: Destination = SLACK,
        provider: StubProvider | None = PROVIDER,
    ) -> Material:
        found = self.resolver.resolve(who or caller(), use or Use(), provider, to, self.clock.now)
        return await found if inspect.isawaitable(found) else found

    async def refused(self, *arguments: Any, **named: Any) -> GatewayError:
        with pytest.raises(GatewayError) as caught:
            await self.get(*arguments, **named)
        return caught.value

    async def settle(self) -> None:
        """Let background reads come to their end."""
        for _ in range(10):
            await asyncio.sleep(0)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    made.store.put(ACME, token="acme-1")
    yield made
    await made.resolver.close()


async def test_a_fresh_record_is_given_without_an_awaitable_and_prepared_once(bench: Bench) -> None:
    first = await bench.get()
    again = bench.resolver.resolve(caller(), Use(), PROVIDER, SLACK, bench.clock.now)
    assert again is first
    assert (bench.store.reads[ACME], bench.prepared) == (1, 1)
    assert first.name == "slack@1"
    assert first.injection.lines == b"acme-1"
    assert bench.resolver.counts() == {("store", "ok"): 1, ("cache", "ok"): 1}


async def test_fifty_calls_at_once_cost_one_read(bench: Bench) -> None:
    materials = await asyncio.gather(*(bench.get() for _ in range(50)))
    assert len(set(map(id, materials))) == 1
    assert bench.store.reads[ACME] == 1


async def test_a_cancelled_call_does_not_cancel_the_read_others_wait_for(bench: Bench) -> None:
    bench.store.gate = asyncio.Event()
    first = asyncio.ensure_future(bench.get())
    second = asyncio.ensure_future(bench.get())
    await bench.settle()
    first.cancel()
    await bench.settle()
    bench.store.gate.set()
    assert (await second).injection.lines == b"acme-1"
    assert first.cancelled()
    assert bench.store.reads[ACME] == 1


async def test_a_missing_record_is_named_and_remembered_shortly(bench: Bench) -> None:
    refusal = await bench.refused(caller("other"))
    assert refusal.code.name == "credential_missing"
    assert "'other'" in refusal.detail
    assert "'slack'" in refusal.detail
    await bench.refused(caller("other"))
    assert bench.store.reads["tenants/other/slack"] == 1
    bench.store.put("tenants/other/slack", token="now-there")
    bench.clock.now += 5
    assert (await bench.get(caller("other"))).injection.lines == b"now-there"


@pytest.mark.parametrize("change", ["rotated", "deleted", "disabled"])
async def test_a_changed_record_is_noticed_within_the_ttl(bench: Bench, change: str) -> None:
    await bench.get()
    if change == "rotated":
        bench.store.put(ACME, token="acme-2")
    elif change == "disabled":
        bench.store.put(ACME, token="acme-1", disabled=True)
    else:
        await bench.store.delete(ACME)
    bench.clock.now += 60
    if change == "rotated":
        assert (await bench.get()).name == "slack@2"
    else:
        expected = {"disabled": "credential_disabled", "deleted": "credential_missing"}[change]
        assert (await bench.refused()).code.name == expected


async def test_near_the_end_of_its_ttl_a_record_is_read_again_while_calls_go_on(bench: Bench) -> None:
    await bench.get()
    bench.store.put(ACME, token="acme-2")
    bench.clock.now += 50
    held = bench.resolver.resolve(caller(), Use(), PROVIDER, SLACK, bench.clock.now)
    assert isinstance(held, Material)
    assert held.injection.lines == b"acme-1"
    await bench.settle()
    assert bench.store.reads[ACME] == 2
    assert (await bench.get()).injection.lines == b"acme-2"


@pytest.mark.parametrize("tenant", ["acme", "other"])
async def test_a_clock_set_back_does_not_keep_what_was_read_for_longer(bench: Bench, tenant: str) -> None:
    if tenant == "acme":
        await bench.get()
    else:
        await bench.refused(caller("other"))
    bench.clock.now -= 3600
    bench.store.put(f"tenants/{tenant}/slack", token="new")
    assert (await bench.get(caller(tenant))).injection.lines == b"new"


async def test_a_reread_that_finds_the_same_keeps_the_prepared_material(bench: Bench) -> None:
    first = await bench.get()
    bench.clock.now += 60
    assert await bench.get() is first
    assert (bench.store.reads[ACME], bench.prepared) == (2, 1)


async def test_while_the_store_is_down_a_record_is_used_up_to_its_stale_bound(bench: Bench) -> None:
    await bench.get()
    bench.store.down = True
    bench.clock.now += 60
    assert (await bench.get()).injection.lines == b"acme-1"
    bench.clock.now += 599
    assert (await bench.get()).injection.lines == b"acme-1"
    await bench.settle()
    bench.clock.now += 1
    refusal = await bench.refused()
    assert refusal.code.name == "credential_unavailable"
    assert refusal.retry_after is not None
    assert 1 <= refusal.retry_after <= 5


async def test_while_the_store_is_down_reads_are_spaced_out_and_no_call_waits(bench: Bench) -> None:
    await bench.get()
    bench.store.down = True
    bench.clock.now += 60
    await bench.get()
    waited = 0
    for _ in range(300):
        bench.clock.now += 1
        found = bench.resolver.resolve(caller(), Use(), PROVIDER, SLACK, bench.clock.now)
        waited += inspect.isawaitable(found)
        await bench.settle()
    assert waited == 0
    assert bench.store.reads[ACME] < 20


async def test_when_the_store_returns_the_new_record_is_taken_up(bench: Bench) -> None:
    await bench.get()
    bench.store.down = True
    bench.clock.now += 60
    await bench.get()
    bench.store.down = False
    bench.store.put(ACME, token="acme-2")
    bench.clock.now += 2
    await bench.get()
    await bench.settle()
    assert (await bench.get()).injection.lines == b"acme-2"


async def test_a_store_that_is_down_from_the_start_is_unavailable_and_not_hammered(bench: Bench) -> None:
    bench.store.down = True
    for _ in range(20):
        assert (await bench.refused()).code.name == "credential_unavailable"
    assert bench.store.reads[ACME] == 1


async def test_a_store_that_never_answers_is_unavailable_after_the_wait() -> None:
    bench = Bench(CacheLimits(wait=0.01))
    bench.store.gate = asyncio.Event()
    assert (await bench.refused()).code.name == "credential_unavailable"
    await bench.resolver.close()


async def test_a_store_that_hangs_delays_a_call_with_an_older_reading_only_shortly() -> None:
    bench = Bench(CacheLimits(wait=60, stale_wait=0.01))
    bench.store.put(ACME, token="acme-1")
    await bench.get()
    bench.store.gate = asyncio.Event()
    bench.clock.now += 60
    assert (await bench.get()).injection.lines == b"acme-1"
    await bench.resolver.close()


async def test_a_slow_tenant_neither_delays_another_nor_takes_all_reads() -> None:
    bench = Bench(CacheLimits(per_tenant=2))
    bench.store.gate, bench.store.gated = asyncio.Event(), "tenants/slow/"
    bench.store.put(ACME, token="acme-1")
    slow = [asyncio.ensure_future(bench.get(caller("slow"), Use(f"c{number}"))) for number in range(20)]
    await bench.settle()
    assert bench.store.running == 2
    assert (await bench.get()).injection.lines == b"acme-1"
    bench.store.gate.set()
    await asyncio.gather(*slow, return_exceptions=True)
    assert bench.store.most_running == 3


async def test_an_actors_credential_never_falls_back_to_the_tenants(bench: Bench) -> None:
    await bench.get()
    nobody = await bench.refused(caller(), Use(per="actor"))
    unknown = await bench.refused(caller(actor="ann"), Use(per="actor"))
    assert {nobody.code.name, unknown.code.name} == {"credential_missing"}
    bench.store.put("tenants/acme/actors/bob/slack", token="bobs")
    assert (await bench.get(caller(actor="bob"), Use(per="actor"))).injection.lines == b"bobs"
    assert (await bench.get(caller(actor="bob"))).injection.lines == b"acme-1"


async def test_a_record_goes_to_its_own_hosts_or_its_providers_and_nowhere_else(bench: Bench) -> None:
    elsewhere = Destination("https", "evil.example", 443)
    assert (await bench.refused(to=elsewhere)).code.name == "credential_unbound"
    await bench.get()
    assert (await bench.refused(to=elsewhere)).code.name == "credential_unbound"
    assert (await bench.refused(provider=None)).code.name == "credential_unbound"
    bench.store.put("tenants/acme/own", token="t", hosts=["Orders.Internal.Example"])
    own = Destination("https", "orders.internal.example", 443)
    assert (await bench.get(use=Use("own"), provider=None, to=own)).hosts == {"orders.internal.example"}
    bench.store.put("tenants/acme/team", token="t", vars={"team": "acme"})
    team = Destination("https", "acme.slack.com", 443)
    await bench.get(use=Use("team"), to=team)


async def test_a_reloaded_provider_is_not_served_from_what_the_old_one_prepared(bench: Bench) -> None:
    first = await bench.get()
    second = await bench.get(provider=StubProvider())
    assert second is not first
    assert bench.store.reads[ACME] == 1


async def test_two_placements_of_one_record_are_prepared_apart(bench: Bench) -> None:
    await bench.get()
    await bench.get(use=Use(placement=("header", "X-Key", "{value}")))
    assert (bench.store.reads[ACME], bench.prepared) == (1, 2)


async def test_an_unusable_record_says_which_field_but_never_its_value(bench: Bench) -> None:
    bench.store.put(ACME, token="secret\x00value")
    refusal = await bench.refused()
    assert refusal.code.name == "credential_missing"
    assert "token" in refusal.detail
    assert "secret" not in refusal.detail
    assert bench.audited == [(ACME, "invalid", "acme")]


async def test_a_kind_that_cannot_be_prepared_is_refused_without_its_value(bench: Bench) -> None:
    def unusable(*arguments: Any) -> Injection:
        raise ValueError("placement does not fit")

    resolver = Resolver(bench.store, unusable, clock=bench.clock)
    with pytest.raises(GatewayError, match="credential_missing") as caught:
        await resolver.resolve(caller(), Use(), PROVIDER, SLACK, bench.clock.now)  # type: ignore[misc]
    assert "acme-1" not in str(caught.value)
    await resolver.close()


async def test_every_read_is_told_with_its_path_result_and_tenant(bench: Bench) -> None:
    await bench.get()
    await bench.refused(caller("other"))
    bench.store.down = True
    await bench.refused(caller("third"))
    assert bench.audited == [
        (ACME, "ok", "acme"),
        ("tenants/other/slack", "missing", "other"),
        ("tenants/third/slack", "error", "third"),
    ]


async def test_after_a_rejection_a_rotated_record_is_found_at_once_with_one_read(bench: Bench) -> None:
    used = await bench.get()
    bench.store.put(ACME, token="acme-2")
    answers = await asyncio.gather(*(bench.resolver.reread(caller(), Use(), used) for _ in range(20)))
    assert answers == [True] * 20
    assert bench.store.reads[ACME] == 2
    assert (await bench.get()).name == "slack@2"


async def test_after_a_rejection_an_unchanged_record_is_read_once_not_once_a_call(bench: Bench) -> None:
    used = await bench.get()
    for _ in range(20):
        assert not await bench.resolver.reread(caller(), Use(), used)
    assert bench.store.reads[ACME] == 2
    bench.store.put(ACME, token="acme-2")
    bench.clock.now += 1
    assert await bench.resolver.reread(caller(), Use(), used)


async def test_after_a_rejection_a_deleted_record_counts_as_changed(bench: Bench) -> None:
    used = await bench.get()
    await bench.store.delete(ACME)
    assert await bench.resolver.reread(caller(), Use(), used)
    assert (await bench.refused()).code.name == "credential_missing"


async def test_after_a_rejection_with_the_store_down_nothing_changed(bench: Bench) -> None:
    used = await bench.get()
    bench.store.down = True
    assert not await bench.resolver.reread(caller(), Use(), used)
    assert await bench.get() is used


async def test_agents_with_records_of_their_own_never_get_each_others(bench: Bench) -> None:
    await bench.resolver.close()
    own = Bench(paths=PathTemplates("{agent}/{tenant}/{credential}", "{agent}/{tenant}/actors/{actor}/{credential}"))
    for agent in ("bot", "clerk"):
        own.store.put(f"{agent}/acme/slack", token=f"of-{agent}")
    callers = [Caller("acme", agent) for agent in ("bot", "clerk", "bot", "clerk")]
    assert [(await own.get(who)).injection.lines for who in callers] == [b"of-bot", b"of-clerk"] * 2
    assert own.store.reads.total() == 2
    assert (await own.refused(Caller("acme", "intern"))).code.name == "credential_missing"
    await own.resolver.close()


async def test_a_read_is_told_with_the_call_it_is_for() -> None:
    told: list[str] = []
    store = MemoryStore()
    store.put(ACME, token="t")
    resolver = Resolver(
        store, prepare, clock=Clock(), limits=LIMITS, on_read=lambda path, result, reader: told.append(reader.call_id)
    )
    found = resolver.resolve(caller(), Use(), PROVIDER, SLACK, 1000.0, "call-1")
    assert inspect.isawaitable(found)
    await found
    await resolver.reread(caller(), Use(), resolver.resolve(caller(), Use(), PROVIDER, SLACK, 1000.0), "call-2")  # type: ignore[arg-type]
    assert told == ["call-1", "call-2"]
    await resolver.close()


async def test_a_hundred_thousand_tenants_stay_within_the_bound() -> None:
    bench = Bench(CacheLimits(entries=500))
    for number in range(100_000):
        bench.resolver._entry(caller(f"t{number}"), Use())
    for number in range(600):
        await bench.refused(caller(f"t{number}"))
    assert len(bench.resolver._entries) == 500
    assert len(bench.resolver._cache._slots) == 0
    await bench.resolver.close()


async def test_a_busy_record_survives_a_sweep_of_others() -> None:
    bench = Bench(CacheLimits(entries=10))
    bench.store.put(ACME, token="acme-1")
    for number in range(50):
        await bench.get()
        await bench.refused(caller(f"t{number}"))
    assert bench.store.reads[ACME] == 1


NAMES = st.sampled_from(["a", "b", "a-b", "actors", "A", "a.b"])


@settings(max_examples=50, deadline=None)
@given(calls=st.lists(st.tuples(NAMES, NAMES, st.sampled_from(["", "a", "b"]), st.booleans()), max_size=20))
def test_no_caller_ever_gets_anothers_material(calls: list[tuple[str, str, str, bool]]) -> None:
    async def run() -> None:
        bench = Bench(CacheLimits(entries=4))
        for tenant in ("a", "b", "a-b", "actors", "A", "a.b"):
            for name in ("a", "b", "a-b", "actors", "A", "a.b"):
                bench.store.put(f"tenants/{tenant}/{name}", token=f"{tenant}|{name}|")
                for actor in ("a", "b"):
                    bench.store.put(f"tenants/{tenant}/actors/{actor}/{name}", token=f"{tenant}|{name}|{actor}")
        for tenant, name, actor, per_actor in calls:
            who, use = caller(tenant, actor), Use(name, per="actor" if per_actor else "tenant")
            if per_actor and not actor:
                assert (await bench.refused(who, use)).code.name == "credential_missing"
                continue
            expected = f"{tenant}|{name}|{actor if per_actor else ''}"
            assert (await bench.get(who, use)).injection.lines == expected.encode()
        await bench.resolver.close()

    asyncio.run(run())
