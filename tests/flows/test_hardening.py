"""What another process on the machine can learn about a running instance: nothing secret."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.conftest import NewFolder
from tests.flows.product import REPOSITORY, Product, command, environment, eventually, record, rule
from tests.flows.upstreams import Upstream

SECRET = "sk-live-0123456789abcdef"


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Product]:
    with Upstream() as upstream:
        rules = [rule("up", upstream, credential={"name": "key", "header": "X-Api-Key"})]
        with Product(folder, rules, {"key": record("api_key", "127.0.0.1", value=SECRET)}) as product:
            assert product.get(upstream).status == 200
            yield product


def pid(product: Product) -> int:
    assert product.process is not None
    return product.process.pid


def test_no_secret_stands_in_arguments_or_environment(running: Product) -> None:
    process = Path(f"/proc/{pid(running)}")
    assert SECRET.encode() not in (process / "cmdline").read_bytes()
    assert SECRET.encode() not in (process / "environ").read_bytes()


def test_no_core_is_ever_written(running: Product) -> None:
    for line in Path(f"/proc/{pid(running)}/limits").read_text().splitlines():
        if line.startswith("Max core file size"):
            assert line.split()[4:6] == ["0", "0"]


WITHOUT_CAPABILITIES = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]


def test_the_process_is_not_dumpable(new_folder: NewFolder) -> None:
    """An equal user without capabilities reads the environment of an ordinary process, and not of this one."""
    prefix = WITHOUT_CAPABILITIES if os.geteuid() == 0 else []
    if prefix and not shutil.which("setpriv"):
        pytest.skip("no setpriv")
    control = subprocess.Popen([*prefix, "sleep", "30"])
    try:
        if subprocess.run([*prefix, "cat", f"/proc/{control.pid}/environ"], capture_output=True).returncode:
            pytest.skip("this machine hides every process")
    finally:
        control.kill()
        control.wait(5)
    with Upstream() as upstream:
        product = Product(new_folder(), [rule("up", upstream)])
        product.write()
        out = product.folder / "diagnostics.log"
        with out.open("wb") as log:
            product.process = subprocess.Popen(
                [*prefix, *command("serve"), "--config", str(product.config)],
                stdout=log, stderr=log, cwd=product.folder, env=environment(),
            )  # fmt: skip
        (product.folder / "out.log").touch()
        try:
            eventually(lambda: product.ops_get("/readyz")[0] == 200, within=20)
            for name in ("environ", "mem", "maps"):
                path = f"/proc/{product.process.pid}/{name}"
                assert subprocess.run([*prefix, "head", "-c1", path], capture_output=True).returncode != 0, name
        finally:
            assert product.stop() == 0


def test_files_that_hold_secrets_are_the_owners_alone(running: Product) -> None:
    for name in ("secrets.enc", "secrets.key", "audit.jsonl"):
        assert stat.S_IMODE((running.folder / name).stat().st_mode) & 0o077 == 0, name
    for path in (running.folder / "ca").iterdir():
        if "key" in path.name:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
    control = running.folder / "run" / "control.sock"
    if control.exists():
        assert stat.S_IMODE(control.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["secrets.key", "secrets.enc"])
def test_a_secret_file_that_others_can_read_is_refused(new_folder: NewFolder, name: str) -> None:
    with Upstream() as upstream:
        product = Product(new_folder(), [rule("up", upstream)], {"key": record("api_key", "127.0.0.1", value=SECRET)})
        product.write()
        (product.folder / name).chmod(0o644)
        done = subprocess.run(
            [*command("serve"), "--config", str(product.config)],
            capture_output=True, timeout=20, cwd=product.folder, env=environment(),
        )  # fmt: skip
    assert done.returncode not in (0, -9)
    assert name.encode() in done.stderr + done.stdout
    assert SECRET.encode() not in done.stderr + done.stdout
    assert b"Traceback" not in done.stderr


def test_serve_never_makes_the_store_key(new_folder: NewFolder) -> None:
    with Upstream() as upstream, Product(new_folder(), [rule("up", upstream)]) as product:
        assert not (product.folder / "secrets.key").exists()
        assert product.get(upstream).status == 200


@pytest.mark.parametrize(
    ("value", "accepted"),
    [
        ("tok-0123456789\n", True),
        ("tok-0123456789\r\n", True),
        ("tok\x00-0123456789", False),
        ("tok-\r\nX: y", False),
        ("tök-0123456789", False),
        ("", False),
        (" tok-0123456789", False),
    ],
)
def test_a_value_that_no_header_can_hold_is_refused_by_its_records_name(
    new_folder: NewFolder, value: str, accepted: bool
) -> None:
    """B11: one trailing line ending is trimmed; anything else illegal fails at load, without the value."""
    with Upstream() as upstream:
        product = Product(new_folder(), [rule("up", upstream, credential={"name": "key", "header": "X-Api-Key"})])
        product.write()
        body = json.dumps({"tenants/acme/key": record("api_key", "127.0.0.1", value=value)}).encode()
        done = product.run("secrets", "import", "-", stdin=body, check=False)
        if done.returncode == 0:
            product.start()
            try:
                reply = product.get(upstream)
            finally:
                product.stop()
            if accepted:
                assert reply.status == 200
                assert upstream.requests[0].all("X-Api-Key") == ["tok-0123456789"]
            else:
                assert reply.status in (403, 503)
                assert upstream.received == b""
        else:
            assert not accepted, done.stderr
            assert b"tenants/acme/key" in done.stdout + done.stderr
            assert b"Traceback" not in done.stderr
        assert len(value) < 4 or value.encode() not in done.stdout + done.stderr


def test_the_command_runs_from_any_folder() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "proxy", "--help"], capture_output=True, timeout=20, cwd=REPOSITORY, env=environment()
    )
    assert done.returncode == 0
    assert b"serve" in done.stdout
