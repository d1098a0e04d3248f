"""Vault's two key-value engines, declared by version and never guessed: one request of each kind, synchronous.

https://developer.hashicorp.com/vault/api-docs/secret/kv/kv-v2 and …/kv-v1
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from proxy.credentials.store import Conflict, NotFound, Stored
from proxy.credentials.stores.vault_errors import VaultRefusal, VaultUnreachable

if TYPE_CHECKING:
    from proxy.credentials.stores.vault_transport import VaultAdapter

T = TypeVar("T")

MAX_VERSIONS: Final = 1000
"""Earlier versions of one record that are destroyed: many times what engines are set to keep."""


class Ask(Protocol):
    """Runs an operation with an adapter that holds a live token."""

    def __call__(self, operation: Callable[[VaultAdapter], T], /) -> T: ...


class Engine(Protocol):
    """What both engines can do at `mount` and `path`. Raises NotFound, Conflict or another StoreError."""

    def read(self, ask: Ask, mount: str, path: str) -> Stored: ...
    def write(self, ask: Ask, mount: str, path: str, fields: dict[str, Any], expected: int | None) -> int: ...
    def delete(self, ask: Ask, mount: str, path: str) -> None: ...
    def folder(self, ask: Ask, mount: str, folder: str) -> Sequence[str]: ...
    def destroy_before(self, ask: Ask, mount: str, path: str, version: int) -> bool: ...


class Kv2:
    """Version 2: versions, compare-and-set, deletion that can be undone."""

    def read(self, ask: Ask, mount: str, path: str) -> Stored:
        from hvac.api.secrets_engines import KvV2

        try:
            answer = ask(
                lambda adapter: KvV2(adapter).read_secret_version(
                    path, mount_point=mount, raise_on_deleted_version=True
                )
            )
        except VaultRefusal as refusal:
            raise _missing(refusal, path, _version(refusal.body) or 0) from None
        version, fields = _version(answer), _part(_part(answer, "data"), "data")
        if version is None or fields is None:
            raise VaultUnreachable(f"{path}: the answer is not one of a KV v2 engine; is mount {mount!r} one?")
        return Stored(fields, version)

    def write(self, ask: Ask, mount: str, path: str, fields: dict[str, Any], expected: int | None) -> int:
        try:
            return self._put(ask, mount, path, fields, expected)
        except Conflict:
            # To Vault a deleted record still has its last version; to us there is no live one.
            deleted = self._deleted_version(ask, mount, path) if expected == 0 else 0
            if not deleted:
                raise
        return self._put(ask, mount, path, fields, deleted)

    def delete(self, ask: Ask, mount: str, path: str) -> None:
        from hvac.api.secrets_engines import KvV2

        self.read(ask, mount, path)
        ask(lambda adapter: KvV2(adapter).delete_latest_version_of_secret(path, mount_point=mount))

    def destroy_before(self, ask: Ask, mount: str, path: str, version: int) -> bool:
        from hvac.api.secrets_engines import KvV2

        # Ones that are gone already are no error to Vault; it keeps max_versions of them, ten unless told otherwise.
        earlier = list(range(max(1, version - MAX_VERSIONS), version))
        if earlier:
            ask(lambda adapter: KvV2(adapter).destroy_secret_versions(path, versions=earlier, mount_point=mount))
        return bool(earlier)

    def folder(self, ask: Ask, mount: str, folder: str) -> Sequence[str]:
        from hvac.api.secrets_engines import KvV2

        return _listed(lambda: ask(lambda adapter: KvV2(adapter).list_secrets(folder, mount_point=mount)), folder)

    def _put(self, ask: Ask, mount: str, path: str, fields: dict[str, Any], expected: int | None) -> int:
        from hvac.api.secrets_engines import KvV2

        try:
            answer = ask(
                lambda adapter: KvV2(adapter).create_or_update_secret(path, fields, cas=expected, mount_point=mount)
            )
        except VaultRefusal as refusal:
            if refusal.status == 400 and refusal.says("check-and-set parameter did not match"):
                raise Conflict(path) from None
            raise
        version = (_part(answer, "data") or {}).get("version")
        if not isinstance(version, int):
            raise VaultUnreachable(f"{path}: the answer to the write holds no version")
        return version

    def _deleted_version(self, ask: Ask, mount: str, path: str) -> int:
        try:
            self.read(ask, mount, path)
        except NotFound as missing:
            return missing.version
        return 0


class Kv1:
    """Version 1: one value, no versions. A record's version is a digest of it, so it changes but does not count.

    Vault offers no compare-and-set here: `expected` is compared with a reading made just before, which narrows the gap
    between two writers and does not close it. Credentials that rotate belong into version 2.
    """

    def read(self, ask: Ask, mount: str, path: str) -> Stored:
        from hvac.api.secrets_engines import KvV1

        try:
            answer = ask(lambda adapter: KvV1(adapter).read_secret(path, mount_point=mount))
        except VaultRefusal as refusal:
            raise _missing(refusal, path, 0) from None
        fields = _part(answer, "data")
        if fields is None:
            raise VaultUnreachable(f"{path}: the answer is not one of a KV engine; is mount {mount!r} one?")
        if set(fields) == {"data", "metadata"} and _version(answer) is not None:
            raise VaultUnreachable(f"{path}: mount {mount!r} is a KV v2 engine; set kv: 2")
        return Stored(fields, digest(fields))

    def write(self, ask: Ask, mount: str, path: str, fields: dict[str, Any], expected: int | None) -> int:
        from hvac.api.secrets_engines import KvV1

        if expected is not None and self._current(ask, mount, path) != expected:
            raise Conflict(path)
        ask(lambda adapter: KvV1(adapter).create_or_update_secret(path, fields, method="POST", mount_point=mount))
        return digest(fields)

    def delete(self, ask: Ask, mount: str, path: str) -> None:
        from hvac.api.secrets_engines import KvV1

        self.read(ask, mount, path)
        ask(lambda adapter: KvV1(adapter).delete_secret(path, mount_point=mount))

    def destroy_before(self, ask: Ask, mount: str, path: str, version: int) -> bool:
        """Nothing: what was replaced is gone."""
        return False

    def folder(self, ask: Ask, mount: str, folder: str) -> Sequence[str]:
        from hvac.api.secrets_engines import KvV1

        return _listed(lambda: ask(lambda adapter: KvV1(adapter).list_secrets(folder, mount_point=mount)), folder)

    def _current(self, ask: Ask, mount: str, path: str) -> int:
        try:
            return self.read(ask, mount, path).version
        except NotFound:
            return 0


def digest(fields: Mapping[str, Any]) -> int:
    """A positive number of 32 bits that changes with the content."""
    content = json.dumps(fields, sort_keys=True).encode()
    return int.from_bytes(hashlib.sha256(content).digest()[:4], "big") or 1


def _missing(refusal: VaultRefusal, path: str, version: int) -> Exception:
    """What a refused read means. A 404 with an error line is no missing record: there is no engine at that mount."""
    if refusal.status != 404 or refusal.body.get("errors"):
        return refusal
    return NotFound(path, version)


def _listed(ask: Callable[[], object], folder: str) -> Sequence[str]:
    try:
        answer = ask()
    except VaultRefusal as refusal:
        if isinstance(_missing(refusal, folder, 0), NotFound):
            return []
        raise
    keys = (_part(answer, "data") or {}).get("keys")
    if not isinstance(keys, Sequence):
        raise VaultUnreachable(f"{folder}: the answer to the listing holds no keys")
    return [str(key) for key in keys]


def _part(answer: object, name: str) -> Mapping[str, Any] | None:
    found = answer.get(name) if isinstance(answer, Mapping) else None
    return found if isinstance(found, Mapping) else None


def _version(answer: object) -> int | None:
    version = (_part(_part(answer, "data"), "metadata") or {}).get("version")
    return version if isinstance(version, int) else None
