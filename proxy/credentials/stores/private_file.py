"""Files that hold secrets: read only when nobody else can, written whole or not at all."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from proxy.errors import StoreError

OWNER_ONLY: Final = 0o077
"""Permission bits that must be off for a file of ours."""
NOT_WORLD: Final = 0o007
"""Permission bits that must be off for a file another process may have written for our group."""
MAX_BYTES: Final = 64 * 1024 * 1024


class Signature(NamedTuple):
    """What changes when a file is replaced or rewritten."""

    modified: int
    inode: int
    size: int


def signature(path: Path) -> Signature | None:
    """The signature of the file at `path`, None when there is none. Raises StoreError when it cannot be looked at."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from None
    return Signature(found.st_mtime_ns, found.st_ino, found.st_size)


def read_private(path: Path, refused: int = OWNER_ONLY, limit: int = MAX_BYTES) -> tuple[bytes, Signature]:
    """The whole file and its signature, both of the same open file.

    `refused` is the permission bits that must be off. Raises FileNotFoundError, or StoreError when the file is not a
    regular one, is open to others, belongs to somebody else, is longer than `limit` bytes, or cannot be read.
    """
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            _check(path, found, refused, limit)
            return file.read(limit), Signature(found.st_mtime_ns, found.st_ino, found.st_size)
    except FileNotFoundError:
        raise
    except NotADirectoryError:
        raise FileNotFoundError(path) from None
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from None


def _check(path: Path, found: os.stat_result, refused: int, limit: int) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise StoreError(f"{path}: not a regular file")
    if found.st_mode & refused:
        who = "group or others" if refused == OWNER_ONLY else "everybody"
        wanted = "0600" if refused == OWNER_ONLY else "0640"
        raise StoreError(f"{path}: open to {who} (mode {stat.S_IMODE(found.st_mode):04o}); run chmod {wanted} on it")
    if found.st_uid not in (os.geteuid(), 0):
        raise StoreError(f"{path}: belongs to another user (uid {found.st_uid}); it must be ours or root's")
    if found.st_size > limit:
        raise StoreError(f"{path}: longer than {limit} bytes")


def write_private(path: Path, content: bytes) -> None:
    """Replace `path` whole, mode 0600, durable when this returns; a crash leaves the old file. Raises StoreError."""
    try:
        # mkstemp opens with O_EXCL and 0600.
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
        _sync_folder(path.parent)
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from None


def _sync_folder(folder: Path) -> None:
    """Make a rename in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
