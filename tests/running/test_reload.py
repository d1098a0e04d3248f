"""Policies, providers, roots and credentials replaced under load: nothing dropped, nothing misjudged."""

from __future__ import annotations

import datetime
import http.client
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from tests.running.stand import CANARY, INTERCEPTED, Serving, Stand, Upstream, eventually, policy

NEW_CANARY = "sk-canary-rotated-77d0c1b2"


@pytest.fixture(scope="module")
def upstream(roots: trustme.CA) -> Iterator[Upstream]:
    server = Upstream(roots)
    yield server
    server.close()


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream, roots: trustme.CA) -> Stand:
    return Stand(tmp_path_factory.mktemp("r"), upstream, roots)


@pytest.fixture(scope="module")
def serving(stand: Stand) -> Iterator[Serving]:
    with Serving(stand) as serving:
        yield serving


def renamed(stand: Stand, document: dict[str, Any]) -> None:
    (stand.folder / "new").write_text(yaml.safe_dump(document, sort_keys=False))
    os.replace(stand.folder / "new", stand.folder / "policies" / "shop.yaml")


class Hammer:
    """Kept connections that call until the end, and what they were answered."""

    def __init__(self, serving: Serving, paths: dict[str, int]) -> None:
        self.wrong: list[tuple[str, object]] = []
        self.calls = 0
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._call, args=(serving, path, status)) for path, status in paths.items()
        ]

    def _call(self, serving: Serving, path: str, status: int) -> None:
        client = http.client.HTTPConnection(serving.base.removeprefix("http://"), timeout=10)
        while not self._over.is_set():
            try:
                client.request("GET", path)
                reply = client.getresponse()
                reply.read()
                self.calls += 1
                if reply.status != status:
                    self.wrong.append((path, reply.status))
            except OSError as error:
                self.wrong.append((path, error))
        client.close()

    def __enter__(self) -> Hammer:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


def test_no_call_is_dropped_or_misjudged_while_policies_are_swapped(serving: Serving, stand: Stand, upstream: Upstream):
    """/open is allowed and /closed denied by every version; the versions differ in the rules around them."""
    base = policy(upstream)
    deny = [{"name": "closed", "host": INTERCEPTED, "paths": ["/closed"]}]
    hashes = set()
    stand.write_policy({**base, "deny": deny})
    before = eventually(lambda: (status := serving.status())["policies"]["rules"] == 3 and status)
    with Hammer(serving, {"/shop/open": 200, "/shop/closed": 403}) as hammer:
        for number in range(3):
            extra = [{"name": f"extra-{n}", "host": f"h{n}.test"} for n in range(number + 1)]
            renamed(stand, {**base, "allow": [*base["allow"], *extra], "deny": deny})
            wanted = before["policies"]["rules"] + number + 1
            eventually(lambda wanted=wanted: serving.status()["policies"]["rules"] == wanted)
            hashes.add(serving.status()["policies"]["hash"])
    assert hammer.wrong == []
    assert hammer.calls > 20
    assert len(hashes) == 3


def test_a_bad_policy_keeps_the_last_good_set_and_is_shown(serving: Serving, stand: Stand, upstream: Upstream):
    good = serving.status()["policies"]["hash"]
    file = stand.folder / "policies" / "shop.yaml"
    kept = file.read_text()
    file.write_text(kept + "unknown: 1\n")
    failures = eventually(lambda: serving.status()["reload_failures"])
    assert "unknown" in failures["policies"]["faults"][0]
    assert serving.status()["policies"]["hash"] == good
    assert serving.get("/shop/open")[0] == 200
    assert "not taken up, the last good ones stay" in serving.diagnostics()
    status, answer = serving.control("POST", "/reload")
    assert (status, answer["error"]) == (422, "not valid")
    file.write_text(kept)
    eventually(lambda: not serving.status()["reload_failures"])


def test_a_credential_is_rotated_while_calls_go_on(serving: Serving, stand: Stand, upstream: Upstream):
    with Hammer(serving, {"/shop/open": 200}) as hammer:
        stand.store({"tenants/acme/shop": {"kind": "api_key", "value": NEW_CANARY, "hosts": [INTERCEPTED]}})
        eventually(lambda: upstream.seen[-1][2].get("x-shop-key") == NEW_CANARY)
    assert hammer.wrong == []
    assert {headers["x-shop-key"] for _, _, headers in upstream.seen if "x-shop-key" in headers} == {CANARY, NEW_CANARY}


def test_a_new_provider_and_its_policy_are_taken_up(tmp_path: Path, upstream: Upstream, roots: trustme.CA):
    stand = Stand(tmp_path, upstream, roots, providers=["./providers"])
    (stand.folder / "providers").mkdir()
    with Serving(stand) as serving:
        assert serving.get("/parcels/v1/track")[0] == 403
        _add_provider(stand, upstream)
        eventually(lambda: serving.status()["policies"]["rules"] == 3)
        assert b"credential_missing" in serving.get("/parcels/v1/track")[1]


def test_roots_replaced_on_disk_count_for_new_connections(tmp_path: Path, upstream: Upstream, roots: trustme.CA):
    stand = Stand(tmp_path, upstream, roots)
    with Serving(stand) as serving:
        assert serving.get("/shop/x")[0] == 200
        (stand.folder / "roots.pem").write_bytes(trustme.CA().cert_pem.bytes())
        eventually(lambda: serving.get("/shop/x")[0] == 502)
        (stand.folder / "roots.pem").write_text("no certificate")
        eventually(lambda: "roots" in serving.status()["reload_failures"])
        (stand.folder / "roots.pem").write_bytes(roots.cert_pem.bytes())
        eventually(lambda: serving.get("/shop/x")[0] == 200)


def _add_provider(stand: Stand, upstream: Upstream) -> None:
    provider = {
        "name": "parcels",
        "title": "Parcels",
        "verified": datetime.date(2026, 9, 30),
        "source": ["https://parcels.test/docs"],
        "hosts": ["parcels.shop.test"],
        "auth": {"bearer": {"header": "Authorization", "format": "Bearer {value}"}},
        "operations": [{"name": "track", "method": "GET", "path": "/v1/track"}],
    }
    (stand.folder / "providers" / "parcels.yaml").write_text(yaml.safe_dump(provider, sort_keys=False))
    base = policy(upstream)
    renamed(stand, {**base, "allow": [*base["allow"], {"name": "parcels", "provider": "parcels"}]})
