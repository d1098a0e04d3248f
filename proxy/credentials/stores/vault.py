"""Records in a Vault or OpenBao KV v2 engine, through hvac in threads of its own.

https://developer.hashicorp.com/vault/api-docs/secret/kv/kv-v2
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from proxy.credentials.paths import MAX_SEGMENTS, check_path
from proxy.credentials.store import Conflict, Fields, NotFound, Stored
from proxy.credentials.stores.vault_errors import VaultRefusal, VaultUnreachable
from proxy.credentials.stores.vault_login import Grant, Login, renew
from proxy.credentials.stores.vault_token import LoginStatus, VaultToken
from proxy.errors import StoreError
from signers.secret import Secret

if TYPE_CHECKING:
    from hvac.api.secrets_engines import KvV2

    from proxy.credentials.stores.vault_transport import VaultTransport

MAX_LISTED: Final = 100_000
T = TypeVar("T")


class VaultStore:
    """One KV v2 mount.

    addresses           tried in order after connection failures, 472, 473 and 5xx
    login               how to get a token (proxy.credentials.stores.vault_login)
    mount               path of the engine
    namespace, ca_file, client_certificate, connect_timeout, read_timeout   as VaultTransport has them; seconds
    threads             requests at once
    clock, random       monotonic seconds, and 0 to 1 for jitter
    """

    def __init__(
        self,
        addresses: Sequence[str],
        login: Login,
        *,
        mount: str = "secret",
        namespace: str | None = None,
        ca_file: Path | None = None,
        client_certificate: tuple[Path, Path] | None = None,
        connect_timeout: float = 2.0,
        read_timeout: float = 5.0,
        threads: int = 16,
        clock: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = random.random,
    ) -> None:
        self._mount = "/".join(map(check_path, mount.strip("/").split("/")))
        self._login = login
        self._connect = lambda: _transport(
            addresses, namespace, ca_file, client_certificate, connect_timeout, read_timeout, threads
        )
        self._transport: VaultTransport | None = None
        self._token = VaultToken(self._log_in, self._renew, clock, random)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="vault")
        self._upkeep: asyncio.Task[None] | None = None

    @property
    def status(self) -> LoginStatus:
        """State of the login, for readiness and the operator."""
        return self._token.status

    async def start(self) -> None:
        """Log in. Raises StoreError when that fails; logins are then tried in the background until `close`."""
        if self._transport is None:
            self._transport = await self._run(self._connect)
        try:
            await self._run(self._token.current)
        finally:
            if self._upkeep is None:
                self._upkeep = asyncio.get_running_loop().create_task(self._keep_token())

    async def read(self, path: str) -> Stored:
        return await self._run(self._read, check_path(path))

    async def write(self, path: str, fields: Fields, expected_version: int | None) -> int:
        return await self._run(self._write, check_path(path), dict(fields), expected_version)

    async def delete(self, path: str) -> None:
        await self._run(self._delete, check_path(path))

    async def list(self, prefix: str) -> list[str]:
        if prefix:
            check_path(prefix)
        return sorted(await self._run(self._list, prefix))

    async def close(self) -> None:
        if self._upkeep is not None:
            self._upkeep.cancel()
            await asyncio.wait({self._upkeep})
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._transport is not None:
            self._transport.close()

    async def _run(self, function: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    async def _keep_token(self) -> None:
        while True:
            pause = await self._run(self._token.upkeep)
            await asyncio.sleep(pause)

    def _log_in(self) -> Grant:
        return self._login(self._opened())

    def _renew(self, token: Secret) -> Grant:
        return renew(self._opened(), token)

    def _opened(self) -> VaultTransport:
        if self._transport is None:
            raise StoreError("the Vault store is not started")
        return self._transport

    def _ask(self, operation: Callable[[KvV2], T]) -> T:
        """One KV operation with the live token; after a 403 once more with a new one."""
        token = self._token.current()
        try:
            return operation(self._kv(token))
        except VaultRefusal as refusal:
            fresh = self._token.after_rejection(token) if refusal.status == 403 else None
            if fresh is None:
                raise
        answer = operation(self._kv(fresh))
        self._token.accepted()
        return answer

    def _kv(self, token: Secret) -> KvV2:
        from hvac.api.secrets_engines import KvV2

        from proxy.credentials.stores.vault_transport import VaultAdapter

        return KvV2(VaultAdapter(self._opened(), token))

    def _read(self, path: str) -> Stored:
        try:
            answer = self._ask(
                lambda kv: kv.read_secret_version(path, mount_point=self._mount, raise_on_deleted_version=True)
            )
        except VaultRefusal as refusal:
            if refusal.status != 404 or _no_mount(refusal):
                raise
            raise NotFound(path, _version(refusal.body) or 0) from None
        version, fields = _version(answer), _part(_part(answer, "data"), "data")
        if version is None or fields is None:
            raise VaultUnreachable(f"{path}: the answer is not one of a KV v2 engine; is mount {self._mount!r} one?")
        return Stored(fields, version)

    def _write(self, path: str, fields: dict[str, Any], expected: int | None) -> int:
        try:
            return self._put(path, fields, expected)
        except Conflict:
            # To Vault a deleted record still has its last version; to us there is no live one.
            deleted = self._deleted_version(path) if expected == 0 else 0
            if not deleted:
                raise
        return self._put(path, fields, deleted)

    def _put(self, path: str, fields: dict[str, Any], expected: int | None) -> int:
        try:
            answer = self._ask(
                lambda kv: kv.create_or_update_secret(path, fields, cas=expected, mount_point=self._mount)
            )
        except VaultRefusal as refusal:
            if refusal.status == 400 and refusal.says("check-and-set parameter did not match"):
                raise Conflict(path) from None
            raise
        version = (_part(answer, "data") or {}).get("version")
        if not isinstance(version, int):
            raise VaultUnreachable(f"{path}: the answer to the write holds no version")
        return version

    def _deleted_version(self, path: str) -> int:
        try:
            self._read(path)
        except NotFound as missing:
            return missing.version
        return 0

    def _delete(self, path: str) -> None:
        self._read(path)
        self._ask(lambda kv: kv.delete_latest_version_of_secret(path, mount_point=self._mount))

    def _list(self, prefix: str) -> set[str]:
        """Breadth first through the metadata tree: Vault lists one folder a request, sub-folders ending in a slash."""
        found: set[str] = set()
        folders = [prefix]
        for _ in range(MAX_SEGMENTS):
            below = [path for folder in folders for path in self._folder(folder)]
            found.update(path for path in below if not path.endswith("/"))
            folders = [path.rstrip("/") for path in below if path.endswith("/")]
            if len(found) + len(folders) > MAX_LISTED:
                raise StoreError(f"more than {MAX_LISTED} records; name a longer prefix")
        return found

    def _folder(self, folder: str) -> Sequence[str]:
        try:
            answer = self._ask(lambda kv: kv.list_secrets(folder, mount_point=self._mount))
        except VaultRefusal as refusal:
            if refusal.status != 404 or _no_mount(refusal):
                raise
            return []
        keys = (_part(answer, "data") or {}).get("keys")
        if not isinstance(keys, Sequence):
            raise VaultUnreachable(f"{folder}: the answer to the listing holds no keys")
        # Names we would refuse to read are not ours.
        return [path for path in (f"{folder}/{key}".lstrip("/") for key in keys) if _is_path(path.removesuffix("/"))]


def _transport(
    addresses: Sequence[str],
    namespace: str | None,
    ca_file: Path | None,
    client_certificate: tuple[Path, Path] | None,
    connect_timeout: float,
    read_timeout: float,
    connections: int,
) -> VaultTransport:
    # hvac and requests are loaded here, in a thread, and only where a Vault is used.
    from proxy.credentials.stores.vault_transport import TransportLimits, VaultTransport

    return VaultTransport(
        addresses,
        namespace=namespace,
        ca_file=ca_file,
        client_certificate=client_certificate,
        limits=TransportLimits(connect_timeout, read_timeout, deadline=2 * (connect_timeout + read_timeout)),
        connections=connections,
    )


def _no_mount(refusal: VaultRefusal) -> bool:
    """A 404 with an error line is no missing record: there is no engine at that mount."""
    return bool(refusal.body.get("errors"))


def _part(answer: object, name: str) -> Mapping[str, Any] | None:
    found = answer.get(name) if isinstance(answer, Mapping) else None
    return found if isinstance(found, Mapping) else None


def _version(answer: object) -> int | None:
    version = (_part(_part(answer, "data"), "metadata") or {}).get("version")
    return version if isinstance(version, int) else None


def _is_path(path: str) -> bool:
    try:
        check_path(path)
    except ValueError:
        return False
    return True
