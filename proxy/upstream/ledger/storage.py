"""What a ledger can do, and how replies lie in one: sealed, so that neither file nor database shows them."""

from __future__ import annotations

import os
from typing import Final, Protocol

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from proxy.upstream.ledger.rows import Reply, Row, State

_NONCE: Final = 12


class Ledger(Protocol):
    """Rows by id, each step durable once it has returned. Raises OSError where a step cannot be taken.

    `call_id` is the fence of `settle` and `remove`: given, they touch the row only while it is still that call's, so
    that a process which comes back late changes nothing of what was decided without it.
    """

    async def enter(self, row: Row) -> Row | None:
        """Adds a pending row; where the id is taken, returns the row that holds it and changes nothing."""

    async def settle(self, id_: str, state: State, reply: Reply | None = None, call_id: str | None = None) -> bool:
        """How the call of a row ended; False when there is no such row."""

    async def remove(self, id_: str, call_id: str | None = None) -> bool:
        """The key may be used again; False when there is no such row."""

    async def erase(self, tenant: str) -> int:
        """Forgets everything of a tenant; how many rows that were."""

    async def unsettled(self) -> list[Row]:
        """The rows whose outcome is not known, and those that are or were under way; oldest first."""

    async def close(self) -> None:
        """Waits for what is being written."""


class _Stored(msgspec.Struct):
    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes
    whole: bool


class Sealer:
    """Seals replies for their rows. `key` is 32 bytes."""

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)

    def seal(self, id_: str, reply: Reply) -> bytes:
        nonce = os.urandom(_NONCE)
        return nonce + self._cipher.encrypt(nonce, msgspec.msgpack.encode(_Stored(*reply)), id_.encode())

    def open(self, id_: str, sealed: bytes) -> Reply | None:
        """None when the key file is another one: the reply is lost, that the call was done is not."""
        try:
            plain = self._cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], id_.encode())
        except InvalidTag:
            return None
        stored = msgspec.msgpack.decode(plain, type=_Stored)
        return Reply(stored.status, stored.headers, stored.body, stored.whole)
