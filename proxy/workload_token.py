"""A token of this workload's own, which the platform keeps in a file and replaces there from time to time."""

from __future__ import annotations

from pathlib import Path
from typing import Final

MAX_TOKEN: Final = 16_384
"""Bytes."""


def workload_token(path: str) -> bytes:
    """The token that is in the file now: a projected service-account token, a JWT-SVID. Raises OSError where the file
    cannot be read or holds none."""
    with Path(path).open("rb") as file:
        token = file.read(MAX_TOKEN + 1).strip()
    if not 0 < len(token) <= MAX_TOKEN or not token.isascii():
        raise OSError(f"{path} holds no token")
    return token
