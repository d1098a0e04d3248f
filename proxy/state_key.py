"""Keys for what outlives a call: one file, from which each use derives a key of its own."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from proxy.errors import StoreError

KEY_BYTES: Final = 32


def derived_key(key_file: Path, use: str) -> bytes:
    """32 bytes for one `use`, from the file's 32 random bytes in base64 (HKDF, RFC 5869).

    The file is made, 0600, when there is none. Raises StoreError when it is open to others or holds something else.
    """
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=b"sluicegate state " + use.encode()).derive(_root(key_file))


def _root(key_file: Path) -> bytes:
    try:
        descriptor = os.open(key_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return _read(key_file)
    except OSError as error:
        raise StoreError(f"{key_file}: {error.strerror}") from None
    with os.fdopen(descriptor, "wb") as file:
        root = os.urandom(KEY_BYTES)
        file.write(base64.b64encode(root) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    return root


def _read(key_file: Path) -> bytes:
    try:
        with key_file.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                raise StoreError(f"{key_file}: open to group or others; run chmod 0600 on it")
            root = base64.b64decode(file.read(1024), validate=False)
    except (OSError, ValueError) as error:
        raise StoreError(f"{key_file}: cannot be read ({type(error).__name__})") from None
    if len(root) != KEY_BYTES:
        raise StoreError(f"{key_file}: must hold 32 random bytes in base64")
    return root
