"""What the secrets commands do, on a store in memory and on the file store."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.credentials.administration import (
    bare_record,
    delete_record,
    import_records,
    list_records,
    rekey,
    set_record,
)
from proxy.credentials.faults import RecordError
from proxy.credentials.store import Conflict, Fields, NotFound
from proxy.credentials.stores.file import FileStore
from proxy.errors import ConfigurationError, StoreError
from tests.credentials.stubs import MemoryStore

PATH = "tenants/acme/slack"


async def test_a_record_is_written_with_the_fields_nobody_knows() -> None:
    store = MemoryStore()
    assert await set_record(store, PATH, {"token": "t", "owner": "ops"}) == 1
    assert await set_record(store, PATH, {"token": "u", "owner": "ops"}) == 2
    assert store.records[PATH] == ({"token": "u", "owner": "ops"}, 2)


@pytest.mark.parametrize("path", ["tenants/../other/slack", "/tenants/acme/slack", "tenants/acme/", "a b"])
async def test_a_path_that_leads_elsewhere_is_not_written(path: str) -> None:
    store = MemoryStore()
    with pytest.raises(ValueError, match="record path"):
        await set_record(store, path, {"token": "t"})
    with pytest.raises(ValueError, match="record path"):
        await delete_record(store, path)
    assert store.records == {}


async def test_a_record_that_could_not_be_used_is_not_written() -> None:
    store = MemoryStore()
    with pytest.raises(RecordError, match="control character"):
        await set_record(store, PATH, {"token": "a\x00b"})
    assert store.records == {}


async def test_an_import_writes_all_or_nothing_and_names_every_fault() -> None:
    store = MemoryStore()
    with pytest.raises(ConfigurationError) as caught:
        await import_records(
            store, {PATH: {"token": "t"}, "tenants/a/b": {"token": ""}, "../x": {"token": "t"}, "c": 1}
        )
    assert len(caught.value.faults) == 3
    assert store.records == {}
    assert await import_records(store, {PATH: {"token": "t"}, "tenants/b/slack": {"value": "v"}}) == {
        PATH: 1,
        "tenants/b/slack": 1,
    }


async def test_a_list_shows_kind_version_expiry_and_state_but_no_value() -> None:
    store = MemoryStore()
    store.put(PATH, token="hush-1", expires_at=1_900_000_000)
    store.put("tenants/acme/off", value="hush-2", disabled=True)
    store.put("tenants/acme/odd", token="hush-3\x00")
    store.put("other/x", token="hush-4")
    listed = await list_records(store, "tenants")
    assert [(row.path, row.kind, row.version, row.expires, row.state) for row in listed] == [
        ("tenants/acme/odd", "-", 1, None, "unusable: field 'token' holds a control character"),
        ("tenants/acme/off", "api_key", 1, None, "disabled"),
        (PATH, "bearer", 1, 1.9e9, "ok"),
    ]
    assert "hush" not in repr(listed)


async def test_a_record_deleted_while_it_is_listed_is_left_out() -> None:
    class Racing(MemoryStore):
        async def list(self, prefix: str) -> list[str]:
            return [*await super().list(prefix), "tenants/acme/gone"]

    store = Racing()
    store.put(PATH, token="t")
    assert [row.path for row in await list_records(store)] == [PATH]


async def test_a_concurrent_change_is_written_over() -> None:
    class Contended(MemoryStore):
        conflicts = 2

        async def write(self, path: str, fields: Fields, expected_version: int | None) -> int:
            if self.conflicts:
                self.conflicts -= 1
                raise Conflict(path)
            return await super().write(path, fields, expected_version)

    store = Contended()
    assert await set_record(store, PATH, {"token": "t"}) == 1
    store.conflicts = 100
    with pytest.raises(Conflict):
        await set_record(store, PATH, {"token": "t"})


async def test_only_the_file_store_has_a_key_of_ours(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="only the file store"):
        await rekey(MemoryStore())
    store = FileStore(tmp_path / "s", tmp_path / "k")
    await set_record(store, PATH, {"token": "t"})
    await rekey(store)
    assert (await store.read(PATH)).fields == {"token": "t"}
    await delete_record(store, PATH)
    with pytest.raises(NotFound):
        await delete_record(store, PATH)


def test_a_bare_value_becomes_a_record_of_its_kind() -> None:
    assert bare_record("bearer", "t") == {"kind": "bearer", "token": "t"}
    assert bare_record("api_key", "k", ["a.example"]) == {"kind": "api_key", "value": "k", "hosts": ["a.example"]}
    with pytest.raises(ValueError, match="several fields"):
        bare_record("basic", "u:p")
