"""Key sets: what is taken from them, and how they rotate."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key

from proxy.errors import ConfigurationError
from proxy.identity.jwk import parse_key_set
from proxy.identity.keys import KeySet
from proxy.identity.signing_key import SigningKey
from proxy.identity.source import FileSource, UrlSource
from tests.identity.tokens import NOW, key

URL = "https://idp.example/keys"


def document(*signing: SigningKey) -> bytes:
    return json.dumps({"keys": [row for one in signing for row in one.public_set()["keys"]]}).encode()


def row(algorithm: Any = "ES256", **changes: Any) -> dict[str, Any]:
    return {
        name: value
        for name, value in {**key(algorithm).public_set()["keys"][0], **changes}.items()
        if value is not None
    }


def parsed(*rows: Any) -> list[tuple[str | None, set[str]]]:
    return [(one.key_id, set(one.algorithms)) for one in parse_key_set(json.dumps({"keys": rows}).encode())]


class Issuer:
    """A key endpoint under the test's hand: counts requests, waits when told to, fails when told to."""

    def __init__(self, body: bytes) -> None:
        self.body: bytes | Exception = body
        self.requests = 0
        self.open = asyncio.Event()
        self.open.set()

    async def fetch(self, url: str) -> bytes:
        assert url == URL
        self.requests += 1
        await self.open.wait()
        if isinstance(self.body, Exception):
            raise self.body
        return self.body


def told(keys: KeySet) -> list[int]:
    changes: list[int] = []
    keys.subscribe(lambda: changes.append(len(keys.current)))
    return changes


# --- parsing ----------------------------------------------------------------------------------------------------------


def test_a_keys_algorithms_follow_from_the_key() -> None:
    rsa = {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}
    assert parsed(row("RS256", alg=None, kid="r")) == [("r", rsa)]
    assert parsed(row("ES384", alg=None, kid=None)) == [(None, {"ES384"})]
    assert parsed(row("RS256", alg="PS256", kid="r")) == [("r", {"PS256"})]


UNUSABLE: list[Any] = [
    row(use="enc"),
    row(key_ops=["encrypt"]),
    row(alg="HS256"),
    row(alg="RS256"),
    row(kty="RSA"),
    row(crv="secp256k1"),
    row(x="AAAA"),
    row(kid=7),
    {"kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0", "alg": "HS256"},
    {"kty": ["EC"]},
    "text",
]


@pytest.mark.parametrize("unusable", UNUSABLE)
def test_a_key_that_checks_no_signature_is_passed_over(unusable: Any) -> None:
    assert len(parsed(row("EdDSA"), unusable)) == 1
    with pytest.raises(ValueError):
        parsed(unusable)


def test_a_short_rsa_key_is_passed_over() -> None:
    short = SigningKey(generate_private_key(public_exponent=65537, key_size=1024))
    with pytest.raises(ValueError):
        parse_key_set(document(short))


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"{}", b'{"keys":{}}', b'{"keys":[]}', b"\xff", b'{"keys":[' + b"{}," * 300 + b"{}]}"]
)
def test_what_is_no_key_set_is_an_error(raw: bytes) -> None:
    with pytest.raises(ValueError):
        parse_key_set(raw)


def test_a_private_key_in_a_key_set_is_an_error_that_does_not_show_it() -> None:
    with pytest.raises(ValueError, match="private key") as caught:
        parsed(row(d="c2VjcmV0"))
    assert "c2VjcmV0" not in str(caught.value)


# --- from a file ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["rename", "in place", "symlink"])
async def test_a_replaced_file_is_taken_up(tmp_path: Path, way: str) -> None:
    path, new = tmp_path / "keys.json", tmp_path / "new.json"
    if way == "symlink":
        (tmp_path / "old.json").write_bytes(document(key()))
        path.symlink_to(tmp_path / "old.json")
    else:
        path.write_bytes(document(key()))
    keys = KeySet(FileSource(path))
    await keys.start()
    changes = told(keys)
    new.write_bytes(document(key(), key(number=1)))
    if way == "rename":
        new.replace(path)
    elif way == "in place":
        path.write_bytes(new.read_bytes())
    else:
        (tmp_path / "link").symlink_to(new)
        (tmp_path / "link").replace(path)
    await keys.refresh()
    assert changes == [2]


async def test_a_file_that_is_only_touched_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(document(key()))
    keys = KeySet(FileSource(path))
    await keys.start()
    changes = told(keys)
    os.utime(path, ns=(1, 1))
    await keys.refresh()
    assert changes == []


