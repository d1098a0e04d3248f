"""Certificates are replaced while the webhook serves, and the API server never meets one it does not trust."""

from __future__ import annotations

import asyncio
import base64
import ssl
import time
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiohttp import ClientSession, TCPConnector, web

from proxy.cluster import ClusterError
from proxy.webhook.application import Webhook, application
from proxy.webhook.certificates import DUE, Keeper, Served, made
from proxy.webhook.configuration import SelfManaged
from tests.webhook.pods import Json, dummies, injection, pod, review

HOST = "sluicegate-webhook.sluicegate.svc"
WANTED = SelfManaged(
    kind="self_managed", namespace="sluicegate", service="sluicegate-webhook",
    configurations=("mutating/sluicegate", "validating/sluicegate"),
)  # fmt: skip
NAMED: Json = {"server_hostname": HOST}
DAY = 86_400.0
NOW = 1_800_000_000.0


class Cluster:
    """An API server's Secrets and webhook configurations, with its optimistic locking."""

    def __init__(self) -> None:
        self.secret: Json | None = None
        self.bundles = dict.fromkeys(("mutating", "validating"), "")
        self.version = 0
        self.asked: list[str] = []
        self.down = False

    async def request(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Json:
        if self.down:
            raise ClusterError("down")
        self.asked.append(f"{method} {path}")
        if "/secrets" in path:
            return self._secret(method, body)
        kind = "mutating" if "mutatingwebhook" in path.replace("validatingwebhook", "") else "validating"
        if method == "PATCH":
            assert content_type == "application/json-patch+json"
            self.bundles[kind] = body[0]["value"]
        return {"webhooks": [{"clientConfig": {"caBundle": self.bundles[kind]}}]}

    def _secret(self, method: str, body: Any) -> Json:
        if method == "GET":
            if self.secret is None:
                raise ClusterError("none", 404)
            return self.secret
        wrong = (
            (self.secret is not None) if method == "POST" else body["metadata"]["resourceVersion"] != str(self.version)
        )
        if wrong:
            raise ClusterError("conflict", 409)
        self.version += 1
        self.secret = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}
        return self.secret

    def trust(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=base64.b64decode(self.bundles["mutating"]).decode())
        return context


async def test_the_first_replica_makes_the_secret_and_the_others_take_it() -> None:
    cluster = Cluster()
    one, other = Served(), Served()
    await Keeper(WANTED, cluster, one).look(NOW)
    made_by_the_first = cluster.secret
    await Keeper(WANTED, cluster, other).look(NOW)
    assert cluster.secret == made_by_the_first
    assert one.usable
    assert other.usable
    assert cluster.bundles["mutating"] == cluster.bundles["validating"] != ""


async def test_a_replica_that_was_slower_takes_the_others_pair() -> None:
    cluster = Cluster()
    faster = made(HOST, None, NOW)

    class Racing(Cluster):
        async def request(self, method: str, path: str, body: Any = None, content_type: str = "") -> Json:
            if method == "POST" and cluster.secret is None:
                data = dict(zip(("tls.crt", "tls.key", "ca.crt"), faster, strict=True))
                cluster.secret = {"data": {name: base64.b64encode(value).decode() for name, value in data.items()}}
            return await cluster.request(method, path, body, content_type or "application/json")

    await Keeper(WANTED, Racing(), Served()).look(NOW)
    assert cluster.secret is not None
    assert base64.b64decode(cluster.secret["data"]["tls.crt"]) == faster.certificate


async def test_a_leaf_is_replaced_at_half_of_its_life_and_the_last_authority_stays_trusted() -> None:
    cluster, served = Cluster(), Served()
    keeper = Keeper(WANTED, cluster, served)
    await keeper.look(NOW)
    first = cluster.bundles["mutating"]
    await keeper.look(NOW + DUE - 3_700)
    assert cluster.bundles["mutating"] == first
    await keeper.look(NOW + DUE + 60)
    both = base64.b64decode(cluster.bundles["mutating"])
    assert both.count(b"BEGIN CERTIFICATE") == 2
    assert both.endswith(base64.b64decode(first))
    await keeper.look(NOW + 3 * DAY)
    assert base64.b64decode(cluster.bundles["mutating"]).count(b"BEGIN CERTIFICATE") == 2


async def test_an_api_that_is_away_changes_nothing() -> None:
    cluster, served = Cluster(), Served()
    keeper = Keeper(WANTED, cluster, served)
    await keeper.look(NOW)
    cluster.down = True
    with pytest.raises(ClusterError):
        await keeper.look(NOW + DAY)
    assert served.usable


async def test_certificates_rotate_under_load() -> None:
    """Reviews go on while a new pair is made, told and served; each handshake verifies with the bundle of its time."""
    cluster, served = Cluster(), Served()
    keeper = Keeper(WANTED, cluster, served)
    await keeper.look(time.time() - DUE - 3_600)  # so that the leaf is due now, and still valid
    runner = web.AppRunner(application(Webhook(injection(), dummies, {}), lambda *_: None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=served.context).start()
    url = f"https://127.0.0.1:{runner.addresses[0][1]}/inject"
    leaves: list[bytes] = []

    async def ask() -> None:
        connector = TCPConnector(ssl=cluster.trust())
        async with ClientSession(connector=connector) as client, client.post(url, data=review(pod()), **NAMED) as reply:
            assert reply.status == 200
        leaves.append(await peer_certificate(runner.addresses[0][1], cluster.trust()))

    try:
        for _ in range(3):  # before, while it is told, and when it is served
            asking = [asyncio.create_task(ask()) for _ in range(3)]
            await asyncio.sleep(0)
            await keeper.look(time.time())
            await asyncio.gather(*asking)
        assert len(set(leaves)) == 2
        assert leaves[0] != leaves[-1]
    finally:
        await runner.cleanup()


async def peer_certificate(port: int, trust: ssl.SSLContext) -> bytes:
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust, server_hostname=HOST)
    certificate: bytes = writer.get_extra_info("ssl_object").getpeercert(True)
    writer.close()
    return certificate


@pytest.fixture
def pairs() -> trustme.CA:
    return trustme.CA()


def test_a_pair_that_does_not_fit_leaves_the_last_one(pairs: trustme.CA, tmp_path: Path) -> None:
    served = Served()
    good, other = pairs.issue_cert(HOST), pairs.issue_cert(HOST)
    served.take(good.private_key_and_cert_chain_pem.bytes())
    with pytest.raises(ssl.SSLError):
        served.take(other.private_key_pem.bytes() + good.cert_chain_pems[0].bytes())
    assert served.usable
