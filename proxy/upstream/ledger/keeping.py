"""Who gets an entry in the ledger, and what an exchange does with it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from proxy.errors import GatewayError, Kind, StoreError
from proxy.upstream.ledger.entry import Entry
from proxy.upstream.ledger.rows import Reply, Scope
from proxy.upstream.ledger.storage import Ledger
from proxy.wire.reply_head import ReplyHead

if TYPE_CHECKING:
    from proxy.upstream.lifecycle import Lifecycle
    from proxy.upstream.request_half import RequestHalf

log = logging.getLogger("sluicegate.ledger")
LONGEST_KEY: Final = 255


class Keeping:
    """Makes entries. `secret` gives the key under which row ids are made; it may raise StoreError. `instance` names
    this process."""

    def __init__(self, ledger: Ledger, secret: Callable[[], bytes], instance: str) -> None:
        self._ledger = ledger
        self._read_secret = secret
        self._secret = b""
        self._instance = instance

    def entry(self, scope: Scope, key: bytes, call_id: str, chosen: tuple[bytes, ...] = ()) -> Entry:
        """The entry of a call; `chosen` are its header values that say what it does. Raises GatewayError."""
        if not self._secret:
            try:
                self._secret = self._read_secret()
            except StoreError as error:
                log.error("the ledger cannot be opened: %s", error)
                raise GatewayError("overloaded", "The ledger of idempotency keys cannot be opened.") from None
        return Entry(self._ledger, self._secret, self._instance, scope, key, call_id, chosen)


async def entered(exchange: RequestHalf, entry: Entry, body: bytes) -> None:
    """Commits that the call is about to be sent, and sends it; or answers with the reply of the same call before."""
    call = exchange.call
    earlier = await entry.begin(call.method, call.destination.origin, call.place.target, body)
    if earlier is None:
        exchange.send_again(exchange.head_bytes)
    else:
        exchange.reply_to.replay(earlier.status, earlier.headers, earlier.body)
        exchange.conclude()


def reply_of(head: ReplyHead, body: bytes, whole: bool = True) -> Reply:
    """What is stored of a reply: framing is made anew when it is replayed."""
    framing = (b"content-length", b"transfer-encoding", b"trailer")
    return Reply(head.status, [line for line in head.section.kept if line[0].lower() not in framing], body, whole)


def kind_of_end(exchange: Lifecycle) -> Kind:
    """The kind of how an exchange ended without a success; a client that left counts as unavailable."""
    if exchange.error is not None:
        return exchange.error.code.kind
    return exchange.finding.kind if exchange.finding is not None else "unavailable"
