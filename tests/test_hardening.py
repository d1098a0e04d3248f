"""What the process does to itself before it holds a secret."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.errors import ConfigurationError
from proxy.hardening import check_private, read_private, secret_variables

ROOT = Path(__file__).resolve().parents[1]


def test_a_hardened_process_is_not_dumpable_leaves_no_core_and_makes_private_files(tmp_path: Path):
    script = (
        "import os, resource; from proxy.hardening import harden, dumpable\n"
        "environment = {'PATH': '/bin', 'API_KEY': 'x'}\n"
        "harden(environment); open('made', 'w').close()\n"
        "print(dumpable(), resource.getrlimit(resource.RLIMIT_CORE), oct(os.stat('made').st_mode & 0o777), environment)"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert run.stdout.strip() == "False (0, 0) 0o600 {'PATH': '/bin'}", run.stderr


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("OPENAI_API_KEY", "x", True),
        ("AWS_SECRET_ACCESS_KEY", "x", True),
        ("GITHUB_TOKEN", "x", True),
        ("DB_PASSWORD", "x", True),
        ("PGPASSWORD", "x", True),
        ("DATABASE_URL", "postgres://user:pw@db/x", True),
        ("HTTP_PROXY", "http://proxy:3128", False),
        ("VAULT_TOKEN_FILE", "/run/token", False),
        ("SSH_AUTH_SOCK", "/run/agent", False),
        ("PWD", "/", False),
        ("KEYBOARD", "us", False),
        ("PATH", "/bin", False),
    ],
)
def test_a_variable_that_looks_secret_is_named(name: str, value: str, secret: bool):
    assert secret_variables({name: value}) == ([name] if secret else [])


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700])
def test_a_private_file_is_read(tmp_path: Path, mode: int):
    file = tmp_path / "key"
    file.write_text("x")
    file.chmod(mode)
    check_private(file)
    assert read_private(file) == b"x"


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o620, 0o602, 0o644, 0o666])
@pytest.mark.parametrize("use", [check_private, read_private])
def test_a_file_that_others_can_read_or_write_is_refused_with_the_remedy(tmp_path: Path, mode: int, use):
    file = tmp_path / "key"
    file.write_text("hunter2")
    file.chmod(mode)
    with pytest.raises(
        ConfigurationError, match=rf"can be read by others \(mode {mode:04o}\); run chmod 600"
    ) as caught:
        use(file)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("use", [check_private, read_private])
def test_a_file_that_is_no_file_is_refused(tmp_path: Path, use):
    with pytest.raises(ConfigurationError, match="No such file"):
        use(tmp_path / "none")
    with pytest.raises(ConfigurationError, match=r"must be a regular file|Is a directory"):
        use(tmp_path)


def test_a_huge_file_is_no_secret(tmp_path: Path):
    file = tmp_path / "key"
    file.touch(0o600)
    os.truncate(file, 2 * 1024 * 1024)
    with pytest.raises(ConfigurationError, match="over 1 MiB"):
        read_private(file)


def test_the_target_of_a_link_is_what_counts(tmp_path: Path):
    file = tmp_path / "key"
    file.touch()
    file.chmod(0o644)
    (tmp_path / "link").symlink_to(file)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        check_private(tmp_path / "link")
