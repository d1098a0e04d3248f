"""Records whose keys are those of AWS roles: whose they are, when they are asked for, and what a refusal says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qsl

import pytest

from proxy.credentials.faults import RecordError
from proxy.credentials.record import parse_record
from proxy.credentials.resolve import Resolver
from proxy.model import Caller
from signers.grants.model import TokenRefused, TokenRequest
from signers.placement import prepare
from signers.signing import Outgoing
from signers.table import SIGNERS
from tests.credentials.stubs import Use
from tests.credentials.test_issuing import PATH, START, Bench, World
from tests.signers.grants.test_assume_role import error_xml, keys_xml

PLATFORM = "arn:aws:iam::111111111111:role/platform"
TENANT = "arn:aws:iam::222222222222:role/tenant"
KEYS = {"access_key_id": "AKIDEXAMPLE", "secret_access_key": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"}
OUTGOING = Outgoing("GET", True, "dynamodb.eu-west-1.amazonaws.com", b"/", ((b"host", b"h"),), 0)
Answer = tuple[int, dict[str, str], bytes]


class Sts:
    """Counts what it is asked; `answer` replaces its keys."""

    def __init__(self) -> None:
        self.forms: list[dict[str, str]] = []
        self.urls: list[str] = []
        self.answer: Answer | None = None

    async def __call__(self, request: TokenRequest) -> Answer:
        self.forms.append(dict(parse_qsl(request.body.decode())))
        self.urls.append(request.url)
        await asyncio.sleep(0)
        ends = "1970-01-12T14:46:40Z"  # START + 3600
        return self.answer or (200, {}, keys_xml(number=len(self.forms), ends=ends))


@pytest.fixture
def sts() -> Sts:
    return Sts()


@pytest.fixture
async def world(sts: Sts) -> AsyncIterator[World]:
    made = World()
    made.respond = sts  # type: ignore[method-assign, assignment]
    yield made
    for bench in made.benches:
        await bench.resolver.close()


def process(world: World) -> Bench:
    bench = world.process()
    bench.resolver = Resolver(
        world.store,
        prepare,
        clock=world.clock,
        issuing=lambda: bench.issuing,
        signers={"aws": SIGNERS["aws"].prepare},
        masks_of=lambda _: None,
    )
    return bench


async def key_of(bench: Bench, who: Caller | None = None) -> str:
    """The id of the access key that a call of `who` is signed with."""
    material = await bench.get(Use(), who or Caller("acme", "bot"))
    assert material.signing is not None
    lines = material.signing.sign(OUTGOING, b"", START).lines.decode()
    return lines.partition("Credential=")[2].partition("/")[0]


async def test_a_role_is_assumed_once_for_all_calls_of_a_tenant(world: World, sts: Sts) -> None:
    world.store.put(PATH, **KEYS, role_arn=TENANT, external_id="ext-7", region="eu-west-1")
    bench = process(world)
    found = await asyncio.gather(*[key_of(bench, Caller("acme", "bot", f"actor-{n}")) for n in range(20)])
    assert set(found) == {"ASIAIOSFODNN7EXAMPLE1"}
    (form,) = sts.forms
    assert (form["RoleArn"], form["ExternalId"], form["RoleSessionName"]) == (TENANT, "ext-7", "acme")
    assert sts.urls == ["https://sts.eu-west-1.amazonaws.com/"]


async def test_keys_are_renewed_in_the_background_before_they_expire(world: World, sts: Sts) -> None:
    world.store.put(PATH, **KEYS, role_arn=TENANT)
    bench = process(world)
    await key_of(bench)
    sts.answer = (200, {}, keys_xml(number=9, ends="1970-01-12T15:46:40Z"))
    world.clock.now += 3560
    assert await key_of(bench) == "ASIAIOSFODNN7EXAMPLE1"
    await bench.settle()
    assert await key_of(bench) == "ASIAIOSFODNN7EXAMPLE9"
    assert len(sts.forms) == 2


async def test_sessions_that_are_tagged_with_the_actor_are_never_shared_between_actors(world: World, sts: Sts) -> None:
    world.store.put(PATH, **KEYS, role_arn=TENANT, session_tags=["tenant", "actor"])
    bench = process(world)
    jane, bob = Caller("acme", "bot", "jane"), Caller("acme", "bot", "bob")
    assert [await key_of(bench, who) for who in (jane, bob, jane, bob)] == [
        "ASIAIOSFODNN7EXAMPLE1", "ASIAIOSFODNN7EXAMPLE2", "ASIAIOSFODNN7EXAMPLE1", "ASIAIOSFODNN7EXAMPLE2",
    ]  # fmt: skip
    assert [form["Tags.member.1.Value"] for form in sts.forms] == ["jane", "bob"]
    assert [form["RoleSessionName"] for form in sts.forms] == ["acme@jane", "acme@bob"]


async def test_tenants_with_the_same_record_do_not_share_a_session(world: World, sts: Sts) -> None:
    for tenant in ("acme", "globex"):
        world.store.put(f"tenants/{tenant}/slack", **KEYS, role_arn=TENANT)
    bench = process(world)
    assert await key_of(bench, Caller("acme", "bot")) != await key_of(bench, Caller("globex", "bot"))
    assert [form["RoleSessionName"] for form in sts.forms] == ["acme", "globex"]


async def test_a_call_without_an_actor_gets_no_session_that_is_to_be_tagged_with_one(world: World, sts: Sts) -> None:
    world.store.put(PATH, **KEYS, role_arn=TENANT, session_tags=["actor"])
    refusal = await process(world).refused(Use(), Caller("acme", "bot"))
    assert refusal.code.name == "credential_missing"
    assert "actor" in refusal.detail
    assert not sts.forms


async def test_the_platforms_role_stands_between_its_key_and_the_tenants_role(world: World, sts: Sts) -> None:
    world.store.put("apps/aws", **KEYS, role_arn=PLATFORM, region="eu-central-1")
    world.store.put(PATH, kind="aws", app="aws", role_arn=TENANT, external_id="ext-7", region="us-west-2")
    assert await key_of(process(world)) == "ASIAIOSFODNN7EXAMPLE2"
    assert [form["RoleArn"] for form in sts.forms] == [PLATFORM, TENANT]
    assert "ExternalId" not in sts.forms[0]
    assert set(sts.urls) == {"https://sts.eu-central-1.amazonaws.com/"}


async def test_the_endpoint_is_the_apps_and_never_the_tenants(world: World, sts: Sts) -> None:
    url = "https://vpce-1a2b.sts.eu-central-1.vpce.amazonaws.com"
    world.store.put("apps/aws", **KEYS, token_endpoint=url)
    world.store.put(
        PATH, kind="aws", app="aws", roles=[TENANT], token_endpoint="https://evil.example", region="us-east-1"
    )
    await key_of(process(world))
    assert sts.urls == [url]


async def test_a_refused_role_says_who_has_to_look_at_what_and_rests(world: World, sts: Sts) -> None:
    world.store.put(PATH, **KEYS, role_arn=TENANT)
    sts.answer = (403, {}, error_xml("AccessDenied"))
    bench = process(world)
    for _ in range(3):
        refusal = await bench.refused(Use(), Caller("acme", "bot"))
        assert refusal.code.name == "refresh_rejected"
        assert "AccessDenied" in refusal.detail
        assert "trust policy" in refusal.detail
    assert len(sts.forms) == 1
    assert "rejected" not in world.store.records[PATH][0]  # the trust policy changes without the record
    sts.answer = None
    world.clock.now += 61
    assert await key_of(bench) == "ASIAIOSFODNN7EXAMPLE2"


async def test_an_expired_start_is_no_verdict_and_is_tried_again(world: World, sts: Sts) -> None:
    world.store.put(PATH, **KEYS, session_token="of-an-hour-ago", role_arn=TENANT)
    sts.answer = (403, {}, error_xml("ExpiredToken"))
    bench = process(world)
    refusal = await bench.refused(Use(), Caller("acme", "bot"))
    assert refusal.code.name == "credential_unavailable"
    sts.answer = None
    world.clock.now += 5
    assert await key_of(bench) == "ASIAIOSFODNN7EXAMPLE2"


async def test_keys_that_still_hold_are_used_while_sts_is_away(world: World, sts: Sts) -> None:
    world.store.put(PATH, **KEYS, role_arn=TENANT)
    bench = process(world)
    await key_of(bench)
    sts.answer = (503, {}, b"")
    world.clock.now += 3590
    assert await key_of(bench) == "ASIAIOSFODNN7EXAMPLE1"
    world.clock.now += 11
    assert (await bench.refused(Use(), Caller("acme", "bot"))).code.name == "credential_unavailable"


async def test_the_provider_that_refuses_keys_has_them_renewed_once(world: World, sts: Sts) -> None:
    world.store.put(PATH, **KEYS, role_arn=TENANT)
    bench = process(world)
    who = Caller("acme", "bot")
    used = await bench.get(Use(), who)
    assert await bench.resolver.reread(who, Use(), used)
    assert await key_of(bench) == "ASIAIOSFODNN7EXAMPLE2"
    assert not await bench.resolver.reread(who, Use(), await bench.get(Use(), who))


async def test_nothing_that_is_shown_holds_a_secret(world: World, sts: Sts) -> None:
    world.store.put(PATH, **KEYS, role_arn=TENANT)
    bench = process(world)
    material = await bench.get(Use(), Caller("acme", "bot"))
    assert material.signing is not None
    assert b"secret-of-the-session-1/K7MDENG" in material.signing.masks
    shown = f"{material!r}{material.signing!r}{bench.resolver.known(START)}"
    assert "of-the-session" not in shown
    assert KEYS["secret_access_key"] not in shown


async def test_what_is_lacking_is_said_in_the_log(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.store.put("apps/aws", client_id="x")
    world.store.put(PATH, kind="aws", app="aws", role_arn=TENANT)
    refusal = await process(world).refused(Use(), Caller("acme", "bot"))
    assert refusal.code.name == "credential_unavailable"
    assert "an access key of the record or its app" in caplog.text


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"role_arn": "reader"}, "role_arn"),
        ({"role_arn": TENANT, "roles": [TENANT]}, "roles"),
        ({"roles": []}, "access_key_id"),
        ({"roles": "x"}, "roles"),
        ({"roles": [TENANT] * 5}, "roles"),
        ({"roles": [{"role_arn": TENANT, "external": "x"}]}, "roles[0]"),
        ({"roles": [TENANT, {"role_arn": "y"}]}, "roles[1].role_arn"),
        ({"role_arn": TENANT, "external_id": "x"}, "external_id"),
        ({"role_arn": TENANT, "duration": 60}, "duration"),
        ({"role_arn": TENANT, "duration": "1e3"}, "duration"),
        ({"role_arn": TENANT, "session_tags": ["team"]}, "session_tags"),
        ({"role_arn": TENANT, "region": "evil.example/"}, "region"),
        ({"role_arn": TENANT, "access_key_id": "AKIDEXAMPLE"}, "secret_access_key"),
        ({"role_arn": TENANT, "access_key_id": "no id", "secret_access_key": "x"}, "access_key_id"),
    ],
)
def test_a_fault_in_a_record_names_the_field(fields: dict[str, Any], fault: str) -> None:
    with pytest.raises(RecordError) as caught:
        parse_record("tenants/acme/aws", {"kind": "aws", **fields})
    assert caught.value.field == fault


def test_a_record_with_a_role_needs_no_kind() -> None:
    assert parse_record("x", {"role_arn": TENANT, "app": "aws"}).kind == "aws"


def test_a_static_key_is_no_grant() -> None:
    assert parse_record("x", {"kind": "aws", **KEYS}).grant is None


async def test_the_endpoint_being_refused_is_told(world: World) -> None:
    world.store.put(PATH, **KEYS, role_arn=TENANT)
    bench = process(world)

    async def refused(request: TokenRequest) -> Answer:
        raise TokenRefused("down", "address_refused")

    bench.respond = refused
    refusal = await bench.refused(Use(), Caller("acme", "bot"))
    assert "address" in refusal.detail
