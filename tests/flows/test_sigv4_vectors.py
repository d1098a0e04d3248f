"""The published vectors through the whole proxy, its signing clock stopped at the vectors' moment."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.flows.aws_verifier import KEY_ID, SECRET, Verified
from tests.flows.conftest import NewFolder
from tests.flows.product import LOOPBACK, Product, record
from tests.flows.upstreams import OK, Connection, Upstream
from tests.signers.s3_paths import CASES, REGION, S3Request, botocores, each_case, needs_s3_paths
from tests.signers.sigv4_vectors import NAMES, Vector, needs_vectors, vector

HOST = "example.amazonaws.com"
PROGRAM = """
import socket, time, types
import proxy.upstream.resolver as resolver
import proxy.upstream.sealing as sealing
sealing.time = types.SimpleNamespace(time=lambda: 1440938160.0, monotonic=time.monotonic)
async def on_loopback(host):
    return socket.getaddrinfo("127.0.0.1", None, type=socket.SOCK_STREAM)
resolver.Resolver.__init__.__defaults__ = (on_loopback,)
from proxy.cli import main
main()
"""
OURS = {"host", "content-type", "content-md5"}


class Stopped(Product):
    program = (sys.executable, "-c", PROGRAM)


def as_parent_proxy(connection: Connection) -> None:
    """Every CONNECT ends here: the host of the vectors has port 80, which a test cannot take."""
    request = connection.request()
    connection.send(b"HTTP/1.1 200 Connected\r\n\r\n" if request.method == "CONNECT" else OK)


class Flow:
    """An instance for each set of keys that the vectors use."""

    def __init__(self, stack: ExitStack, new_folder: NewFolder) -> None:
        self.upstream = stack.enter_context(Upstream(as_parent_proxy))
        self._stack, self._new_folder = stack, new_folder
        self._products: dict[str, Product] = {}

    def product(self, given: Vector) -> Product:
        # Without normalisation is S3's way.
        service = given.context["service"] if given.context["normalize"] else "s3"
        key = json.dumps([given.context["credentials"], service])
        if key not in self._products:
            fields = {name: value for name, value in given.context["credentials"].items() if name != "token"}
            if "token" in given.context["credentials"]:
                fields["session_token"] = given.context["credentials"]["token"]
            allow = {"name": "v", "host": HOST, "plaintext": True, "networks": LOOPBACK, "credential": {"name": "keys"}}
            keys = record("aws", HOST, **fields, service=service, region=given.context["region"])
            product = Stopped(
                self._new_folder(),
                [allow],
                {"keys": keys},
                upstream={"proxy": f"http://127.0.0.1:{self.upstream.port}"},
            )
            self._products[key] = self._stack.enter_context(product)
        return self._products[key]


@pytest.fixture(scope="module")
def flow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flow]:
    with ExitStack() as stack:
        yield Flow(stack, lambda: tmp_path_factory.mktemp("p"))


def signed_names(given: Vector) -> set[str]:
    return set(given.expected("header-canonical-request").rsplit(b"\n", 2)[1].decode().split(";"))


@needs_vectors
@pytest.mark.parametrize("name", NAMES)
def test_a_vector_leaves_with_the_published_signature_where_the_same_is_signed(flow: Flow, name: str) -> None:
    given = vector(name)
    with flow.product(given).client() as client:
        lines = b"".join(b"%b: %b\r\n" % (field, b" ".join(value.split())) for field, value in given.lines)
        head = b"%b http://%b%b HTTP/1.1\r\n%b\r\n" % (given.method, HOST.encode(), given.target, lines)
        reply = client.ask(head + given.body, given.method.decode())
    if b" " in given.target or not given.target.isascii():
        assert reply.status == 400  # a request target that HTTP does not know; what is right is proven on the signer
        return
    assert reply.status == 200, reply.body
    request = flow.upstream.requests[-1]
    assert request.target == given.target
    verified = Verified(request, normalise=given.context["normalize"])
    ours = {one for one in signed_names(given) if one in OURS or one.startswith("x-amz-")}
    if signed_names(given) == ours and given.context["normalize"] and given.token_signed:
        assert verified.signature.encode() == given.expected("header-signature")


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Product, Upstream]]:
    hosts = sorted({case.host for case in CASES})
    rules = [
        {"name": f"s3-{number}", "host": host, "plaintext": True, "networks": LOOPBACK, "credential": {"name": "keys"}}
        | ({} if host.startswith("mybucket.") else {"paths": ["/mybucket"]})
        for number, host in enumerate(hosts)
    ]
    keys = record("aws", *hosts, access_key_id=KEY_ID, secret_access_key=SECRET, region=REGION)
    with Upstream(as_parent_proxy) as upstream:
        parent = {"proxy": f"http://127.0.0.1:{upstream.port}"}
        with Stopped(tmp_path_factory.mktemp("p"), rules, {"keys": keys}, upstream=parent) as product:
            yield product, upstream


@needs_s3_paths
@each_case
def test_a_path_of_s3_leaves_as_it_came_with_botocores_signature(s3: tuple[Product, Upstream], case: S3Request) -> None:
    product, upstream = s3
    with product.client() as client:
        head = f"{case.method} http://{case.host}{case.target} HTTP/1.1\r\nHost: {case.host}\r\n\r\n"
        reply = client.ask(head.encode(), case.method)
    assert reply.status == 200, reply.body
    request = upstream.requests[-1]
    assert (request.method, request.target) == (case.method, case.target.encode())
    verified = Verified(request)
    assert verified.time == "20150830T123600Z"
    assert verified.signature == botocores(case, KEY_ID, SECRET, verified.time)
