"""Tokens for somebody: delegated users of a service account, and a caller's own token exchanged."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from policies.rules import Impersonation
from proxy.model import Caller
from signers.grants.model import TokenRequest
from signers.secret import Secret
from tests.credentials.stubs import Use
from tests.credentials.test_issuing import APP, ENDPOINT, PATH, Bench, World, bearer, line
from tests.token_server import as_json

PEM = generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
RULE = Impersonation("example.com", ("jane", "team-*"))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()

    async def respond(request: TokenRequest) -> Any:
        form = dict(parse_qsl(request.body.decode()))
        if "assertion" in form:
            whom = jwt.decode(form["assertion"], options={"verify_signature": False}).get("sub", "itself")
        else:
            whom = form["subject_token"] + "+" + form.get("actor_token", "nobody")
        return as_json(200, {"access_token": f"token-for-{whom}", "expires_in": 3600})

    made.respond = respond  # type: ignore[method-assign]
    yield made
    for bench in made.benches:
        await bench.resolver.close()


def who(actor: str, token: str = "") -> Caller:
    return Caller("acme", "bot", actor, subject_token=Secret(token) if token else None)


@pytest.fixture
def bench(world: World) -> Bench:
    world.store.put(
        PATH, kind="service_account", client_email="robot@p.iam.gserviceaccount.com", private_key=PEM, scopes="a b"
    )
    return world.process()


@pytest.mark.parametrize("name", ["acme.eu.key", "key", "acme.eu/key", "transit/acme.key"])
async def test_a_tenants_record_names_no_key_but_the_tenants_own(world: World, name: str) -> None:
    world.store.put(PATH, kind="service_account", client_email="robot@p.example", transit_key=name, scopes="a")
    bench = world.process()
    assert (await bench.refused()).code.name == "credential_missing"
    assert not bench.asked


async def test_each_user_gets_a_token_of_their_own(bench: Bench) -> None:
    delegated = Use(impersonate=RULE)
    for _ in range(2):
        assert bearer(await bench.get(delegated, who("jane"))) == line("token-for-jane@example.com")
        assert bearer(await bench.get(delegated, who("Team-A@example.com"))) == line("token-for-team-a@example.com")
        assert bearer(await bench.get(Use(), who("jane"))) == line("token-for-itself")
    assert len(bench.asked) == 3


@pytest.mark.parametrize(
    "actor", ["", "bob", "jane@evil.example", "jane@example.com.evil.example", "@example.com", "jane doe"]
)
async def test_nobody_else_is_acted_for(bench: Bench, actor: str) -> None:
    refusal = await bench.refused(Use(impersonate=RULE), who(actor))
    assert refusal.code.name == "policy_denied"
    assert not bench.asked


async def test_a_subject_in_the_record_is_not_a_licence(world: World, bench: Bench) -> None:
    world.store.put(PATH, **{**bench.record, "subject": "ceo@example.com"})
    assert bearer(await bench.get()) == line("token-for-itself")


async def test_the_callers_own_token_is_exchanged_for_theirs_alone(world: World, tmp_path: Path) -> None:
    actor_file = tmp_path / "projected"
    actor_file.write_text("workload\n")
    world.store.put(APP, token_endpoint=ENDPOINT, client_id="c", client_secret="s", actor_token_file=str(actor_file))
    world.store.put(PATH, kind="token_exchange", app="crm", audience=["api"])
    bench = world.process()
    for _ in range(2):
        for name in ("one", "two"):
            assert bearer(await bench.get(Use(), who("", f"session-of-{name}"))) == line(
                f"token-for-session-of-{name}+workload"
            )
    assert len(bench.asked) == 2
    assert (await bench.refused(Use(), who(""))).code.name == "credential_missing"


async def test_a_workloads_token_is_read_from_its_file(world: World, tmp_path: Path) -> None:
    file = tmp_path / "projected"
    world.store.put(APP, token_endpoint=ENDPOINT, client_id="c", client_secret="s", subject_token_file=str(file))
    world.store.put(PATH, kind="token_exchange", app="crm", subject="file")
    bench = world.process()
    assert (await bench.refused()).code.name == "credential_unavailable"
    for unusable in ("", " \n", "x" * 20_000):
        file.write_text(unusable)
        assert (await bench.refused()).code.name == "credential_unavailable"
    assert not bench.asked
    file.write_text("first")
    assert bearer(await bench.get()) == line("token-for-first+nobody")
    file.write_text("second")
    assert bearer(await bench.get()) == line("token-for-first+nobody")
    world.clock.now += 3595
    assert bearer(await bench.get()) == line("token-for-second+nobody")


async def test_a_refused_exchange_falls_back_to_nothing(world: World) -> None:
    """C11."""

    async def refuse(request: TokenRequest) -> Any:
        return as_json(400, {"error": "invalid_grant"})

    world.respond = refuse  # type: ignore[method-assign]
    world.store.put(PATH, kind="token_exchange", app="crm")
    bench = world.process()
    assert (await bench.refused(Use(), who("", "a-session-token"))).code.name == "refresh_rejected"
    assert "rejected" not in bench.record


async def test_a_workload_identity_acts_as_the_account_and_a_callers_as_theirs_alone(
    world: World, tmp_path: Path
) -> None:
    pool = "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/k8s"
    file = tmp_path / "projected"
    file.write_text("workload")

    async def respond(request: TokenRequest) -> Any:
        if request.url == "https://sts.googleapis.com/v1/token":
            form = dict(parse_qsl(request.body.decode()))
            assert form["audience"] == pool
            return as_json(200, {"access_token": f"federated-{form['subject_token']}", "expires_in": 3600})
        assert request.url.startswith("https://iam.example/v1/projects/-/serviceAccounts/robot@p.iam.gserviceaccount")
        whom = request.headers["Authorization"].removeprefix("Bearer federated-")
        return as_json(200, {"accessToken": f"account-for-{whom}", "expireTime": "1970-01-12T14:46:40Z"})

    world.respond = respond  # type: ignore[method-assign]
    # A provider of the app's with a token endpoint of its own changes nothing: this is Google's STS.
    world.store.put(APP, audience=pool, subject_token_file=str(file), impersonation_endpoint="https://iam.example/")
    account = {"kind": "service_account", "app": "crm", "client_email": "robot@p.iam.gserviceaccount.com"}
    world.store.put(PATH, **account, subject="file", scopes="a")
    bench = world.process()
    for name in ("one", "two"):
        assert bearer(await bench.get(Use(), who("", f"session-of-{name}"))) == line("account-for-workload")
    assert len(bench.asked) == 2
    assert (await bench.refused(Use(impersonate=RULE), who("jane"))).code.name == "credential_missing"
    world.store.put(PATH, **account, scopes="a")
    bench = world.process()
    for name in ("one", "two"):
        assert bearer(await bench.get(Use(), who("", f"session-of-{name}"))) == line(f"account-for-session-of-{name}")
    assert (await bench.refused(Use(), who(""))).code.name == "credential_missing"


async def test_a_minted_token_that_a_provider_refuses_gives_way_to_a_new_one_at_once(bench: Bench) -> None:
    """C05, B57."""
    numbers = iter(range(1, 9))

    async def respond(request: TokenRequest) -> Any:
        return as_json(200, {"access_token": f"minted-{next(numbers)}", "expires_in": 3600})

    bench.respond = respond
    used = await bench.get()
    assert bearer(used) == line("minted-1")
    assert await bench.resolver.reread(who(""), Use(), used)
    assert bearer(await bench.get()) == line("minted-2")


async def test_a_rotated_private_key_ends_the_old_tokens(world: World, bench: Bench) -> None:
    """B56: the same account, another key."""
    assert bearer(await bench.get()) == line("token-for-itself")
    fresh = generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    world.store.put(PATH, **{**bench.record, "private_key": fresh})
    world.clock.now += 61
    assert bearer(await bench.get()) == line("token-for-itself")
    assert len(bench.asked) == 2


async def test_an_assertion_refused_for_a_clock_is_no_verdict(world: World, bench: Bench) -> None:
    answers = [
        as_json(400, {"error": "invalid_grant"}, Date="Mon, 12 Jan 1970 13:55:00 GMT"),
        as_json(200, {"access_token": "token-after-the-clock-was-set", "expires_in": 3600}),
    ]

    async def respond(request: TokenRequest) -> Any:
        return answers.pop(0)

    bench.respond = respond
    refusal = await bench.refused()
    assert refusal.code.name == "credential_unavailable"
    assert "clock" in refusal.detail
    assert "rejected" not in bench.record
    world.clock.now += 5
    assert bearer(await bench.get()) == line("token-after-the-clock-was-set")


async def test_an_exchange_asks_for_what_the_record_says_with_the_types_that_the_app_says(
    world: World, tmp_path: Path
) -> None:
    """RFC 8693 section 2.1, with a JWT-SVID as subject and a projected token as actor."""
    for name in ("svid", "projected"):
        (tmp_path / name).write_text(name)
    world.store.put(
        APP, token_endpoint=ENDPOINT, client_id="c", client_secret="s",
        subject_token_file=str(tmp_path / "svid"), subject_token_type="urn:ietf:params:oauth:token-type:id_token",
        actor_token_file=str(tmp_path / "projected"),
    )  # fmt: skip
    world.store.put(
        PATH, kind="token_exchange", app="crm", subject="file", audience=["api", "ledger"],
        resource="https://api.example.com/", scopes=["read", "write"],
    )  # fmt: skip
    bench = world.process()
    await bench.get()
    form = parse_qs(bench.asked[0].body.decode())
    assert form == {
        "grant_type": ["urn:ietf:params:oauth:grant-type:token-exchange"],
        "subject_token": ["svid"], "subject_token_type": ["urn:ietf:params:oauth:token-type:id_token"],
        "actor_token": ["projected"], "actor_token_type": ["urn:ietf:params:oauth:token-type:jwt"],
        "audience": ["api", "ledger"], "resource": ["https://api.example.com/"], "scope": ["read write"],
    }  # fmt: skip


async def test_an_installations_token_is_asked_for_at_the_api_whatever_the_catalogue_says(world: World) -> None:
    world.store.put(APP, provider="two-steps", client_id="Iv1", private_key=PEM)
    world.store.put(PATH, kind="github_app", app="crm", installation_id="4711")
    bench = world.process()

    async def respond(request: TokenRequest) -> Any:
        return as_json(201, {"token": "ghs_token-of-an-installation", "expires_at": 4_000_000_000})

    bench.respond = respond
    assert bearer(await bench.get()) == line("ghs_token-of-an-installation")
    assert [asked.url for asked in bench.asked] == ["https://api.github.com/app/installations/4711/access_tokens"]
