"""The `proxy` listener: absolute-form requests and CONNECT on one port."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policies.matchers import decode_path
from proxy.errors import GatewayError
from proxy.listeners.service import Service
from proxy.listeners.target import parse_absolute, parse_host
from proxy.model import Place, RequestHead
from proxy.wire.server_connection import ServerConnection

if TYPE_CHECKING:
    from proxy.listeners.connect import Connect


class ForwardListener(Service):
    """What `HTTP_PROXY` and `HTTPS_PROXY` point at."""

    kind = "proxy"
    connect: Connect
    """Takes the CONNECTs; set when the listener is wired."""

    def request(self, head: RequestHead, connection: ServerConnection) -> None:
        line, host = head.line, head.section.host
        try:
            if line.method == "CONNECT":
                self.connect.request(head, connection, self)
                return
            memo = line.memo
            if memo is None or memo[0] != host:
                memo = line.memo = (host, _place(line.target, host))
        except GatewayError as error:
            self.refuse(error, connection)
            return
        self.pipeline.begin(self.call(head, connection, memo[1]), connection, self.chain)


def _place(target: bytes, host: bytes | None) -> Place:
    if target.startswith(b"/") or target == b"*":
        raise GatewayError(
            "malformed_request",
            "This port is an HTTP proxy: it takes http:// and https:// URLs as request targets, and CONNECT.",
        )
    destination, origin_form = parse_absolute(target)
    if host is not None:
        # The target's authority is the destination, whatever Host says (RFC 9112 section 3.2.2); but a Host that
        # nobody can read is no HTTP.
        parse_host(host)
    return Place(destination, origin_form, decode_path(origin_form.partition(b"?")[0]), b"eyJ" in origin_form)
