"""Ending a credential in an order that can be taken up again at any point."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proxy.credentials.disconnect import disconnect
from proxy.credentials.record import parse_record
from proxy.credentials.store import Fields, NotFound
from proxy.credentials.stores.file import FileStore
from proxy.errors import StoreError

PATH = "tenants/acme/slack"
RECORD = {"kind": "bearer", "token": "xoxb-secret", "hosts": ["slack.com"], "nested": {"secret": "s"}, "app": "mine"}


@pytest.fixture
async def store(tmp_path: Path) -> FileStore:
    opened = FileStore(tmp_path / "secrets.enc", tmp_path / "secrets.key")
    await opened.start()
    await opened.write(PATH, RECORD, 0)
    return opened


async def test_it_is_off_before_the_provider_is_asked_and_empty_after(store: FileStore) -> None:
    seen: list[dict[str, Any]] = []

    async def revoke(record: Fields) -> None:
        seen.append(dict((await store.read(PATH)).fields))
        assert record["token"] == "xoxb-secret"

    await disconnect(store, PATH, revoke, 1000.0)
    assert [(fields["disabled"], fields["token"]) for fields in seen] == [(True, "xoxb-secret")]
    left = (await store.read(PATH)).fields
    expected = {"kind": "bearer", "hosts": ["slack.com"], "app": "mine", "disabled": True, "disconnected_at": 1000.0}
    assert left == expected
    assert parse_record(PATH, left).disabled


async def test_after_a_failure_it_stays_off_and_the_next_run_finishes(store: FileStore) -> None:
    async def fail(record: Fields) -> None:
        raise OSError("away")

    with pytest.raises(OSError):
        await disconnect(store, PATH, fail, 1000.0)
    left = (await store.read(PATH)).fields
    assert (left["disabled"], left["token"]) == (True, "xoxb-secret")
    assert parse_record(PATH, left).disabled
    tokens: list[object] = []

    async def revoke(record: Fields) -> None:
        tokens.append(record["token"])

    await disconnect(store, PATH, revoke, 2000.0)
    assert tokens == ["xoxb-secret"]
    assert (await store.read(PATH)).fields["disconnected_at"] == 1000.0


async def test_what_was_connected_again_meanwhile_is_left_alone(store: FileStore) -> None:
    async def reconnect(record: Fields) -> None:
        await store.write(PATH, {"kind": "bearer", "token": "new"}, None)

    with pytest.raises(StoreError, match="connected again"):
        await disconnect(store, PATH, reconnect, 1000.0)
    assert (await store.read(PATH)).fields["token"] == "new"


async def test_what_is_not_there_cannot_be_ended(store: FileStore) -> None:
    async def revoke(record: Fields) -> None:
        pytest.fail("nothing to revoke")

    with pytest.raises(NotFound):
        await disconnect(store, "tenants/acme/nothing", revoke, 1000.0)
