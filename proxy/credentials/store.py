"""What every credential store offers, and what it may raise.

A store keeps records: mappings of JSON values, one for each path below its mount ("tenants/acme/slack"). It knows
nothing of what the fields mean; `proxy.credentials.record` does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from proxy.errors import SluicegateError, StoreError
from proxy.model import Caller

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True, repr=False)
class Stored:
    """One record as the store holds it. `version` grows with every write of that path."""

    fields: Fields
    version: int

    def __repr__(self) -> str:
        return f"Stored(•••, version={self.version})"


class NotFound(SluicegateError):
    """No live record at that path. `version` is the last one it had: 0 when there never was any, or none is known."""

    def __init__(self, path: str, version: int = 0) -> None:
        self.path = path
        self.version = version
        super().__init__(f"{path}: no such record")


class Conflict(StoreError):
    """A compare-and-set write found another version than the one it expected. Read again, merge, write again."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: it was changed meanwhile")


class Reader(NamedTuple):
    """Whose call a read is for. `caller` is None for what the proxy does by itself."""

    caller: Caller | None = None
    call_id: str = ""


NOBODY: Final = Reader()


class Store(Protocol):
    """Where records live. Every method may raise StoreError, whose text names what failed and holds no secret, and
    ValueError for a path that proxy.credentials.paths.check_path refuses."""

    async def start(self) -> None:
        """Ready the store: log in, or check that its files can be read. Called once, before anything else."""

    async def read(self, path: str) -> Stored:
        """The live record at `path`. Raises NotFound."""

    async def write(self, path: str, fields: Fields, expected_version: int | None) -> int:
        """Replace the record at `path` whole and return its new version.

        `expected_version` is the version it must have now, 0 when there must be no live record, None for "whatever it
        is". Raises Conflict.
        """

    async def delete(self, path: str) -> None:
        """Make `path` read as NotFound. Raises NotFound when it already does."""

    async def list(self, prefix: str) -> list[str]:
        """Paths of records below the folder `prefix` ("" for all), sorted.

        A deleted one may still be among them where only a read can tell.
        """

    async def close(self) -> None:
        """Give up sockets, threads and background work. The store is of no use afterwards."""


@runtime_checkable
class ReadsForCallers(Protocol):
    """A store that can tell its server for whose call it reads, or read with the caller's own rights."""

    async def read_for(self, path: str, reader: Reader) -> Stored:
        """As Store.read, for one call."""


@runtime_checkable
class KeepsVersions(Protocol):
    """A store in which a record that was replaced can still be read."""

    async def destroy_before(self, path: str, version: int) -> bool:
        """Make every version before `version` unreadable for ever; False where there are none to destroy.

        Raises StoreError, also when this login may not.
        """


@runtime_checkable
class AsksLeave(Protocol):
    """A store that can say what it may list."""

    async def may_list(self, prefix: str) -> bool:
        """Whether `list` would be allowed. Raises StoreError."""


Read = Callable[[str, Reader], Awaitable[Stored]]


def reading(store: Store) -> Read:
    """How records of `store` are read for a call."""
    if isinstance(store, ReadsForCallers):
        return store.read_for
    return lambda path, reader: store.read(path)
