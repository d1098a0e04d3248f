"""A strict reader of requests (h11), independent of the parser under test."""

from __future__ import annotations

from dataclasses import dataclass, field

import h11


@dataclass
class Read:
    """One complete request."""

    method: bytes
    target: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes

    def all(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.headers if key == name.lower()]


@dataclass
class Reading:
    """Complete requests in order, and what stood after them: "nothing", "a part" of one, or "a fault"."""

    requests: list[Read] = field(default_factory=list)
    rest: str = "nothing"


def read(data: bytes) -> Reading:
    """Empty lines before a request are skipped, as RFC 9112 section 2.2 wants."""
    reading = Reading()
    while data := data.lstrip(b"\r\n"):
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 21)
        try:
            connection.receive_data(data)
            request = _one(connection)
        except h11.RemoteProtocolError:
            reading.rest = "a fault"
            return reading
        if request is None:
            reading.rest = "a part"
            return reading
        reading.requests.append(request)
        if connection.their_state is h11.MUST_CLOSE or request.method == b"CONNECT":
            return reading
        data = connection.trailing_data[0]
    return reading


def _one(connection: h11.Connection) -> Read | None:
    head = connection.next_event()
    if not isinstance(head, h11.Request):
        return None
    body = bytearray()
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            return Read(head.method, head.target, list(head.headers), bytes(body))
        else:
            return None
