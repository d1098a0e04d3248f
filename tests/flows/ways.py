"""The ways by which a call can enter the product, so that one test can go through all of them."""

from __future__ import annotations

from dataclasses import dataclass

from tests.flows.product import Product, compose
from tests.flows.upstreams import Upstream
from tests.flows.wire import Client, Reply

PLAIN_WAYS = ("absolute-form", "base-url", "plain tunnel")
"""Ways to an upstream without TLS."""


@dataclass
class Session:
    """An open client connection and the form that targets take on it."""

    client: Client
    prefix: bytes
    host: str

    def request(self, method: str, path: str, *lines: bytes, body: bytes = b"") -> bytes:
        return compose(method, self.prefix + path.encode("latin-1"), self.host, *lines, body=body)

    def ask(self, method: str, path: str, *lines: bytes, body: bytes = b"") -> Reply:
        return self.client.ask(self.request(method, path, *lines, body=body), method)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()


def enter(product: Product, way: str, upstream: Upstream, segment: str) -> Session:
    """A session to `upstream`; `segment` is the name of the rule that allows it."""
    if way == "absolute-form":
        return Session(product.client(), upstream.url.encode(), upstream.authority)
    if way == "base-url":
        return Session(product.base_client(), b"/" + segment.encode(), f"127.0.0.1:{product.base}")
    if way == "plain tunnel":
        return Session(product.tunnel(upstream, tls=False), b"", upstream.authority)
    assert way == "tls tunnel", way
    return Session(product.tunnel(upstream), b"", upstream.authority)
