"""Records in a directory that something else fills: a mounted Kubernetes Secret, a CSI volume, a Vault Agent's files.

The record at tenants/acme/slack is either a file of that name holding a JSON object, or a volume mounted there, one
file for each field; Kubernetes marks its volumes with a `..data` link. It is read from disk each time, so a rename, a
write in place, a swapped symbolic link and a deletion are seen by the next read. Nothing is written here.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from proxy.credentials.paths import MAX_SEGMENTS, check_path, is_name
from proxy.credentials.store import Fields, NotFound, Stored
from proxy.credentials.stores.private_file import NOT_WORLD, read_private
from proxy.errors import StoreError

MAX_RECORD: Final = 1024 * 1024
"""Bytes of one file, and the size to which Kubernetes holds a Secret."""
MAX_FIELDS: Final = 64
ATTEMPTS: Final = 3
DATA: Final = "..data"
"""Kubernetes puts a volume's files in a fresh folder and swaps this link to it, so that all change at once."""


class DirectoryStore:
    """Records below `root`. Files that everybody can read are refused: mount with `defaultMode: 0440` or less."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def start(self) -> None:
        """Check that the directory is there."""
        if not await asyncio.to_thread(self._root.is_dir):
            raise StoreError(f"{self._root}: no such directory")

    async def read(self, path: str) -> Stored:
        """The record as it is on disk now; its version is a digest of its content, so it changes but does not count."""
        return await asyncio.to_thread(self._read, check_path(path))

    async def write(self, path: str, fields: Fields, expected_version: int | None) -> int:
        raise StoreError(f"{self._root}: a directory store is filled by what mounts it and cannot be written here")

    async def delete(self, path: str) -> None:
        raise StoreError(f"{self._root}: a directory store is emptied by what mounts it; remove the record there")

    async def list(self, prefix: str) -> list[str]:
        folder = self._root / check_path(prefix) if prefix else self._root
        return sorted(await asyncio.to_thread(lambda: list(_records(folder, prefix, MAX_SEGMENTS))))

    async def close(self) -> None:
        """Nothing is held."""

    def _read(self, path: str) -> Stored:
        place = self._root / path
        for _ in range(ATTEMPTS):
            try:
                fields = _volume_record(place) if (place / DATA).exists() else _file_record(place)
            except FileNotFoundError:
                # Swapped between two of our looks: its successor is there by now, or it is gone for good.
                continue
            if not fields:
                break
            return Stored(fields, _digest(fields))
        raise NotFound(path)


def _volume_record(folder: Path) -> dict[str, Any]:
    """Every file of a volume as a field, all out of the same generation."""
    generation = Path(os.path.realpath(folder / DATA))
    names = [name for name in os.listdir(generation) if is_name(name) and (generation / name).is_file()]
    if len(names) > MAX_FIELDS:
        raise StoreError(f"{folder}: more than {MAX_FIELDS} files; this is no record")
    return {name: _field(name, _text(generation / name)) for name in sorted(names)}


def _field(name: str, text: str) -> Any:
    """A field's value: the file's text, or what it holds as JSON where a record needs more than a string."""
    if name in ("headers", "vars", "fields", "hosts") and text.lstrip()[:1] in ("{", "["):
        return _json(text, name)
    return text.strip() if name in ("kind", "disabled", "hosts", "expires_at") else text


def _file_record(file: Path) -> dict[str, Any]:
    if file.is_dir():
        return {}
    record = _json(_text(file), str(file))
    if not isinstance(record, dict):
        raise StoreError(f"{file}: must hold a JSON object of fields")
    return record


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        # The parser's text quotes what it read.
        raise StoreError(f"{where}: not JSON") from None


def _text(file: Path) -> str:
    try:
        return read_private(file, NOT_WORLD, MAX_RECORD)[0].decode()
    except UnicodeDecodeError:
        raise StoreError(f"{file}: not UTF-8 text") from None


def _digest(fields: Fields) -> int:
    content = json.dumps(fields, sort_keys=True).encode()
    return int.from_bytes(hashlib.sha256(content).digest()[:4], "big")


def _records(folder: Path, path: str, depth: int) -> Iterator[str]:
    """Paths of records in `folder`: files, and volumes mounted below it."""
    if not depth or not folder.is_dir():
        return
    for name in filter(is_name, os.listdir(folder)):
        below = f"{path}/{name}".lstrip("/")
        if (folder / name).is_dir() and not (folder / name / DATA).exists():
            yield from _records(folder / name, below, depth - 1)
        else:
            yield below
