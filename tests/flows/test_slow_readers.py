"""Memory stays bounded with many clients that do not read."""

from __future__ import annotations

from contextlib import ExitStack

from tests.flows.conftest import NewFolder
from tests.flows.product import Product, absolute, record, rule
from tests.flows.test_slow_credentials import resident
from tests.flows.upstreams import Connection, Upstream
from tests.flows.wire import Client

SECRET = "sk-live-0123456789abcdef"
READERS = 200
SIZE = 8 * 1024 * 1024
PER_CONNECTION = 512 * 1024
"""Bytes of the process that one slow reader may cost."""


def test_slow_readers_of_large_replies_cost_bounded_memory(new_folder: NewFolder) -> None:
    """C14, where replies are looked through for the secret, which costs more than passing them."""
    body = b"x" * SIZE

    def script(connection: Connection) -> None:
        connection.sock.settimeout(120)
        connection.request()
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % SIZE)
        connection.send_quietly(body)

    credential = {"name": "key", "header": "X-Api-Key"}
    records = {"key": record("api_key", "127.0.0.1", value=SECRET)}
    with Upstream(script) as upstream, ExitStack() as stack:
        routes = {"127.0.0.1": {"pool": {"connections": READERS + 50}}}
        product = stack.enter_context(
            Product(new_folder(), [rule("up", upstream, credential=credential)], records, routes=routes)
        )
        assert product.process is not None
        assert product.get(upstream).status == 200
        before = resident(product.process.pid)
        readers = []
        for _ in range(READERS):
            client = stack.enter_context(Client.to(product.proxy, timeout=60))
            client.send(absolute(upstream, "/"))
            readers.append(client)
        opened = [reader for reader in readers if reader.reply_head().status == 200]
        assert len(opened) >= READERS // 2
        grown = resident(product.process.pid) - before
        assert grown < READERS * PER_CONNECTION, f"{grown / READERS / 1024:.0f} KB a reader"
        assert [len(reader.exactly(SIZE)) for reader in opened[:3]] == [SIZE] * 3
