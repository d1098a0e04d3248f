"""Records in a Vault or OpenBao key-value engine."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from proxy.credentials.paths import MAX_SEGMENTS, check_path, is_app
from proxy.credentials.store import NOBODY, Fields, Reader, Stored
from proxy.credentials.stores.vault_callers import CallerLogin
from proxy.credentials.stores.vault_kv import Ask, Engine, Kv1, Kv2
from proxy.credentials.stores.vault_login import Login
from proxy.credentials.stores.vault_session import VaultServer, VaultSession
from proxy.credentials.stores.vault_token import LoginStatus
from proxy.credentials.stores.vault_wrapping import unwrap
from proxy.errors import StoreError
from signers.secret import Secret

if TYPE_CHECKING:
    from proxy.credentials.stores.vault_transport import VaultAdapter

MAX_LISTED: Final = 100_000
T = TypeVar("T")


class VaultStore:
    """One engine, or one for each tenant.

    addresses           tried in order after connection failures, 472, 473 and 5xx
    login               how to get a token (proxy.credentials.stores.vault_login); None: only callers log in
    callers             how callers log in with tokens of their own, so that Vault decides what each may read
    mount               path of the engine
    mount_segments      instead of `mount`: how many segments at the start of each path are the engine's own
    apps                where the records named apps/NAME stand, a template over {app}
    kv                  version of the engine
    namespace, ca_file, client_certificate, connect_timeout, read_timeout   as VaultServer has them; seconds
    threads, spread, clock, random   as VaultSession has them
    """

    def __init__(
        self,
        addresses: Sequence[str],
        login: Login | None,
        *,
        callers: CallerLogin | None = None,
        mount: str = "secret",
        mount_segments: int = 0,
        apps: str = "apps/{app}",
        kv: Literal[1, 2] = 2,
        namespace: str | None = None,
        ca_file: Path | None = None,
        client_certificate: tuple[Path, Path] | None = None,
        connect_timeout: float = 2.0,
        read_timeout: float = 5.0,
        threads: int = 512,
        spread: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = random.random,
    ) -> None:
        self._mount = "/".join(map(check_path, mount.strip("/").split("/")))
        self._mount_segments = mount_segments
        self._apps = apps
        self._engine: Engine = Kv1() if kv == 1 else Kv2()
        server = VaultServer(addresses, namespace, ca_file, client_certificate, connect_timeout, read_timeout)
        self.session = VaultSession(server, login, callers, threads=threads, spread=spread, clock=clock, random=random)
        """The same standing, for Vault's other engines (proxy.credentials.stores.vault_engines)."""

    @property
    def status(self) -> LoginStatus:
        """State of the login, for readiness and the operator."""
        return self.session.status

    async def start(self) -> None:
        """Log in. Raises StoreError when that fails; logins are then tried in the background until `close`."""
        await self.session.start()

    async def read(self, path: str) -> Stored:
        return await self.read_for(path, NOBODY)

    async def read_for(self, path: str, reader: Reader) -> Stored:
        """As `read`, with the call's id in Vault's own audit log, and with the caller's rights where callers log in."""
        mount, below = self._split(check_path(path))
        return await self._run(lambda ask: self._engine.read(ask, mount, below), path, reader)

    async def write(self, path: str, fields: Fields, expected_version: int | None) -> int:
        mount, below = self._split(check_path(path))
        return await self._run(lambda ask: self._engine.write(ask, mount, below, dict(fields), expected_version), path)

    async def delete(self, path: str) -> None:
        mount, below = self._split(check_path(path))
        await self._run(lambda ask: self._engine.delete(ask, mount, below), path)

    async def destroy_before(self, path: str, version: int) -> bool:
        """See proxy.credentials.store.KeepsVersions. Needs `update` on the engine's destroy/ path."""
        mount, below = self._split(check_path(path))
        return await self._run(lambda ask: self._engine.destroy_before(ask, mount, below, version), path)

    async def list(self, prefix: str) -> list[str]:
        if prefix:
            check_path(prefix)
        return sorted(await self._run(lambda ask: self._list(ask, prefix), prefix))

    async def may_list(self, prefix: str) -> bool:
        """Whether the proxy's token may list that folder of an engine of all tenants. Vault is asked, since a refusal
        would count as the end of the login. Raises StoreError."""
        mount, below = self._folder_split(prefix)
        path = f"{mount}/metadata/{below}/" if isinstance(self._engine, Kv2) else f"{mount}/{below}/"

        def capabilities(adapter: VaultAdapter) -> Any:
            return adapter.request("post", "/v1/sys/capabilities-self", json={"paths": [path]})

        answer = await self.session.run(capabilities)
        found = answer.get("data") if isinstance(answer, Mapping) else None
        return isinstance(found, Mapping) and bool({"list", "root"} & set(found.get(path) or ()))

    async def unwrap(self, wrapping: Secret) -> Fields:
        """What a response-wrapping token stands for; the token is spent. Raises StoreError."""
        return await self.session.in_thread(lambda: unwrap(self.session.transport(), wrapping))

    async def close(self) -> None:
        await self.session.close()

    async def _run(self, work: Callable[[Ask], T], path: str, reader: Reader = NOBODY) -> T:
        def asking(operation: Callable[[VaultAdapter], T]) -> T:
            return self.session.ask(operation, reader)

        return await self.session.in_thread(lambda: work(asking), path)  # type: ignore[arg-type]

    def _split(self, path: str) -> tuple[str, str]:
        """(mount, path below it)."""
        if is_app(path):
            path = self._apps.format(app=path.partition("/")[2])
        if not self._mount_segments:
            return self._mount, path
        segments = path.split("/")
        if len(segments) <= self._mount_segments:
            raise StoreError(f"{path}: begins with the engine's own path of {self._mount_segments} segments")
        return "/".join(segments[: self._mount_segments]), "/".join(segments[self._mount_segments :])

    def _list(self, ask: Ask, prefix: str) -> set[str]:
        """Breadth first through the folders: Vault lists one a request, sub-folders ending in a slash."""
        found: set[str] = set()
        folders = [prefix]
        for _ in range(MAX_SEGMENTS):
            below = [path for folder in folders for path in self._folder(ask, folder)]
            found.update(path for path in below if not path.endswith("/"))
            folders = [path.rstrip("/") for path in below if path.endswith("/")]
            if len(found) + len(folders) > MAX_LISTED:
                raise StoreError(f"more than {MAX_LISTED} records; name a longer prefix")
        return found

    def _folder(self, ask: Ask, folder: str) -> Sequence[str]:
        mount, below = self._folder_split(folder)
        keys = self._engine.folder(ask, mount, below)
        # Names we would refuse to read are not ours.
        return [path for path in (f"{folder}/{key}".lstrip("/") for key in keys) if _is_path(path.removesuffix("/"))]

    def _folder_split(self, folder: str) -> tuple[str, str]:
        if not self._mount_segments:
            return self._mount, folder
        segments = folder.split("/") if folder else []
        if len(segments) < self._mount_segments:
            raise StoreError(
                f"each tenant has an engine of its own: name the first {self._mount_segments} segments of the path"
            )
        return "/".join(segments[: self._mount_segments]), "/".join(segments[self._mount_segments :])


def _is_path(path: str) -> bool:
    try:
        check_path(path)
    except ValueError:
        return False
    return True
