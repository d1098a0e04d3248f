"""The `base-url` listener: `/{provider}/…`, `/{provider}@{host}/…` among the provider's hosts, and `/{rule}/…`.

For SDKs that take a base URL, and for clients that never use a proxy towards loopback.
"""

from __future__ import annotations

from typing import Final

from policies.matchers import decode_path
from proxy.errors import GatewayError
from proxy.listeners.service import Service
from proxy.listeners.target import base_url_segment, parse_host, split_segment
from proxy.model import Destination, Place, RequestHead, RequestLine
from proxy.wire.server_connection import ServerConnection

_UNPLACED: Final = Destination("https", "", 443)


class BaseUrlListener(Service):
    """Maps the first path segment to a destination; what follows is the upstream's whole path."""

    kind = "base-url"
    scheme = b"http"

    def request(self, head: RequestHead, connection: ServerConnection) -> None:
        line, host, snapshot = head.line, head.section.host, self.pipeline.snapshot
        memo = line.memo
        if memo is None or memo[0] != (host, snapshot):
            try:
                memo = line.memo = ((host, snapshot), self._place(line, host))
            except GatewayError as error:
                self.refuse(error, connection)
                return
        self.pipeline.begin(self.call(head, connection, memo[1]), connection, self.chain)

    def _place(self, line: RequestLine, host: bytes | None) -> Place:
        if line.method == "CONNECT":
            raise GatewayError("malformed_request", "This port takes base URLs; CONNECT belongs to the proxy port.")
        if host is not None:
            parse_host(host)
        raw, target = base_url_segment(line.target)
        destination = self._destination(raw)
        return Place(
            destination or _UNPLACED,
            target,
            decode_path(target.partition(b"?")[0]),
            raw,
            "" if destination else raw,
            self.scheme + b"://" + host if host else b"",
        )

    def _destination(self, raw: str) -> Destination | None:
        """The destination of a segment that names a provider; None when it may name a rule."""
        segment = split_segment(raw)
        provider = self.pipeline.snapshot.catalog.by_name(segment.name)
        if provider is None:
            if segment.host:
                raise GatewayError("policy_denied", f"No provider is called {segment.name!r}.")
            return None
        if segment.host is not None:
            if not provider.matches(segment.host):
                raise GatewayError("policy_denied", f"{segment.host} is not a host of {provider.name}.")
            return Destination("https", segment.host, segment.port or 443)
        if not provider.first_host:
            raise GatewayError(
                "malformed_request",
                f"{provider.name} has a host for each account: begin the path with /{provider.name}@HOST/.",
            )
        return Destination("https", provider.first_host, 443)
