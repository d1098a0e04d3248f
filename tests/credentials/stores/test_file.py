"""The file store beyond the common contract: what is on disk, who may read it, and what a crash leaves."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.credentials.store import NotFound
from proxy.credentials.stores import file as file_module
from proxy.credentials.stores.envelope import format_keys, new_key, parse_keys, seal, unseal
from proxy.credentials.stores.file import FileStore
from proxy.credentials.stores.private_file import write_private
from proxy.errors import StoreError

PATH = "tenants/acme/slack"
SECRET = "xoxb-very-secret"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "secrets.enc", tmp_path / "secrets.key"


def opened(files: tuple[Path, Path]) -> FileStore:
    return FileStore(*files)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


async def test_nothing_readable_is_on_disk_and_every_file_is_0600(files: tuple[Path, Path]) -> None:
    old_mask = os.umask(0)
    try:
        await opened(files).write(PATH, {"token": SECRET}, None)
    finally:
        os.umask(old_mask)
    folder = files[0].parent
    assert {path.name for path in folder.iterdir()} == {"secrets.enc", "secrets.key", "secrets.enc.lock"}
    assert {mode(path) for path in folder.iterdir()} == {0o600}
    envelope = files[0].read_bytes()
    assert SECRET.encode() not in envelope
    assert b"acme" not in envelope
    assert set(json.loads(envelope)) == {"v", "key_id", "nonce", "ciphertext"}
    assert len(base64.b64decode(files[1].read_bytes())) == 32


async def test_only_a_write_makes_the_key_file(files: tuple[Path, Path]) -> None:
    store = opened(files)
    await store.start()
    with pytest.raises(NotFound):
        await store.read(PATH)
    assert await store.list("") == []
    with pytest.raises(NotFound):
        await store.delete(PATH)
    assert not files[0].exists()
    assert not files[1].exists()


async def test_a_lost_key_is_named_and_never_replaced(files: tuple[Path, Path]) -> None:
    await opened(files).write(PATH, {"token": SECRET}, None)
    files[1].unlink()
    for attempt in (opened(files).start(), opened(files).write(PATH, {"token": "x"}, None)):
        with pytest.raises(StoreError, match=r"secrets\.key: the key file is missing"):
            await attempt
    assert not files[1].exists()


async def test_another_key_is_told_by_both_ids(files: tuple[Path, Path]) -> None:
    await opened(files).write(PATH, {"token": SECRET}, None)
    sealed_with = json.loads(files[0].read_bytes())["key_id"]
    other = new_key()
    files[1].write_bytes(format_keys([other]))
    with pytest.raises(StoreError, match=f"sealed with key {sealed_with}.*holds {other.id}"):
        await opened(files).start()


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("bits", [0o640, 0o604, 0o620, 0o666])
async def test_a_file_that_others_can_open_is_refused(files: tuple[Path, Path], which: int, bits: int) -> None:
    await opened(files).write(PATH, {"token": SECRET}, None)
    files[which].chmod(bits)
    with pytest.raises(StoreError, match=f"{files[which].name}: open to group or others.*chmod 0600"):
        await opened(files).start()


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"v": 2, "key_id": "a", "nonce": "", "ciphertext": ""}', b"\xff\xfe", b'{"v": 1}']
)
async def test_a_damaged_store_is_refused_by_name(files: tuple[Path, Path], content: bytes) -> None:
    await opened(files).write(PATH, {"token": SECRET}, None)
    files[0].write_bytes(content)
    with pytest.raises(StoreError, match=r"secrets\.enc"):
        await opened(files).start()


@pytest.mark.parametrize("field", ["nonce", "ciphertext"])
async def test_a_changed_byte_is_noticed(files: tuple[Path, Path], field: str) -> None:
    await opened(files).write(PATH, {"token": SECRET}, None)
    envelope = json.loads(files[0].read_bytes())
    raw = bytearray(base64.b64decode(envelope[field]))
    raw[0] ^= 1
    envelope[field] = base64.b64encode(raw).decode()
    files[0].write_text(json.dumps(envelope))
    with pytest.raises(StoreError, match="does not verify"):
        await opened(files).start()


@pytest.mark.parametrize("content", [b"", b"short", base64.b64encode(b"x" * 16), b"\xff" * 44])
async def test_a_key_file_without_a_key_is_refused_without_its_text(files: tuple[Path, Path], content: bytes) -> None:
    await opened(files).write(PATH, {"token": SECRET}, None)
    files[1].write_bytes(content)
    with pytest.raises(StoreError, match=r"secrets\.key") as caught:
        await opened(files).start()
    assert "short" not in str(caught.value)


async def test_a_running_reader_sees_what_another_process_wrote(files: tuple[Path, Path]) -> None:
    reader, writer = opened(files), opened(files)
    await writer.write(PATH, {"token": "one"}, None)
    assert (await reader.read(PATH)).fields == {"token": "one"}
    await writer.write(PATH, {"token": "two"}, None)
    assert (await reader.read(PATH)).fields == {"token": "two"}
    files[0].unlink()
    with pytest.raises(NotFound):
        await reader.read(PATH)


async def test_an_unchanged_file_is_opened_once(files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(files)
    await store.write(PATH, {"token": "one"}, None)
    opens = 0

    def counting(content: bytes, keys: object) -> bytes:
        nonlocal opens
        opens += 1
        return unseal(content, keys)  # type: ignore[arg-type]

    monkeypatch.setattr(file_module, "unseal", counting)
    for _ in range(5):
        await store.read(PATH)
    assert opens == 1


async def test_a_new_key_takes_over_and_running_readers_follow(files: tuple[Path, Path]) -> None:
    reader, writer = opened(files), opened(files)
    await writer.write(PATH, {"token": SECRET}, None)
    await reader.read(PATH)
    before = files[1].read_bytes()
    key_id = await writer.rekey()
    assert json.loads(files[0].read_bytes())["key_id"] == key_id
    assert files[1].read_bytes() != before
    assert len(parse_keys(files[1].read_bytes())) == 1
    assert (await reader.read(PATH)).fields == {"token": SECRET}
    files[1].write_bytes(before)
    with pytest.raises(StoreError):
        await opened(files).start()


@pytest.mark.parametrize("crash_at", [0, 1, 2])
async def test_a_rekey_cut_short_leaves_a_store_that_opens_and_can_be_rekeyed(
    files: tuple[Path, Path], crash_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await opened(files).write(PATH, {"token": SECRET}, None)
    calls = 0

    def crashing(path: Path, content: bytes) -> None:
        nonlocal calls
        if calls == crash_at:
            raise StoreError("crash of the test")
        calls += 1
        write_private(path, content)

    monkeypatch.setattr(file_module, "write_private", crashing)
    with pytest.raises(StoreError, match="crash of the test"):
        await opened(files).rekey()
    monkeypatch.undo()
    assert (await opened(files).read(PATH)).fields == {"token": SECRET}
    await opened(files).rekey()
    assert (await opened(files).read(PATH)).fields == {"token": SECRET}


async def test_a_write_that_fails_keeps_the_old_store_and_leaves_nothing_behind(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    await opened(files).write(PATH, {"token": "old"}, None)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left"):
        await opened(files).write(PATH, {"token": "new"}, None)
    monkeypatch.undo()
    assert (await opened(files).read(PATH)).fields == {"token": "old"}
    assert len(list(files[0].parent.iterdir())) == 3


WRITER = """
import asyncio, sys
from pathlib import Path
from proxy.credentials.stores.file import FileStore
from proxy.credentials.stores.private_file import write_private
async def main():
    store = FileStore(Path(sys.argv[1]), Path(sys.argv[2]))
    for number in range(10):
        await store.write(f"tenants/{sys.argv[3]}/c{number}", {"token": "t"}, 0)
