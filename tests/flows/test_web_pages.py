"""The base-URL port on loopback is for programs: a web page in a browser on the same machine cannot use it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.product import Product, rule
from tests.flows.upstreams import Upstream
from tests.flows.wire import Reply


class Flow:
    def __init__(self, product: Product, upstream: Upstream) -> None:
        self.product = product
        self.upstream = upstream

    def ask(self, *lines: bytes, host: bytes | None = None) -> Reply:
        head = [b"GET /up/x HTTP/1.1", b"Host: " + (host or b"127.0.0.1:%d" % self.product.base), *lines, b"", b""]
        with self.product.base_client() as client:
            return client.ask(b"\r\n".join(head))


@pytest.fixture(scope="module")
def flow(folder: Path) -> Iterator[Flow]:
    with Upstream() as upstream, Product(folder, [rule("up", upstream)]) as product:
        yield Flow(product, upstream)


@pytest.mark.parametrize("page", [b"https://evil.example", b"http://127.0.0.1.evil.example:80", b"null", b"x y"])
def test_a_page_of_another_origin_is_denied(flow: Flow, page: bytes) -> None:
    flow.upstream.forget()
    assert flow.ask(b"Origin: " + page).status == 403
    assert flow.upstream.requests == []


@pytest.mark.parametrize("page", [b"http://localhost:3000", b"http://127.0.0.1:8080", b"http://[::1]:3000"])
def test_a_local_page_may_call(flow: Flow, page: bytes) -> None:
    assert flow.ask(b"Origin: " + page).status == 200


@pytest.mark.parametrize("host", [b"rebound.evil.example", b"127.0.0.1.evil.example:80"])
def test_a_public_name_that_leads_here_is_no_name_of_this_port(flow: Flow, host: bytes) -> None:
    flow.upstream.forget()
    reply = flow.ask(host=host)
    assert (reply.status, reply.code) == (421, "destination_mismatch")
    assert flow.upstream.requests == []


@pytest.mark.parametrize("host", [b"localhost", b"proxy:8080", b"[::1]:1", b"agents.localhost"])
def test_the_names_of_this_machine_are_accepted(flow: Flow, host: bytes) -> None:
    assert flow.ask(host=host).status == 200
