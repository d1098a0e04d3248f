"""The `base-url` listener: `/{provider}/…`, `/{provider}@{host}/…` among the provider's hosts, and `/{rule}/…`.

For SDKs that take a base URL, and for clients that never use a proxy towards loopback.
"""

from __future__ import annotations

import ipaddress
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
    loopback = True
    """Bound to a loopback address: then only this machine's programs call, and a web page in a browser is none."""

    def request(self, head: RequestHead, connection: ServerConnection) -> None:
        line, host, snapshot = head.line, head.section.host, self.pipeline.snapshot
        if head.section.origin is not None and self.loopback and not is_local_page(head.section.origin):
            self.refuse(
                GatewayError("policy_denied", "A web page of another origin cannot call this port."), connection
            )
            return
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
            if self.loopback and not is_local(host):
                # A public name that was pointed at loopback (DNS rebinding) is how a web page would reach us.
                raise GatewayError("destination_mismatch", "The Host header does not name this port.")
        raw, target = base_url_segment(line.target)
        destination = self._destination(raw)
        return Place(
            destination or _UNPLACED,
            target,
            decode_path(target.partition(b"?")[0]),
            b"eyJ" in target,
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


def is_local(authority: bytes) -> bool:
    """Whether a Host or Origin can mean this machine: an IP literal, a name without dots, or one below .localhost."""
    try:
        name, _ = parse_host(authority)
    except GatewayError:
        return False
    if "." not in name or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_local_page(origin: bytes) -> bool:
    """Whether an Origin (RFC 6454 section 7) is a page of this machine; "null" hides where a page comes from."""
    return origin != b"null" and is_local(origin.rpartition(b"/")[2])