asyncio.run(main())
"""


async def test_writers_in_several_processes_lose_nothing(files: tuple[Path, Path]) -> None:
    root = Path(__file__).parents[3]
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, *map(str, files), f"t{number}"], cwd=root)
        for number in range(3)
    ]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0, 0]
    assert len(await opened(files).list("tenants")) == 30
    assert len(parse_keys(files[1].read_bytes())) == 1


async def test_a_lock_that_is_never_let_go_is_named(files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_module, "LOCK_WAIT", 0.05)
    store = opened(files)
    with store._locked(), pytest.raises(StoreError, match="another process has held it"):
        await opened(files).write(PATH, {"token": "t"}, None)


def test_the_key_id_cannot_be_exchanged() -> None:
    one = new_key()
    envelope = json.loads(seal(b"plain", one))
    envelope["key_id"] = new_key().id
    with pytest.raises(ValueError, match="sealed with key"):
        unseal(json.dumps(envelope).encode(), [one])


def test_two_seals_of_one_text_differ_and_a_key_prints_nothing() -> None:
    key = new_key()
    assert seal(b"plain", key) != seal(b"plain", key)
    assert unseal(seal(b"plain", key), [new_key(), key]) == b"plain"
    assert base64.b64encode(key.secret).decode() not in repr(key)


async def test_a_folder_or_a_missing_folder_in_place_of_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"regular file|directory"):
        await FileStore(tmp_path, tmp_path / "key").start()
    with pytest.raises(StoreError, match="nowhere"):
        await FileStore(tmp_path / "nowhere" / "s", tmp_path / "key").write(PATH, {"token": "t"}, None)