@pytest.mark.parametrize("broken", [b"{", b"", None])
async def test_a_broken_file_keeps_the_last_good_keys_and_says_so(tmp_path: Path, broken: bytes | None) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(document(key()))
    keys = KeySet(FileSource(path))
    await keys.start()
    path.unlink() if broken is None else path.write_bytes(broken)
    await keys.refresh()
    assert len(keys.current) == 1
    assert keys.failure
    path.write_bytes(document(key()))
    await keys.refresh()
    assert keys.failure is None


async def test_a_file_that_is_missing_at_start_is_a_fault_naming_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"missing\.json"):
        await KeySet(FileSource(tmp_path / "missing.json")).start()


# --- from a URL -------------------------------------------------------------------------------------------------------


async def test_an_unknown_key_asks_the_issuer_at_most_every_30_seconds() -> None:
    issuer = Issuer(document(key()))
    keys = KeySet(UrlSource(URL, issuer.fetch))
    await keys.start()
    for after in (0.0, 1.0, 29.9, 30.0, 31.0, 60.0):
        await keys.look_again(NOW + after)
    assert issuer.requests == 4


async def test_a_clock_set_back_does_not_stop_the_asking() -> None:
    issuer = Issuer(document(key()))
    keys = KeySet(UrlSource(URL, issuer.fetch))
    await keys.look_again(NOW)
    await keys.look_again(NOW - 3600)
    assert issuer.requests == 2


async def test_many_who_ask_at_once_make_one_request() -> None:
    issuer = Issuer(document(key()))
    issuer.open.clear()
    keys = KeySet(UrlSource(URL, issuer.fetch))
    waiting = [asyncio.ensure_future(keys.look_again(NOW)) for _ in range(20)]
    await asyncio.sleep(0)
    issuer.open.set()
    await asyncio.gather(*waiting)
    assert issuer.requests == 1
    assert keys.loaded


async def test_one_who_gives_up_does_not_take_the_answer_from_the_others() -> None:
    issuer = Issuer(document(key()))
    issuer.open.clear()
    keys = KeySet(UrlSource(URL, issuer.fetch))
    first, second = (asyncio.ensure_future(keys.look_again(NOW)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    issuer.open.set()
    await second
    assert len(keys.current) == 1


FAILURES: list[Callable[[], bytes | Exception]] = [
    lambda: OSError("refused"),
    lambda: RuntimeError("the client's own"),
    lambda: b"<html>",
    lambda: b" " * (1 << 20) + b"{}",
]


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_failing_issuer_keeps_the_last_good_keys(failure: Callable[[], bytes | Exception]) -> None:
    issuer = Issuer(document(key()))
    keys = KeySet(UrlSource(URL, issuer.fetch))
    await keys.start()
    good, issuer.body = issuer.body, failure()
    await keys.refresh()
    assert len(keys.current) == 1
    assert keys.failure
    issuer.body = good
    await keys.refresh()
    assert keys.failure is None


async def test_an_issuer_that_is_away_at_start_is_no_fault() -> None:
    issuer = Issuer(b"")
    keys = KeySet(UrlSource(URL, issuer.fetch))
    await keys.start()
    assert not keys.loaded
    issuer.body = document(key())
    await keys.look_again(NOW)
    assert keys.loaded


async def test_subscribers_hear_of_changes_only() -> None:
    issuer = Issuer(document(key()))
    keys = KeySet(UrlSource(URL, issuer.fetch))
    changes = told(keys)
    await keys.refresh()
    await keys.refresh()
    issuer.body = document(key()) + b" "
    await keys.refresh()
    issuer.body = document(key(), key(number=1))
    await keys.refresh()
    assert changes == [1, 2]


async def test_a_subscriber_that_fails_does_not_keep_the_others_from_hearing() -> None:
    def failing() -> None:
        raise RuntimeError("broken")

    keys = KeySet(UrlSource(URL, Issuer(document(key())).fetch))
    keys.subscribe(failing)
    changes = told(keys)
    await keys.start()
    assert changes == [1]


async def test_keys_are_kept_fresh_in_the_background() -> None:
    issuer = Issuer(document(key()))
    keys = KeySet(UrlSource(URL, issuer.fetch))
    heard = asyncio.Event()
    task = asyncio.create_task(keys.keep_fresh(0.005))
    while not keys.loaded:
        await asyncio.sleep(0)
    keys.subscribe(heard.set)
    issuer.body = document(key(number=1))
    async with asyncio.timeout(5):
        await heard.wait()
    task.cancel()
