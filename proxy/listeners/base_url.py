"""The `base-url` listener: `/{provider}/…`, `/{provider}@{host}/…` among the provider's hosts, and `/{rule}/…`.

For SDKs that take a base URL, and for clients that never use a proxy towards loopback.
"""

from __future__ import annotations

from typing import Final

from proxy.errors import GatewayError
from proxy.listeners.service import Service
from proxy.listeners.target import base_url_segment, parse_host, split_segment
from proxy.model import Destination, RequestHead
from proxy.wire.server_connection import ServerConnection

_UNPLACED: Final = Destination("https", "", 443)


class BaseUrlListener(Service):
    """Maps the first path segment to a destination; what follows is the upstream's whole path."""

    kind = "base-url"
    scheme = b"http"

    def request(self, head: RequestHead, connection: ServerConnection) -> None:
        try:
            if head.method == "CONNECT":
                raise GatewayError("malformed_request", "This port takes base URLs; CONNECT belongs to the proxy port.")
            host = head.section.host or b""
            if host:
                parse_host(host)
            raw, target = base_url_segment(head.target)
            destination = self._destination(raw)
        except GatewayError as error:
            self.refuse(error, connection)
            return
        call = self.call(head, connection, destination or _UNPLACED, target)
        call.segment = raw
        call.rule = "" if destination else raw
        call.front = self.scheme + b"://" + host if host else b""
        self.pipeline.begin(call, connection, self.chain)

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
