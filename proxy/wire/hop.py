"""What a client's connection needs of the parts around it: who takes its requests, and the call in progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from proxy.errors import GatewayError
from proxy.model import Headers, RequestHead
from proxy.wire.framing import Limits

if TYPE_CHECKING:
    from proxy.wire.server_connection import ServerConnection


class Patience(NamedTuple):
    """How long a client may keep us waiting, in seconds."""

    head: float = 4.0
    stalled_body: float = 4.0
    """Between two body bytes until 16 KB have come."""
    body: float = 60.0
    keep_alive: float = 300.0


class Buffered:
    """Bytes of request bodies that wait in memory, over all connections, and how many may."""

    __slots__ = ("most", "used")

    def __init__(self, most: int = 64 * 1024 * 1024) -> None:
        self.most = most
        self.used = 0


class Hop(Protocol):
    """The call in progress, as the client's connection sees it."""

    def client_body(self, payload: bytes) -> None: ...
    def client_body_end(self, trailers: Headers) -> None: ...
    def client_fault(self, error: GatewayError) -> None: ...
    def client_gone(self) -> None: ...
    def client_writable(self, writable: bool) -> None: ...
    def tick(self, now: float) -> None: ...


class Service(Protocol):
    """Who takes the requests: a listener, or a tunnel's inside."""

    limits: Limits
    patience: Patience
    buffered: Buffered

    def request(self, head: RequestHead, connection: ServerConnection) -> None:
        """A request is there: answer it, now or later, through the connection."""

    def refuse(self, error: GatewayError, connection: ServerConnection) -> None:
        """No request could be made of what came: answer and end the connection."""

    def opened(self, connection: ServerConnection) -> bool:
        """A connection was made; False turns it away."""

    def closed(self, connection: ServerConnection) -> None:
        """It has ended."""
