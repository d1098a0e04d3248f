"""The description of the tools listener is true: a tool that reads it finds no answer that it does not foretell."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.flows.product import Product, environment, free_port

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def test_generated_requests_find_no_answer_beside_the_description(tmp_path: Path) -> None:
    command = Path(sys.executable).parent / "schemathesis"
    if not command.exists():
        pytest.skip("schemathesis is not installed")
    port = free_port()
    listeners = [{"kind": "tools", "bind": f"127.0.0.1:{port}"}]
    with Product(tmp_path, [{"name": "read", "provider": "github", "methods": ["GET"]}], listeners=listeners):
        done = subprocess.run(
            [
                str(command), "run", f"http://127.0.0.1:{port}/v1/openapi.json", "--checks", CHECKS,
                "--max-examples", "15", "--phases", "examples,coverage,fuzzing", "--seed", "1", "--no-color",
            ],
            capture_output=True, text=True, timeout=120, cwd=tmp_path, env=environment(),
        )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
