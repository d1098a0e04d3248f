"""What an exchange needs of the parts around it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from proxy.errors import GatewayError
from proxy.model import Headers
from proxy.upstream.holding import Judging
from proxy.upstream.trouble import Trouble
from proxy.wire.client_connection import ClientConnection
from proxy.wire.pool import Addresses, PoolKey
from proxy.wire.reply_head import ReplyHead
from proxy.wire.tunnel import OpaqueRelay

if TYPE_CHECKING:
    from proxy.upstream.lifecycle import Lifecycle


class Reply(Protocol):
    """Where the reply goes: proxy/responses/delivery.py. It writes; the exchange says when the connection goes on."""

    started: bool
    status: int
    bytes_out: int
    keep: bool
    mode: str
    events: Any

    @property
    def hits(self) -> int: ...
    def mask(self, masks: Any) -> None: ...
    def restrict(self, most: int | None, drop_cookies: bool) -> None: ...
    def interim(self, head: ReplyHead) -> None: ...
    def head(self, head: ReplyHead, bodiless: bool, more: bool, extra: bytes = b"") -> None: ...
    def judged(self, judging: Any, finding: Any, extra: bytes) -> None: ...
    def untouched(self, judging: Any, more: bool, extra: bytes, finding: Any = None) -> None: ...
    def replay(self, status: int, lines: Headers, body: bytes) -> None: ...
    def body(self, payload: bytes) -> None: ...
    def end(self, trailers: Headers) -> None: ...
    def cut(self) -> None: ...
    def problem(self, error: GatewayError, *, provider: str | None = None, idempotent: bool = False) -> None: ...


Renew = Callable[["Lifecycle"], Awaitable[bytes | None]]
"""Called once on a provider's 401: the request's head with a newer credential, or None when there is none."""


class Sending(Protocol):
    """The pool, as the exchange sees it."""

    def take(
        self, key: PoolKey, addresses: Addresses, *, once: bool, fresh: bool = False
    ) -> ClientConnection | Awaitable[ClientConnection]: ...


class Means(NamedTuple):
    """What all exchanges share.

    `finished(exchange)` is called exactly once for each, with its `outcome` ("ok", "error", "denied", "canceled") set
    and, where we failed or refused the call, its `error`; `broken` takes what should not have happened; `relays` are
    the opaque relays in progress, for the sweep and for shutdown. `judge` gives what judges a reply that has to be
    held, None for one that passes at once; `resign` the head of a repeated call, signed anew.
    """

    pool: Sending
    relays: set[OpaqueRelay]
    finished: Callable[[Lifecycle], None]
    broken: Callable[[Lifecycle, Exception], None]
    judge: Callable[[Lifecycle, ReplyHead, bool], Judging | None]
    resign: Callable[[Lifecycle], Awaitable[bytes]]
    trouble: Trouble
