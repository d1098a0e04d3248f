"""One look-up, every answer checked, the checked address dialled."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import re
import socket
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.errors import GatewayError
from proxy.listeners.target import canonical_host, parse_absolute
from proxy.upstream import resolver as resolver_module
from proxy.upstream.resolver import Resolver, is_own_address

VECTORS = Path(os.environ.get("SLUICEGATE_VECTORS", Path(__file__).resolve().parents[3] / "shared" / "vectors"))
SSRF = VECTORS / "ssrf-payloads"
needs_vectors = pytest.mark.skipif(not SSRF.is_dir(), reason="ssrf-payloads vectors are not here")

PUBLIC = "144.1.1.1"
LOOPBACK = (ip_network("127.0.0.0/8"),)


class Names:
    """A resolver stub: each look-up of a name takes its next list of answers; the last one repeats."""

    def __init__(self, **answers: list[list[str]]) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, host: str):
        self.asked.append(host)
        await self.gate.wait()
        rows = self.answers.get(host.partition(".")[0], [[]])
        answer = rows.pop(0) if len(rows) > 1 else rows[0]
        if not answer:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in answer]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def code(awaitable_or_call) -> str:
    with pytest.raises(GatewayError) as caught:
        await awaitable_or_call
    return caught.value.code.name


async def test_addresses_come_in_the_order_of_the_answer_without_repeats():
    resolver = Resolver(Names(api=[["2606:4700::1", PUBLIC, PUBLIC, "::ffff:144.1.1.2"]]))
    assert await resolver.resolve("api.test", 443) == ("2606:4700::1", PUBLIC, "144.1.1.2")


async def test_a_known_name_is_answered_at_once():
    names = Names(api=[[PUBLIC]])
    resolver = Resolver(names)
    await resolver.resolve("api.test", 443)
    assert resolver.resolve("api.test", 443) == (PUBLIC,)
    assert resolver.resolve("api.test", 8443) == (PUBLIC,)
    assert names.asked == ["api.test"]


async def test_a_literal_is_answered_at_once_without_a_look_up():
    names = Names()
    resolver = Resolver(names)
    assert resolver.resolve(PUBLIC, 443) == (PUBLIC,)
    assert resolver.resolve("2606:4700::1", 443) == ("2606:4700::1",)
    with pytest.raises(GatewayError, match="loopback"):
        resolver.resolve("127.0.0.1", 443)
    assert names.asked == []


async def test_one_refused_address_among_several_refuses_the_call():
    for answers in ([PUBLIC, "10.0.0.1"], ["fd00:ec2::254", PUBLIC]):
        assert await code(Resolver(Names(api=[answers])).resolve("api.test", 443)) == "destination_refused"


async def test_a_name_that_changes_to_metadata_is_refused_at_the_next_look_up():
    clock = Clock()
    resolver = Resolver(Names(api=[["127.0.0.2"], ["169.254.169.254"]]), clock=clock, lifetime=5)
    assert await resolver.resolve("api.test", 443, LOOPBACK) == ("127.0.0.2",)
    clock.now = 4.9
    assert resolver.resolve("api.test", 443, LOOPBACK) == ("127.0.0.2",)
    clock.now = 5.0
    assert await code(resolver.resolve("api.test", 443, LOOPBACK)) == "destination_refused"


async def test_networks_of_one_rule_do_not_open_the_name_to_another():
    resolver = Resolver(Names(api=[["127.0.0.2"]]))
    assert await resolver.resolve("api.test", 443, LOOPBACK) == ("127.0.0.2",)
    with pytest.raises(GatewayError, match="loopback"):
        resolver.resolve("api.test", 443)
    assert resolver.resolve("api.test", 443, LOOPBACK) == ("127.0.0.2",)


async def test_calls_for_one_name_share_a_look_up():
    names = Names(api=[[PUBLIC]])
    names.gate.clear()
    resolver = Resolver(names)
    waiting = [asyncio.ensure_future(resolver.resolve("api.test", 443)) for _ in range(5)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)
    names.gate.set()
    assert await asyncio.gather(*waiting[1:]) == [(PUBLIC,)] * 4
    assert names.asked == ["api.test"]


async def test_a_name_without_address_is_unreachable_and_not_asked_for_again_at_once():
    clock = Clock()
    names = Names()
    resolver = Resolver(names, clock=clock)
    assert await code(resolver.resolve("gone.test", 443)) == "upstream_unreachable"
    with pytest.raises(GatewayError, match="could not be resolved"):
        resolver.resolve("gone.test", 443)
    clock.now = 1.5
    assert await code(resolver.resolve("gone.test", 443)) == "upstream_unreachable"
    assert len(names.asked) == 2


async def test_a_look_up_that_does_not_end_counts_as_failed(monkeypatch):
    monkeypatch.setattr(resolver_module, "LONGEST_LOOKUP", 0.01)
    names = Names(api=[[PUBLIC]])
    names.gate.clear()
    assert await code(Resolver(names).resolve("api.test", 443)) == "upstream_unreachable"


async def test_the_systems_resolver_is_asked_by_default():
    found = await Resolver().resolve("localhost", 443, (*LOOPBACK, ip_network("::1/128")))
    assert set(found) <= {"127.0.0.1", "::1"}


async def test_metadata_names_are_not_looked_up():
    names = Names()
    with pytest.raises(GatewayError, match="metadata"):
        Resolver(names).resolve("metadata.google.internal", 80)
    assert names.asked == []


async def test_answers_kept_and_names_in_flight_are_bounded():
    names = Names(**{f"n{number}": [[PUBLIC]] for number in range(8)})
    resolver = Resolver(names, capacity=4, pending=2)
    for number in range(8):
        await resolver.resolve(f"n{number}.test", 443)
    assert len(resolver._answers) == 4
    names.gate.clear()
    waiting = [asyncio.ensure_future(resolver.resolve(f"n{number}.test", 443)) for number in range(2)]
    await asyncio.sleep(0)
    assert await code(resolver.resolve("n2.test", 443)) == "overloaded"
    names.gate.set()
    await asyncio.gather(*waiting)


async def test_ports_remembered_for_one_answer_are_bounded():
    resolver = Resolver(Names(api=[[PUBLIC]]))
    await resolver.resolve("api.test", 1)
    for port in range(1, 200):
        assert resolver.resolve("api.test", port) == (PUBLIC,)
    assert len(resolver._answers["api.test"].checked) == 64


async def test_own_listeners_are_refused_also_when_added_later():
    resolver = Resolver(Names(api=[["127.0.0.2"]]), refused=frozenset({(ip_address("0.0.0.0"), 18400)}))
    assert await code(resolver.resolve("api.test", 18400, LOOPBACK)) == "destination_refused"
    assert resolver.resolve("api.test", 8200, LOOPBACK) == ("127.0.0.2",)
    resolver.refuse(frozenset({(ip_address("127.0.0.2"), 8200)}))
    with pytest.raises(GatewayError, match="this proxy"):
        resolver.resolve("api.test", 8200, LOOPBACK)


async def test_a_back_end_is_refused_by_name_and_by_the_addresses_it_has():
    resolver = Resolver(Names(vault=[["127.0.0.7"]], alias=[["127.0.0.7"]], gone=[[]]))
    for host in ("vault.test", "gone.test", "127.0.0.8"):
        await resolver.refuse_back_end(host, 8200)
    assert await code(resolver.resolve("alias.test", 8200, LOOPBACK)) == "destination_refused"
    for host in ("vault.test", "gone.test", "127.0.0.8"):
        with pytest.raises(GatewayError, match="behind"):
            resolver.resolve(host, 8200, LOOPBACK)
    assert resolver.resolve("alias.test", 8201, LOOPBACK) == ("127.0.0.7",)


def test_only_this_machines_addresses_are_its_own():
    assert is_own_address(ip_address("127.0.0.1"))
    assert not is_own_address(ip_address("192.0.2.55"))
    assert not is_own_address(ip_address("2001:db8::55"))


HOSTS = st.text(st.sampled_from("0123456789xabf.:[]-_AZ\u3002\uff11\u00fc"), max_size=20)


@settings(max_examples=200, deadline=None)
@given(st.one_of(HOSTS, st.ip_addresses().map(str)))
def test_what_is_looked_up_or_dialled_is_the_name_that_policy_judged(raw):
    try:
        host = canonical_host(raw)
    except GatewayError:
        return
    names = Names(**{host.partition(".")[0]: [[PUBLIC]]})

    async def resolve():
        try:
            found = Resolver(names).resolve(host, 443)
            return await found if inspect.isawaitable(found) else found
        except GatewayError:
            return ()

    dialled = asyncio.run(resolve())
    assert names.asked == [host] or (names.asked == [] and dialled in ((), (host,)))


@needs_vectors
async def test_published_spellings_never_lead_to_an_address_inside():
    urls = re.findall(r"https?://[^\s`'\"<>]+", (SSRF / "ssrf_cloud_instances.md").read_text())
    urls += [f"http://{host}" for host in json.loads((SSRF / "safeurl_hosts.json").read_text())["deny_hosts"]]

    async def names(host: str):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("169.254.169.254", 0))]

    resolver = Resolver(names)
    for url in urls:
        try:
            destination, _ = parse_absolute(url.encode())
            await resolver.resolve(destination.host, destination.port)
        except GatewayError:
            continue
        pytest.fail(f"{url} would be dialled")
