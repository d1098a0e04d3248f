"""Revocation: who is on the list is out, at once and everywhere."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from proxy.errors import GatewayError
from proxy.identity.chain import Chain
from proxy.identity.revocation import RevocationList, parse_revocations
from proxy.identity.source import FileSource, UrlSource
from proxy.model import Caller, Presented
from tests.identity.tokens import NOW, claims, member, signed


def listed(path: Path, **entries: Any) -> RevocationList:
    path.write_text(json.dumps(entries))
    return RevocationList(FileSource(path))


async def test_a_caller_is_revoked_by_digest_by_jti_and_by_tenant(tmp_path: Path) -> None:
    revocations = listed(tmp_path / "list.json", tokens=["abc", "t-1"], tenants=["acme"])
    await revocations.start()
    assert revocations.revoked(Caller("x", "bot", token_id="abc"))
    assert revocations.revoked(Caller("x", "bot", jti="t-1"))
    assert revocations.revoked(Caller("acme", "bot"))
    assert not revocations.revoked(Caller("x", "bot", token_id="other", jti="t-2"))


async def test_a_caller_without_a_token_is_not_matched_by_nothing(tmp_path: Path) -> None:
    revocations = listed(tmp_path / "list.json", tokens=["t-1"])
    await revocations.start()
    assert not revocations.revoked(Caller("x", "bot"))


async def test_a_change_is_told_to_those_who_hold_tunnels(tmp_path: Path) -> None:
    revocations = listed(tmp_path / "list.json", tokens=[])
    await revocations.start()
    open_tunnels = [Caller("acme", "bot", jti="t-1"), Caller("acme", "bot", jti="t-2")]
    cut: list[Caller] = []
    revocations.subscribe(lambda: cut.extend(filter(revocations.revoked, open_tunnels)))
    (tmp_path / "list.json").write_text('{"tokens": ["t-2"]}')
    await revocations.refresh()
    assert cut == open_tunnels[1:]


@pytest.mark.parametrize("by", ["jti", "digest", "tenant"])
async def test_a_remembered_token_is_refused_once_it_is_revoked(tmp_path: Path, by: str) -> None:
    path = tmp_path / "list.json"
    revocations = listed(path, tokens=[])
    await revocations.start()
    chain = Chain([member()], "proxy", revoked=revocations.revoked)
    token = signed(claims(jti="t-1"))
    presented = Presented(proxy_authorization=b"Bearer " + token)
    assert isinstance(chain.identify(presented, NOW), Caller)
    entries = {
        "jti": {"tokens": ["t-1"]},
        "digest": {"tokens": [hashlib.sha256(token).hexdigest()]},
        "tenant": {"tenants": ["acme"]},
    }
    path.write_text(json.dumps(entries[by]))
    await revocations.refresh()
    with pytest.raises(GatewayError, match="revoked") as caught:
        chain.identify(presented, NOW)
    assert caught.value.status == 407


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b'{"token":["x"]}',
        b'{"tokens":"x"}',
        b'{"tokens":[1]}',
        b'{"tokens":[""]}',
        b'{"tenants":["*"]}',
        b"\xff",
    ],
)
def test_a_list_that_could_be_misread_is_an_error(raw: bytes) -> None:
    with pytest.raises(ValueError):
        parse_revocations(raw)


async def test_a_broken_list_leaves_the_last_good_one_in_force(tmp_path: Path) -> None:
    revocations = listed(tmp_path / "list.json", tenants=["acme"])
    await revocations.start()
    (tmp_path / "list.json").write_text("{")
    await revocations.refresh()
    assert revocations.revoked(Caller("acme", "bot"))
    assert revocations.failure


async def test_a_list_behind_a_url_revokes_nobody_until_it_answers() -> None:
    answers = [b"", b'{"tenants": ["acme"]}']

    async def fetch(url: str) -> bytes:
        return answers.pop(0)

    revocations = RevocationList(UrlSource("https://lists.example/revoked", fetch))
    await revocations.start()
    assert not revocations.revoked(Caller("acme", "bot"))
    await revocations.refresh()
    assert revocations.revoked(Caller("acme", "bot"))
