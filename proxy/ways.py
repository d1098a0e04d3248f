"""How calls go out: to which addresses, with which timeouts and repeats, showing which certificate."""

from __future__ import annotations

from functools import partial
from typing import Protocol

from policies.decide import Allowed
from proxy.catalog import Provider
from proxy.model import Destination, Material
from proxy.routing import REMEMBERED
from proxy.upstream.resolver import Resolver as AddressResolver
from proxy.upstream.retry import RetryPolicy
from proxy.upstream.tls_identity import TlsWays
from proxy.upstream.way import Timeouts, Way
from proxy.wire.pool import PoolKey


class RouteOptions(Protocol):
    """Operational choices by provider or host (`routes:` of the configuration)."""

    def timeouts(self, provider: str, host: str) -> Timeouts: ...
    def retries(self, provider: str, host: str) -> RetryPolicy: ...


class Ways:
    """The way out of each destination and rule; remembered, since it depends on files alone."""

    def __init__(self, addresses: AddressResolver, routes: RouteOptions) -> None:
        self._addresses = addresses
        self._routes = routes
        self._tls = TlsWays()
        self._known: dict[tuple[Destination, int], tuple[Allowed, Way]] = {}

    def of(self, destination: Destination, provider: Provider | None, allowed: Allowed) -> Way:
        """How calls allowed like this one go out."""
        key = (destination, id(allowed))
        known = self._known.get(key)
        if known is not None and known[0] is allowed:
            return known[1]
        name = provider.name if provider is not None else ""
        way = Way(
            PoolKey(destination, ""),
            partial(self._addresses.resolve, destination.host, destination.port, allowed.networks),
            self._routes.timeouts(name, destination.host),
            name,
            provider.pins if provider is not None else (),
            self._routes.retries(name, destination.host),
            allowed.token_endpoint or (provider is not None and provider.watched),
        )
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        self._known[key] = (allowed, way)
        return way

    def identified(self, way: Way, allowed: Allowed, material: Material | None) -> Way:
        """The way with what the rule wants of the host and the certificate that we show it, if either is there."""
        certificate = material.certificate if material is not None else None
        if certificate is None and allowed.tls is None:
            return way
        return self._tls.way(way, allowed.tls, certificate)
