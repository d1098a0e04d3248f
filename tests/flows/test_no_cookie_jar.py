"""No cookie that an upstream sets is kept and sent for another client."""

from __future__ import annotations

from tests.flows.conftest import NewFolder
from tests.flows.product import Product, absolute, rule
from tests.flows.upstreams import Upstream, answering


def test_a_cookie_set_for_one_client_is_not_sent_for_another(new_folder: NewFolder) -> None:
    """B32: at a name, since cookie jars treat addresses differently."""
    reply = b"HTTP/1.1 200 OK\r\nSet-Cookie: session=a; Path=/\r\nContent-Length: 2\r\n\r\nok"
    with (
        Upstream(answering(reply), host="localhost") as upstream,
        Product(new_folder(), [rule("up", upstream)]) as product,
    ):
        assert product.get(upstream).header("Set-Cookie") == "session=a; Path=/"
        assert product.get(upstream).status == 200
        with product.client() as client:
            assert client.ask(absolute(upstream, "/")).status == 200
            assert client.ask(absolute(upstream, "/", b"Cookie: own=1")).status == 200
        assert [request.all("Cookie") for request in upstream.requests] == [[], [], [], ["own=1"]]
