"""Mounted secrets: field files, swapped links, and files that others can read."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from proxy.credentials.record import parse_record
from proxy.credentials.store import NotFound
from proxy.credentials.stores.directory import DirectoryStore
from proxy.errors import StoreError
from signers.secret import Secret

PATH = "tenants/acme/slack"


class Volume:
    """A Secret mounted at a folder, updated the way the kubelet does: a fresh folder, then the link swapped."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.generation = 0
        folder.mkdir(parents=True)

    def publish(self, **fields: str) -> None:
        self.generation += 1
        fresh = self.folder / f"..{self.generation}"
        fresh.mkdir()
        for name, text in fields.items():
            (fresh / name).touch()
            (fresh / name).chmod(0o640)
            (fresh / name).write_text(text)
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(f"..data/{name}")
        (self.folder / "..tmp").symlink_to(fresh.name)
        os.replace(self.folder / "..tmp", self.folder / "..data")


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    return Volume(tmp_path / PATH)


async def test_a_mounted_secret_is_a_record_with_a_field_for_each_file(tmp_path: Path, volume: Volume) -> None:
    volume.publish(username="u\n", password="p", hosts='["api.example"]\n', disabled="false\n")
    store = DirectoryStore(tmp_path)
    record = parse_record(PATH, (await store.read(PATH)).fields)
    assert record.fields == {"username": Secret("u"), "password": Secret("p")}
    assert record.hosts == {"api.example"}
    assert not record.disabled
    assert await store.list("") == [PATH]


async def test_a_swapped_link_changes_all_fields_at_once(tmp_path: Path, volume: Volume) -> None:
    volume.publish(token="one")
    store = DirectoryStore(tmp_path)
    first = await store.read(PATH)
    volume.publish(token="two")
    shutil.rmtree(volume.folder / "..1")
    second = await store.read(PATH)
    assert (first.fields, second.fields) == ({"token": "one"}, {"token": "two"})
    assert first.version != second.version


async def test_a_field_that_is_gone_from_the_secret_is_gone_from_the_record(tmp_path: Path, volume: Volume) -> None:
    volume.publish(token="one", owner="ops")
    volume.publish(token="one")
    assert (await DirectoryStore(tmp_path).read(PATH)).fields == {"token": "one"}


async def test_an_unmounted_secret_is_not_found(tmp_path: Path, volume: Volume) -> None:
    volume.publish(token="one")
    shutil.rmtree(volume.folder)
    with pytest.raises(NotFound):
        await DirectoryStore(tmp_path).read(PATH)


async def test_a_file_renamed_into_place_is_seen(tmp_path: Path) -> None:
    file = tmp_path / PATH
    file.parent.mkdir(parents=True)
    store = DirectoryStore(tmp_path)
    for token in ("one", "two"):
        fresh = file.with_name(".fresh")
        fresh.touch(0o600)
        fresh.write_text(f'{{"token": "{token}"}}')
        os.replace(fresh, file)
        assert (await store.read(PATH)).fields == {"token": token}


@pytest.mark.parametrize("text", ["hush", "[1]", "", '{"token": "hush', "\udcff"])
async def test_a_file_that_holds_no_record_is_an_error_without_its_text(tmp_path: Path, text: str) -> None:
    file = tmp_path / PATH
    file.parent.mkdir(parents=True)
    file.touch(0o600)
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(StoreError, match="slack") as caught:
        await DirectoryStore(tmp_path).read(PATH)
    assert "hush" not in str(caught.value)


async def test_a_file_that_everybody_can_read_is_refused(tmp_path: Path, volume: Volume) -> None:
    volume.publish(token="one")
    (volume.folder / "token").chmod(0o644)
    with pytest.raises(StoreError, match="open to everybody"):
        await DirectoryStore(tmp_path).read(PATH)


async def test_nothing_is_written_here_and_a_missing_directory_is_named(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "nowhere")
    with pytest.raises(StoreError, match="nowhere: no such directory"):
        await store.start()
    with pytest.raises(StoreError, match="cannot be written"):
        await store.write(PATH, {"token": "t"}, None)
    with pytest.raises(StoreError, match="remove the record there"):
        await store.delete(PATH)
