"""What the listeners share: connections counted, calls made, refusals answered."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import NamedTuple

from proxy.errors import GatewayError
from proxy.identity.chain import Chain
from proxy.model import Call, ListenerKind, Place, Presented, RequestHead
from proxy.pipeline import Pipeline
from proxy.wire.framing import Limits
from proxy.wire.hop import Patience
from proxy.wire.server_connection import ServerConnection


class Terms(NamedTuple):
    """What holds for every client connection."""

    limits: Limits
    patience: Patience
    connections: int
    """Client connections at once, over all listeners."""


class Connections:
    """The client connections of all listeners."""

    def __init__(self, most: int) -> None:
        self.open: set[ServerConnection] = set()
        self.draining = False
        self._most = most

    def add(self, connection: ServerConnection) -> bool:
        """False when there are too many."""
        self.open.add(connection)
        connection.draining = self.draining
        return len(self.open) <= self._most

    def remove(self, connection: ServerConnection) -> None:
        self.open.discard(connection)

    def drain(self) -> None:
        """From now on every reply is its connection's last."""
        self.draining = True
        for connection in tuple(self.open):
            connection.drain()


def presented_by(head: RequestHead, connection: ServerConnection) -> Presented:
    """What says who is calling: the request's own tokens, and the certificate of the connection it came on."""
    presented = head.section.presented
    if connection.certificate is None:
        return presented
    return presented._replace(certificate=connection.certificate)


class Service(ABC):
    """Base of the listeners and of a tunnel's inside: makes calls of requests and hands them to the pipeline."""

    kind: ListenerKind

    def __init__(self, pipeline: Pipeline, chain: Chain, terms: Terms, connections: Connections) -> None:
        self.pipeline = pipeline
        self.chain = chain
        self.terms = terms
        self.limits = terms.limits
        self.patience = terms.patience
        self.connections = connections
        self.buffered = pipeline.buffered

    def opened(self, connection: ServerConnection) -> bool:
        """Takes a connection, or tells it that there are too many; a listener that answers False drops it unheard."""
        if self.connections.add(connection):
            return True
        self.refuse(GatewayError("overloaded", "Too many client connections are open.", retry_after=1), connection)
        return True

    def closed(self, connection: ServerConnection) -> None:
        self.connections.remove(connection)

    @abstractmethod
    def request(self, head: RequestHead, connection: ServerConnection) -> None:
        """Makes a call of a request, or refuses it."""

    def refuse(self, error: GatewayError, connection: ServerConnection) -> None:
        self.pipeline.reject(error, connection, self.kind, None)

    def call(
        self,
        head: RequestHead,
        connection: ServerConnection,
        place: Place,
        presented: Presented | None = None,
    ) -> Call:
        section, line = head.section, head.line
        if presented is None:
            presented = presented_by(head, connection)
        return Call(
            self.pipeline.call_ids.next(),
            self.kind,
            line.method,
            place.destination,
            place,
            section,
            time.monotonic(),
            line.minor,
            presented,
        )
