"""Changes to records that the store could not take yet: encrypted, in order, and on disk before anybody relies on them.

One file a change, named by its order, sealed like the embedded store. What cannot be opened (another key, damage) is
left where it is and told.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from proxy.credentials.stores.envelope import Key, key_of, seal, unseal
from proxy.credentials.stores.private_file import read_private, write_private
from proxy.errors import StoreError

log = logging.getLogger(__name__)

SUFFIX: Final = ".sealed"
MAX_CHANGE: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, repr=False)
class Change:
    """Fields to set in the record at `path`, if the fields named in `expected` still have those values.

    `expected` is how a late change is told from a current one: a rotated refresh token replaces the very token it was
    bought with, and no other. A field that must not be there has the value None.
    """

    path: str
    fields: Mapping[str, Any]
    expected: Mapping[str, Any]

    def fits(self, current: Mapping[str, Any]) -> bool:
        """Whether the record is still the one that the change was made for."""
        return all(current.get(name) == value for name, value in self.expected.items())

    def applied(self, current: Mapping[str, Any]) -> dict[str, Any]:
        """The record with the change; what the change does not name stays. A field set to None goes away."""
        merged = {**current, **self.fields}
        return {name: value for name, value in merged.items() if value is not None or name not in self.fields}

    def __repr__(self) -> str:
        return f"Change({self.path}, {', '.join(sorted(self.fields))})"


class Spool(Protocol):
    """Keeps changes, oldest first. `durable`: they outlive the process and its machine's memory."""

    durable: bool

    def put(self, change: Change) -> None:
        """Keep `change`. Raises StoreError when that cannot be done."""

    def pending(self) -> list[tuple[str, Change]]:
        """(id, change) of what is kept."""

    def remove(self, id: str) -> None:
        """Forget one."""


class MemorySpool:
    """Changes that are lost with the process."""

    durable = False

    def __init__(self) -> None:
        self._changes: dict[str, Change] = {}
        self._count = 0

    def put(self, change: Change) -> None:
        self._count += 1
        self._changes[str(self._count)] = change

    def pending(self) -> list[tuple[str, Change]]:
        return list(self._changes.items())

    def remove(self, id: str) -> None:
        self._changes.pop(id, None)


class DiskSpool:
    """Changes in `folder`, sealed with the 32 bytes that `secret` gives when they are first needed.

    durable   whether the folder's volume outlives the machine's memory; the operator knows, the process cannot
    """

    def __init__(self, folder: Path, secret: Callable[[], bytes], *, durable: bool = True) -> None:
        self.durable = durable
        self._folder = folder
        self._secret = secret
        self._made: Key | None = None
        self._count = 0
        self._told: set[str] = set()

    def put(self, change: Change) -> None:
        """Durable when this returns. Raises StoreError when the folder cannot be written."""
        content = json.dumps({"path": change.path, "fields": change.fields, "expected": change.expected}).encode()
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{self._folder}: {error.strerror}") from None
        self._count += 1
        name = f"{time.time_ns():020d}-{os.getpid()}-{self._count:06d}{SUFFIX}"
        write_private(self._folder / name, seal(content, self._key))

    def pending(self) -> list[tuple[str, Change]]:
        try:
            names = sorted(name for name in os.listdir(self._folder) if name.endswith(SUFFIX))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreError(f"{self._folder}: {error.strerror}") from None
        found = ((name, self._opened(name)) for name in names)
        return [(name, change) for name, change in found if change is not None]

    def remove(self, id: str) -> None:
        (self._folder / id).unlink(missing_ok=True)

    @property
    def _key(self) -> Key:
        if self._made is None:
            self._made = key_of(self._secret())
        return self._made

    def _opened(self, name: str) -> Change | None:
        try:
            content = json.loads(unseal(read_private(self._folder / name, limit=MAX_CHANGE)[0], [self._key]))
            return Change(content["path"], content["fields"], content["expected"])
        except FileNotFoundError:
            return None
        except (StoreError, ValueError, KeyError, TypeError) as error:
            if name not in self._told:
                log.error("a change in the spool cannot be read and is left there: %s: %s", name, error)
                self._told.add(name)
            return None
