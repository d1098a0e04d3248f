"""Write-back: merged, never over something newer, kept while the store is away, taken up by the next process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from proxy.credentials.spool import Change, DiskSpool, MemorySpool, Spool
from proxy.credentials.store import Conflict, Fields, NotFound
from proxy.credentials.stores.file import FileStore
from proxy.credentials.write_back import WriteBackStore
from proxy.errors import StoreError
from proxy.state_key import derived_key
from tests.credentials.stubs import MemoryStore

PATH = "tenants/acme/slack"
KEY = bytes(range(32))
OLD = {"access_token": "a1", "refresh_token": "r1", "note": "kept"}


def rotation(number: int) -> Change:
    """The change that a provider's rotation from refresh token `number` to the next asks for."""
    new = {"access_token": f"a{number + 1}", "refresh_token": f"r{number + 1}"}
    return Change(PATH, new, {"refresh_token": f"r{number}"})


class Flaky(MemoryStore):
    """A memory store whose writes compare versions; `refusing` makes them fail, `meddler` comes in between once."""

    refusing = False
    meddler: dict[str, Any] | None = None

    async def write(self, path: str, fields: Fields, expected_version: int | None) -> int:
        if self.refusing:
            raise StoreError("away for the test")
        if self.meddler is not None:
            meddled, self.meddler = {**self.records[path][0], **self.meddler}, None
            self.put(path, **meddled)
        if expected_version is not None and self.records[path][1] != expected_version:
            raise Conflict(path)
        return await super().write(path, fields, expected_version)


def disk(folder: Path) -> DiskSpool:
    return DiskSpool(folder / "spool", lambda: KEY)


def over(store: MemoryStore, spool: Spool) -> WriteBackStore:
    return WriteBackStore(store, spool, first_pause=0.01, random=lambda: 0.0)


async def stored(back: WriteBackStore) -> None:
    while back.waiting:
        await asyncio.sleep(0.01)


@pytest.fixture
def store() -> Flaky:
    made = Flaky()
    made.put(PATH, **OLD)
    return made


async def test_a_change_keeps_the_fields_it_does_not_name(store: Flaky) -> None:
    assert await over(store, MemorySpool()).update(rotation(1)) == "stored"
    assert store.records[PATH][0] == {"access_token": "a2", "refresh_token": "r2", "note": "kept"}


async def test_after_a_conflict_it_is_merged_into_what_is_there_then(store: Flaky) -> None:
    store.meddler = {"note": "changed by somebody", "hosts": ["slack.com"]}
    assert await over(store, MemorySpool()).update(rotation(1)) == "stored"
    merged = {"access_token": "a2", "refresh_token": "r2", "note": "changed by somebody", "hosts": ["slack.com"]}
    assert store.records[PATH][0] == merged


async def test_a_late_change_never_goes_over_a_newer_value(store: Flaky) -> None:
    back = over(store, MemorySpool())
    store.meddler = {"refresh_token": "r9", "access_token": "a9"}
    assert await back.update(rotation(1)) == "superseded"
    assert store.records[PATH][0]["refresh_token"] == "r9"


async def test_a_deleted_record_is_not_brought_back(store: Flaky) -> None:
    await store.delete(PATH)
    assert await over(store, MemorySpool()).update(rotation(1)) == "superseded"
    with pytest.raises(NotFound):
        await store.read(PATH)


async def test_what_the_store_does_not_take_is_read_back_at_once_and_stored_when_it_returns(
    store: Flaky, tmp_path: Path
) -> None:
    store.refusing = True
    back = over(store, disk(tmp_path))
    assert [await back.update(rotation(number)) for number in (1, 2)] == ["spooled", "spooled"]
    assert (await back.read(PATH)).fields["refresh_token"] == "r3"
    assert store.records[PATH][0] == OLD
    store.refusing = False
    await stored(back)
    assert store.records[PATH][0] == {"access_token": "a3", "refresh_token": "r3", "note": "kept"}
    assert list((tmp_path / "spool").iterdir()) == []
    await back.close()


async def test_a_restart_takes_up_what_waits(store: Flaky, tmp_path: Path) -> None:
    store.refusing = True
    first = over(store, disk(tmp_path))
    await first.update(rotation(1))
    await first.close()
    second = over(store, disk(tmp_path))
    await second.start()
    assert second.waiting == 1
    assert (await second.read(PATH)).fields["refresh_token"] == "r2"
    store.refusing = False
    await stored(second)
    assert store.records[PATH][0]["refresh_token"] == "r2"
    await second.close()


async def test_what_waits_is_encrypted_private_and_tied_to_its_key(
    store: Flaky, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spool = disk(tmp_path)
    spool.put(rotation(1))
    (file,) = (tmp_path / "spool").iterdir()
    assert b"r2" not in file.read_bytes()
    assert file.stat().st_mode & 0o777 == 0o600
    other = DiskSpool(tmp_path / "spool", lambda: bytes(32))
    assert other.pending() == []
    assert "cannot be read and is left there" in caplog.text
    assert "r2" not in caplog.text + repr(rotation(1))
    assert file.exists()
    assert [change for _, change in spool.pending()] == [rotation(1)]


async def test_a_change_that_can_neither_be_stored_nor_kept_is_an_error(store: Flaky, tmp_path: Path) -> None:
    store.refusing = True
    (tmp_path / "spool").write_text("a file where the folder should be")
    with pytest.raises(StoreError):
        await over(store, disk(tmp_path)).update(rotation(1))


async def test_two_processes_with_one_spool_store_a_change_once(store: Flaky, tmp_path: Path) -> None:
    disk(tmp_path).put(rotation(1))
    both = [over(store, disk(tmp_path)) for _ in range(2)]
    for back in both:
        await back.start()
    for back in both:
        await stored(back)
        await back.close()
    assert store.records[PATH] == ({"access_token": "a2", "refresh_token": "r2", "note": "kept"}, 2)


async def test_on_the_file_store_too_unrelated_writers_lose_nothing(tmp_path: Path) -> None:
    file = FileStore(tmp_path / "secrets.enc", tmp_path / "secrets.key")
    await file.start()
    await file.write(PATH, {"refresh_token": "r1"}, 0)
    back = WriteBackStore(file, MemorySpool())
    notes = [Change(PATH, {f"note-{number}": number}, {}) for number in range(4)]
    assert await asyncio.gather(*(back.update(each) for each in [rotation(1), *notes])) == ["stored"] * 5
    assert (await back.read(PATH)).fields.keys() >= {"note-0", "note-1", "note-2", "note-3"}
    assert (await back.read(PATH)).fields["refresh_token"] == "r2"
    await back.close()


def test_keys_differ_by_use_and_come_back_the_same(tmp_path: Path) -> None:
    file = tmp_path / "state.key"
    one = derived_key(file, "spool")
    assert (derived_key(file, "spool"), derived_key(file, "cursors") == one) == (one, False)
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o640)
    with pytest.raises(StoreError, match="chmod"):
        derived_key(file, "spool")
