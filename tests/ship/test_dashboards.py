"""Every query of both dashboards returns data from a real Prometheus that scraped the product while it served calls."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.flows.product import LOOPBACK, Product, as_yaml, eventually, free_port, policy, rule
from tests.flows.test_issued_tokens import Issuer, token
from tests.flows.upstreams import Upstream, answering

REPOSITORY = Path(__file__).resolve().parents[2]
DASHBOARDS = sorted((REPOSITORY / "helm" / "sluicegate" / "files" / "dashboards").glob("*.json"))
PROMETHEUS = shutil.which("prometheus")
Json = dict[str, Any]


class Query(NamedTuple):
    dashboard: str
    panel: str
    expression: str


def queries() -> Iterator[Query]:
    for file in DASHBOARDS:
        for panel in json.loads(file.read_text())["panels"]:
            for target in panel["targets"]:
                yield Query(file.stem, panel["title"], target["expr"])


class Prometheus:
    """Scrapes one product every 200 ms, as the pod of a namespace."""

    def __init__(self, folder: Path, ops: int) -> None:
        self.port = free_port()
        target = {"targets": [f"127.0.0.1:{ops}"], "labels": {"namespace": "team-a", "pod": "bot-1"}}
        scrape = {"job_name": "pods", "scrape_interval": "200ms", "scrape_timeout": "200ms", "static_configs": [target]}
        file = folder / "prometheus.yaml"
        file.write_text(yaml.safe_dump({"scrape_configs": [scrape]}))
        self._log = (folder / "prometheus.log").open("wb")
        self._process = subprocess.Popen(
            [str(PROMETHEUS), f"--config.file={file}", f"--storage.tsdb.path={folder / 'tsdb'}",
             f"--web.listen-address=127.0.0.1:{self.port}"],
            stdout=self._log, stderr=self._log,
        )  # fmt: skip

    def result(self, expression: str) -> list[Json]:
        query = urllib.parse.urlencode({"query": expression})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"http://127.0.0.1:{self.port}/api/v1/query?{query}", timeout=5) as reply:
                found: list[Json] = json.loads(reply.read())["data"]["result"]
                return found
        except OSError:
            return []

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(10)
        self._log.close()


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A product that has met everything the panels show: successes, every blame, denials, renewals, a reload."""
    if PROMETHEUS is None:
        pytest.skip("prometheus is not installed")
    folder = tmp_path_factory.mktemp("dashboards")
    issued = Issuer(token(1))
    with (
        Upstream() as api,
        Upstream(answering(b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n")) as failing,
        Upstream(issued) as endpoint,
    ):
        allow = [
            rule("api", api),
            rule("failing", failing),
            rule("issued", api, paths=["/issued"], credential={"name": "crm"}),
            *(rule(f"none{n}", api, paths=[f"/none{n}"], credential=_key(f"none{n}")) for n in range(2)),
        ]
        app = {
            "client_id": "c", "client_secret": "s", "token_endpoint": f"http://{endpoint.authority}/token",
            "networks": LOOPBACK,
        }  # fmt: skip
        record = {"kind": "oauth2", "app": "crm", "hosts": [api.host], "refresh_token": "r", "access_token": "a"}
        records = {"crm": {**record, "expires_at": time.time() - 5}, "apps/crm": app}
        with Product(folder, allow, records) as product:
            observer = Prometheus(folder, product.ops)
            try:
                eventually(lambda: observer.result("up == 1"), within=20)
                for round_ in range(2):
                    _load(product, api, failing, round_)
                    (folder / "policies" / "0.yaml").write_text(as_yaml(policy([*allow, rule(f"r{round_}", failing)])))
                    eventually(lambda n=round_: product.metric("sluicegate_policy_reloads_total", result="ok") > n)
                    _scraped(observer)
                yield observer
            finally:
                observer.stop()


def _key(name: str) -> Json:
    return {"name": name, "header": "X-Key"}


def _load(product: Product, api: Upstream, failing: Upstream, round_: int) -> None:
    statuses = [product.get(api, path).status for path in ("/", "/issued", f"/none{round_}", "/a", "/b")]
    assert statuses == [200, 200, 403, 200, 200]
    assert product.get(failing, "/", method="POST").status == 500
    with product.client() as client:
        assert client.ask(b"GET http://denied.example/ HTTP/1.1\r\nHost: denied.example\r\n\r\n").status == 403


def _scraped(observer: Prometheus) -> None:
    """Until what was counted so far has been scraped once more."""
    before = time.time()
    eventually(lambda: any(float(one["value"][1]) > before for one in observer.result("timestamp(up)")), within=10)


@pytest.mark.parametrize("query", list(queries()), ids=lambda query: f"{query.dashboard}, {query.panel}")
def test_a_panels_query_returns_data(query: Query, prometheus: Prometheus) -> None:
    result = prometheus.result(query.expression.replace("$namespace", ".*"))
    assert result, query.expression
    assert any(one["value"][1] != "NaN" for one in result), result


def test_the_dashboards_are_whole() -> None:
    assert [file.stem for file in DASHBOARDS] == ["credentials", "fleet"]
    for file in DASHBOARDS:
        board = json.loads(file.read_text())
        ids = [panel["id"] for panel in board["panels"]]
        assert len(set(ids)) == len(ids)
        assert all(panel["datasource"]["uid"] == "${datasource}" for panel in board["panels"])
        places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]}
        assert len(places) == len(ids)
