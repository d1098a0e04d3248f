"""Pods that share a proxy are told apart by asking the cluster about their tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.credentials.stores.token_review import Cluster, cluster
from tests.flows.product import Product, absolute, compose, record, rule
from tests.flows.upstreams import Upstream


@pytest.fixture
def api() -> Iterator[Cluster]:
    with cluster() as made:
        yield made


def port_of(api: Cluster) -> int:
    return int(api.address.rpartition(":")[2])


def assert_the_api_is_no_destination(product: Product, api: Cluster) -> None:
    """A rule allows it, and yet: it is a service behind the proxy."""
    bearer = b"Proxy-Authorization: Bearer " + api.projected("acme", "sluicegate").encode()
    target = b"http://127.0.0.1:%d/" % port_of(api)
    with product.client() as client:
        reply = client.ask(compose("GET", target, f"127.0.0.1:{port_of(api)}", bearer))
    assert reply.code == "destination_refused"


def test_each_pods_token_gets_its_own_tenants_credential(api: Cluster, folder: Path) -> None:
    (folder / "token").write_text("the proxy's own")
    (folder / "cluster.pem").write_text(api.ca)
    identity = {
        "kind": "token_review", "issuer": "https://kubernetes.default.svc", "audience": "sluicegate",
        "address": api.address, "token_file": "./token", "ca_file": "./cluster.pem",
        "rules": [{"tenant": "{name}", "agent": "bot"}],
    }  # fmt: skip
    with Upstream() as upstream:
        allow = [
            rule("api", upstream, credential={"name": "api", "header": "X-Key"}),
            {
                "name": "cluster",
                "host": "127.0.0.1",
                "port": port_of(api),
                "networks": ["127.0.0.0/8"],
                "plaintext": True,
            },
        ]
        records = {
            f"tenants/{tenant}/api": record("api_key", upstream.host, value=f"key-of-{tenant}")
            for tenant in ("acme", "umbrella")
        }
        with Product(folder, allow, records, identity=[identity]) as product:
            for tenant in ("acme", "umbrella", "acme"):
                bearer = b"Proxy-Authorization: Bearer " + api.projected(tenant, "sluicegate").encode()
                with product.client() as client:
                    assert client.ask(absolute(upstream, "/", bearer)).status == 200
            for audience in ("vault", "https://kubernetes.default.svc"):
                bearer = b"Proxy-Authorization: Bearer " + api.projected("acme", audience).encode()
                with product.client() as client:
                    assert client.ask(absolute(upstream, "/", bearer)).status == 407
            assert_the_api_is_no_destination(product, api)
        sent = [request.all("X-Key") for request in upstream.requests]
    assert sent == [["key-of-acme"], ["key-of-umbrella"], ["key-of-acme"]]
