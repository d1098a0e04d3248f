"""Load through kept CONNECT tunnels: N connections, TLS inside, one GET after another on each.

The proxy's leaf is verified against CA_FILE and every reply is parsed; anything but 200 counts as bad. A connection
that ends is opened again. Prints one JSON object: requests, seconds, p50_ms, p99_ms, bad, faults.

usage: python -m benchmarks.tunnel_load PROXY_PORT TARGET_PORT CA_FILE CONNECTIONS SECONDS PATH [PROXY_AUTHORIZATION]
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import time
from collections import Counter

import httptools
import uvloop

TARGET = "localhost"


class Tunnel(asyncio.Protocol):
    """One client connection: after `start`, a request is sent whenever the reply before it is complete."""

    def __init__(self, request: bytes, latencies: list[float], faults: Counter[str]) -> None:
        self.request, self.latencies, self.faults = request, latencies, faults
        self.transport: asyncio.Transport | None = None
        self.ended = asyncio.get_running_loop().create_future()
        self.running = False

    def start(self, transport: asyncio.Transport) -> None:
        self.transport, self.running = transport, True
        self.parser = httptools.HttpResponseParser(self)
        self.send()

    def send(self) -> None:
        assert self.transport
        self.sent = time.perf_counter()
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self.complete = False
        self.parser.feed_data(data)
        if self.complete and self.running:
            self.send()

    def on_message_complete(self) -> None:
        self.complete = True
        status = self.parser.get_status_code()
        if status == 200:
            self.latencies.append(time.perf_counter() - self.sent)
        else:
            self.faults[f"status {status}"] += 1

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


async def connect(proxy_port: int, target: str, authorization: str) -> asyncio.Transport:
    """Open a tunnel; raise ConnectionError when the proxy does not answer 200."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, _ = await loop.create_connection(lambda: asyncio.StreamReaderProtocol(reader), "127.0.0.1", proxy_port)
    line = f"Proxy-Authorization: {authorization}\r\n" if authorization else ""
    transport.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{line}\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    if head.split(b" ", 2)[1] != b"200":
        raise ConnectionError(head.split(b"\r\n")[0].decode("latin-1"))
    return transport


class Load:
    """All connections of one measurement, and what came of them."""

    def __init__(self, proxy_port: int, target_port: int, ca_file: str, path: str, authorization: str) -> None:
        self.proxy_port, self.authorization = proxy_port, authorization
        self.target = f"{TARGET}:{target_port}"
        self.tls = ssl.create_default_context(cafile=ca_file)
        self.request = (
            f"GET {path} HTTP/1.1\r\nHost: {self.target}\r\nAuthorization: Bearer placeholder\r\nAccept: */*\r\n\r\n"
        ).encode()
        self.latencies: list[float] = []
        self.faults: Counter[str] = Counter()

    async def keep_one(self, until: float) -> None:
        loop = asyncio.get_running_loop()
        while time.perf_counter() < until:
            try:
                plain = await connect(self.proxy_port, self.target, self.authorization)
                tunnel = Tunnel(self.request, self.latencies, self.faults)
                transport = await loop.start_tls(plain, tunnel, self.tls, server_hostname=TARGET)
            except (OSError, asyncio.IncompleteReadError) as error:
                self.faults[f"{type(error).__name__}: {error}"[:100]] += 1
                await asyncio.sleep(0.02)
                continue
            assert transport
            tunnel.start(transport)
            await asyncio.wait([tunnel.ended], timeout=until - time.perf_counter())
            if not tunnel.ended.done():
                tunnel.running = False
                transport.abort()
            elif time.perf_counter() < until:
                self.faults["tunnel ended early"] += 1

    async def run(self, connections: int, seconds: float) -> dict[str, object]:
        begun = time.perf_counter()
        await asyncio.gather(*(self.keep_one(begun + seconds) for _ in range(connections)))
        elapsed = time.perf_counter() - begun
        return {
            "requests": len(self.latencies),
            "seconds": elapsed,
            "p50_ms": 1e3 * quantile(self.latencies, 0.50),
            "p99_ms": 1e3 * quantile(self.latencies, 0.99),
            "bad": sum(self.faults.values()),
            "faults": dict(self.faults),
        }


def quantile(values: list[float], share: float) -> float:
    """The value below which `share` of the values lie; 0 when there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def main(arguments: list[str]) -> None:
    proxy_port, target_port, ca_file, connections, seconds, path = arguments[:6]
    authorization = arguments[6] if len(arguments) > 6 else ""
    load = Load(int(proxy_port), int(target_port), ca_file, path, authorization)
    print(json.dumps(uvloop.run(load.run(int(connections), float(seconds)))))


if __name__ == "__main__":
    main(sys.argv[1:])
