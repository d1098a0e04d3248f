"""Addresses that no policy can open: our own listeners, cloud metadata; and networks that a rule has to list."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.conftest import NewFolder
from tests.flows.product import LOOPBACK, Product, policy, rule
from tests.flows.upstreams import Upstream
from tests.flows.wire import Reply

METADATA = ["169.254.169.254", "169.254.170.2", "100.100.100.200", "192.0.0.192", "fd00:ec2::254"]


class Flow:
    def __init__(self, product: Product, upstream: Upstream) -> None:
        self.product = product
        self.upstream = upstream

    def fetch(self, authority: str) -> Reply:
        with self.product.client() as client:
            return client.ask(f"GET http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())


@pytest.fixture(scope="module")
def flow(folder: Path) -> Iterator[Flow]:
    with Upstream() as upstream:
        product = Product(folder)
        own = [
            {"name": f"own{number}", "host": "127.0.0.1", "port": port, "plaintext": True, "networks": LOOPBACK}
            for number, port in enumerate((product.proxy, product.base, product.ops))
        ]
        everywhere = [*LOOPBACK, "169.254.0.0/16", "100.64.0.0/10", "192.0.0.0/24", "fd00::/8"]
        metadata = [
            {"name": f"meta{number}", "host": host, "port": 80, "plaintext": True, "networks": everywhere}
            for number, host in enumerate(METADATA)
        ]
        unlisted = {"name": "unlisted", "host": "127.0.0.1", "port": upstream.port, "plaintext": True}
        elsewhere = {
            "name": "elsewhere",
            "host": "localhost",
            "port": upstream.port,
            "plaintext": True,
            "networks": ["10.0.0.0/8"],
        }
        product.documents = [policy([*own, *metadata, unlisted, elsewhere])]
        with product:
            yield Flow(product, upstream)


def test_our_own_listeners_are_refused_whatever_a_policy_says(flow: Flow) -> None:
    for port in (flow.product.proxy, flow.product.base, flow.product.ops):
        reply = flow.fetch(f"127.0.0.1:{port}")
        assert (reply.status, reply.code) == (403, "destination_refused")


def test_our_own_listeners_are_refused_through_a_tunnel(flow: Flow) -> None:
    for port in (flow.product.proxy, flow.product.base, flow.product.ops):
        with flow.product.client() as client:
            reply = client.connect(f"127.0.0.1:{port}")
            if reply.status == 200:
                reply = client.ask(b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % port)
        assert (reply.status, reply.code) == (403, "destination_refused")


@pytest.mark.parametrize("host", METADATA)
def test_metadata_addresses_are_refused_whatever_a_policy_says(flow: Flow, host: str) -> None:
    reply = flow.fetch(f"[{host}]" if ":" in host else host)
    assert (reply.status, reply.code) == (403, "destination_refused")
    assert reply.json()["retryable"] is False


def test_a_network_that_the_rule_does_not_list_is_refused(flow: Flow) -> None:
    for host in ("127.0.0.1", "localhost"):
        reply = flow.fetch(f"{host}:{flow.upstream.port}")
        assert (reply.status, reply.code) == (403, "destination_refused")
    assert flow.upstream.connections == []


def test_a_listed_network_is_reached(new_folder: NewFolder) -> None:
    with Upstream() as upstream, Product(new_folder(), [rule("up", upstream)]) as product:
        assert product.get(upstream).status == 200
