"""What every credential store that we write to promises, run on each implementation."""

from __future__ import annotations

import asyncio

import pytest

from proxy.credentials.store import Conflict, NotFound, Store

PATH = "tenants/acme/slack"


async def live(store: Store, prefix: str) -> list[str]:
    """Listed paths that can be read: a store may still list a deleted one."""
    readable = []
    for path in await store.list(prefix):
        try:
            await store.read(path)
        except NotFound:
            continue
        readable.append(path)
    return readable


async def test_a_record_reads_back_as_it_was_written(store: Store) -> None:
    fields = {"token": "xoxb-1", "hosts": ["slack.com"], "nested": {"deep": [1, True, None]}, "unknown": "kept"}
    version = await store.write(PATH, fields, None)
    stored = await store.read(PATH)
    assert (stored.fields, stored.version) == (fields, version)


async def test_a_record_that_was_never_written_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound) as caught:
        await store.read("tenants/acme/nothing")
    assert caught.value.version == 0


async def test_every_write_raises_the_version(store: Store) -> None:
    versions = [await store.write(PATH, {"token": f"t{number}"}, None) for number in range(3)]
    assert versions == sorted(set(versions))
    assert (await store.read(PATH)).fields == {"token": "t2"}


async def test_a_write_with_the_current_version_passes_and_an_old_one_conflicts(store: Store) -> None:
    first = await store.write(PATH, {"token": "a"}, 0)
    second = await store.write(PATH, {"token": "b"}, first)
    with pytest.raises(Conflict):
        await store.write(PATH, {"token": "c"}, first)
    stored = await store.read(PATH)
    assert (stored.fields, stored.version) == ({"token": "b"}, second)


async def test_version_zero_creates_but_never_replaces(store: Store) -> None:
    await store.write(PATH, {"token": "a"}, 0)
    with pytest.raises(Conflict):
        await store.write(PATH, {"token": "b"}, 0)


async def test_of_concurrent_writers_that_expect_the_same_version_one_wins(store: Store) -> None:
    version = await store.write(PATH, {"token": "a"}, None)
    writes = [store.write(PATH, {"token": f"w{number}"}, version) for number in range(4)]
    results = await asyncio.gather(*writes, return_exceptions=True)
    assert sum(isinstance(result, Conflict) for result in results) == 3
    assert sum(isinstance(result, int) for result in results) == 1


async def test_a_deleted_record_is_not_found_and_its_successor_has_a_higher_version(store: Store) -> None:
    version = await store.write(PATH, {"token": "a"}, None)
    await store.delete(PATH)
    with pytest.raises(NotFound):
        await store.read(PATH)
    assert await store.write(PATH, {"token": "b"}, 0) > version
    assert (await store.read(PATH)).fields == {"token": "b"}


async def test_deleting_what_is_not_there_is_said(store: Store) -> None:
    with pytest.raises(NotFound):
        await store.delete("tenants/acme/nothing")


async def test_list_names_live_records_below_the_prefix_only(store: Store) -> None:
    for path in ("tenants/acme/slack", "tenants/acme/actors/ann/slack", "tenants/acme2/slack", "tenants/acme/gone"):
        await store.write(path, {"token": "t"}, None)
    await store.delete("tenants/acme/gone")
    assert await live(store, "tenants/acme") == ["tenants/acme/actors/ann/slack", "tenants/acme/slack"]
    assert await store.list("tenants/nobody") == []
    assert "tenants/acme2/slack" in await store.list("")
