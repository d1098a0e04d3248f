"""The `base-url` listener: `/{provider}/…`, `/{provider}@{host}/…` among the provider's hosts, and `/{rule}/…`.

For SDKs that take a base URL, and for clients that never use a proxy towards loopback.
"""

from __future__ import annotations

import time

import msgspec

from proxy.errors import GatewayError
from proxy.listeners.service import Service
from proxy.listeners.target import base_url_segment, parse_host, split_segment
from proxy.model import Caller, Destination, RequestHead
from proxy.wire.server_connection import ServerConnection


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
            destination = self._destination(raw, head)
        except GatewayError as error:
            self.refuse(error, connection)
            return
        call = self.call(head, destination, target)
        call = msgspec.structs.replace(call, segment=raw, front=self.scheme + b"://" + host if host else b"")
        self.pipeline.begin(call, connection, self.chain)

    def _destination(self, raw: str, head: RequestHead) -> Destination:
        segment = split_segment(raw)
        snapshot = self.pipeline.snapshot
        provider = snapshot.catalog.by_name(segment.name)
        if provider is None:
            found = None if segment.host else self._rule_destination(segment.name, head)
            if found is None:
                raise GatewayError(
                    "policy_denied",
                    f"No provider and no rule for this agent is called {segment.name!r}.",
                )
            return found
        if segment.host is not None:
            if not provider.matches(segment.host):
                raise GatewayError("policy_denied", f"{segment.host} is not a host of {provider.name}.")
            return Destination("https", segment.host, segment.port or 443)
        if len(provider.exact_hosts) == 1:
            return Destination("https", next(iter(provider.exact_hosts)), 443)
        first = next((host for host in provider.hosts if host in provider.exact_hosts), None)
        if first is None:
            raise GatewayError(
                "malformed_request",
                f"{provider.name} has a host for each account: begin the path with /{provider.name}@HOST/.",
            )
        return Destination("https", first, 443)

    def _rule_destination(self, name: str, head: RequestHead) -> Destination | None:
        """A rule's own host. Rules are looked up for the caller; a caller that has to be waited for is known by the
        time of its next call, and the pipeline decides again in any case."""
        caller = self.chain.identify(head.section.presented, time.time())
        if not isinstance(caller, Caller):
            raise GatewayError("identity_invalid", "The caller's token is still being verified: repeat the call.")
        found = self.pipeline.snapshot.policies.base_url(caller.tenant, caller.agent, caller.actor, name)
        return Destination(*found) if found is not None else None
