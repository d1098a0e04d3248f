"""The `proxy` listener: absolute-form requests and CONNECT on one port."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.errors import GatewayError
from proxy.listeners.service import Service
from proxy.listeners.target import parse_absolute, parse_host
from proxy.model import RequestHead
from proxy.wire.server_connection import ServerConnection

if TYPE_CHECKING:
    from proxy.listeners.connect import Connect


class ForwardListener(Service):
    """What `HTTP_PROXY` and `HTTPS_PROXY` point at."""

    kind = "proxy"
    connect: Connect
    """Takes the CONNECTs; set when the listener is wired."""

    def request(self, head: RequestHead, connection: ServerConnection) -> None:
        try:
            if head.method == "CONNECT":
                self.connect.request(head, connection, self)
                return
            if head.target.startswith(b"/") or head.target == b"*":
                raise GatewayError(
                    "malformed_request",
                    "This port is an HTTP proxy: it takes http:// and https:// URLs as request targets, and CONNECT.",
                )
            destination, target = parse_absolute(head.target)
            if head.section.host is not None:
                # The target's authority is the destination, whatever Host says (RFC 9112 section 3.2.2); but a Host
                # that nobody can read is no HTTP.
                parse_host(head.section.host)
            call = self.call(head, connection, destination, target)
        except GatewayError as error:
            self.refuse(error, connection)
            return
        self.pipeline.begin(call, connection, self.chain)
