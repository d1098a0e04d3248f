"""The webhook as a process: it checks its file, serves over TLS, takes up what is replaced, and stops."""

from __future__ import annotations

import http.client
import json
import re
import signal
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import trustme
import yaml

from proxy.cli import run
from tests.flows.product import command, environment, eventually, free_port
from tests.webhook.pods import FLOOR, Json, applied, files, named, operations_of, pod, review, write_configuration


class Serving(NamedTuple):
    folder: Path
    port: int
    ops: int
    process: subprocess.Popen[bytes]
    trust: ssl.SSLContext

    def ask(self, path: str, body: bytes) -> Json:
        connection = http.client.HTTPSConnection("localhost", self.port, context=self.trust, timeout=10)
        connection.request("POST", path, body)
        found: Json = json.loads(connection.getresponse().read())
        connection.close()
        return found


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder, authority = tmp_path_factory.mktemp("webhook"), trustme.CA()
    leaf = authority.issue_cert("localhost")
    leaf.cert_chain_pems[0].write_to_path(folder / "tls.crt")
    leaf.private_key_pem.write_to_path(folder / "tls.key")
    port, ops = free_port(), free_port()
    file = write_configuration(folder, bind=f"127.0.0.1:{port}", ops=f"127.0.0.1:{ops}")
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*command("webhook"), "--config", str(file)], stderr=log, env=environment())
    found = Serving(folder, port, ops, process, trust)
    try:
        eventually(lambda: _up(found), within=20)
        yield found
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0, (folder / "log").read_text()


def _up(serving: Serving) -> bool:
    assert serving.process.poll() is None, (serving.folder / "log").read_text()
    try:
        return bool(serving.ask("/inject", review(pod())))
    except OSError:
        return False


def test_pods_are_injected_over_tls(serving: Serving) -> None:
    injected = applied(pod(), operations_of(serving.ask("/inject", review(pod()))))
    assert files(injected)["floor/floor.yaml"] == FLOOR
    assert "SLACK_BOT_TOKEN" in named(injected["spec"]["containers"][0]["env"])


def test_reviews_and_the_certificates_end_can_be_scraped(serving: Serving) -> None:
    serving.ask("/verify", review(pod(hostNetwork=True)))
    connection = http.client.HTTPConnection("127.0.0.1", serving.ops, timeout=10)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    assert 'sluicegate_webhook_reviews_total{path="/verify",result="refused"} 1.0' in text
    (left,) = re.findall(r'sluicegate_certificate_expiry_seconds\{use="webhook"\} (\S+)', text)
    assert float(left) > 86_400


def test_a_floor_that_is_replaced_is_taken_up_and_a_bad_one_is_not(serving: Serving) -> None:
    changed = FLOOR.replace("no-deletes", "nothing-is-deleted")
    (serving.folder / "floor" / "floor.yaml").write_text(changed)

    def floor() -> str:
        return files(applied(pod(), operations_of(serving.ask("/inject", review(pod())))))["floor/floor.yaml"]

    eventually(lambda: floor() == changed)
    (serving.folder / "floor" / "floor.yaml").write_text("kind: nonsense\n")
    eventually(lambda: "not taken up" in (serving.folder / "log").read_text())
    assert floor() == changed


def test_a_certificate_that_is_replaced_is_served(serving: Serving) -> None:
    other = trustme.CA()
    leaf = other.issue_cert("localhost")
    leaf.cert_chain_pems[0].write_to_path(serving.folder / "tls.crt")
    leaf.private_key_pem.write_to_path(serving.folder / "tls.key")
    other.configure_trust(serving.trust)
    only = ssl.create_default_context()
    other.configure_trust(only)
    eventually(lambda: _up(serving._replace(trust=only)))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"profiles": {"default": {"settings": {"store": {"kind": "memory"}}}}}, "profiles.default.settings: store"),
        ({"profiles": {"default": {"placeholders": ["slakc"]}}}, "there is no provider 'slakc'"),
        ({"profiles": {"default": {"firewall": False}}}, "transparent needs firewall"),
        ({"profiles": {"default": {"run_as_user": 64100}}}, "the proxy's own user"),
        ({"profiles": {"other": {}}}, "default_profile"),
        ({"colour": "red"}, "no such setting"),
        ({"tls": {"kind": "files", "cert": "x"}}, "tls.files.key: is required"),
    ],
    ids=str,
)
def test_a_faulty_file_is_refused_by_profile_and_setting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Json, said: str
) -> None:
    file = write_configuration(tmp_path, **change)
    assert run(["webhook", "--check", "--config", str(file)]) == 1
    assert said in capsys.readouterr().err


def test_a_faulty_floor_is_refused_by_file_and_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_configuration(tmp_path)
    (tmp_path / "floor" / "bad.yaml").write_text("kind: EgressPolicy\nallow: 1\n")
    assert run(["webhook", "--check", "--config", str(file)]) == 1
    assert "floor: bad.yaml:" in capsys.readouterr().err


def test_prepare_lays_out_what_the_pod_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"identity": [{"kind": "static", "tenant": "t", "agent": "a"}], "ca": {"dir": str(tmp_path / "ca")}}
    given = {"sluicegate.yaml": yaml.safe_dump(settings), "floor/floor.yaml": FLOOR}
    monkeypatch.setenv("SLUICEGATE_FILES", json.dumps(given))
    assert run(["prepare", "--to", str(tmp_path / "config"), "--trust", str(tmp_path / "trust")]) == 0
    assert (tmp_path / "config" / "floor" / "floor.yaml").read_text() == FLOOR
    assert sorted(path.name for path in (tmp_path / "trust").iterdir()) == ["bundle.pem", "ca.pem", "truststore.p12"]
    assert (tmp_path / "ca" / "ca.key").stat().st_mode & 0o077 == 0
    assert "PRIVATE" not in (tmp_path / "trust" / "bundle.pem").read_text()


@pytest.mark.parametrize("given", ["", "[]", '{"../x": "y"}', '{"a": 1}'])
def test_prepare_writes_nothing_of_anything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], given: str
) -> None:
    monkeypatch.setenv("SLUICEGATE_FILES", given)
    assert run(["prepare", "--to", str(tmp_path / "config"), "--trust", str(tmp_path / "trust")]) == 1
    assert "SLUICEGATE_FILES" in capsys.readouterr().err
    assert not list(tmp_path.rglob("*x*"))
