"""The image: what the Dockerfile promises, and that its RUN steps work in a plain directory."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
DOCKERFILE = (REPOSITORY / "Dockerfile").read_text()
SOURCES = ("proxy", "signers", "policies", "providers")


def instructions(name: str) -> list[str]:
    """The arguments of all instructions of that name, continuation lines joined."""
    joined = DOCKERFILE.replace("\\\n", " ")
    return [re.sub(r"\s+", " ", found).strip() for found in re.findall(rf"^{name} (.*)$", joined, re.MULTILINE)]


def pins(lock: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Version and hashes by package of one lock file."""
    blocks = re.split(r"(?m)^(?=[A-Za-z0-9])", (REPOSITORY / lock).read_text())
    named = [(match, block) for block in blocks if (match := re.match(r"([A-Za-z0-9._-]+)==(\S+)", block))]
    return {match[1]: (match[2], frozenset(re.findall(r"sha256:[0-9a-f]{64}", block))) for match, block in named}


def test_hadolint_has_nothing_to_say() -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    if not hadolint.exists():
        pytest.skip("hadolint is not installed")
    result = subprocess.run([str(hadolint), str(REPOSITORY / "Dockerfile")], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_image_runs_as_a_user_named_by_number() -> None:
    *_, last = instructions("USER")
    assert last == "64100:64100"
    assert instructions("FROM")[-1] == "proxy", "what is built without a target runs as the proxy's user, without nft"


def test_every_stage_starts_from_the_base_that_a_release_can_pin() -> None:
    stages = [stage.split()[0] for stage in instructions("FROM")]
    assert stages == ["${PYTHON_IMAGE}", "${PYTHON_IMAGE}", "proxy", "proxy"]
    default, *_ = instructions("ARG")
    assert re.fullmatch(r"PYTHON_IMAGE=python:3\.11-slim[a-z-]*", default)


def test_what_is_installed_from_outside_is_locked_with_hashes() -> None:
    installs = re.findall(r"pip install ([^&]*)", " ".join(instructions("RUN")))
    assert installs
    assert all("--require-hashes" in install or "--no-index" in install for install in installs)


def test_the_wheel_is_built_with_the_pins_of_the_development_lock() -> None:
    development = pins("requirements-dev.lock")
    building = pins("requirements-build.lock")
    assert "hatchling" in building
    assert {name: development.get(name) for name in building} == building


def test_the_build_context_holds_what_the_dockerfile_copies_and_no_more() -> None:
    copied = {name.removeprefix("./") for line in instructions("COPY") if "--from" not in line for name in line.split()}
    allowed = re.findall(r"^!(.+)$", (REPOSITORY / ".dockerignore").read_text(), re.MULTILINE)
    assert set(allowed) == copied - {"", "."}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_its_run_steps_work_in_a_plain_directory(tmp_path: Path) -> None:
    if not all((REPOSITORY / name).is_dir() for name in SOURCES):
        pytest.skip("the source is not complete")
    source, builder, target = tmp_path / "source", tmp_path / "wheel-builder", tmp_path / "target"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source)
    for name in SOURCES:
        shutil.copytree(REPOSITORY / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    venv.create(builder, with_pip=True)
    python = str(builder / "bin" / "python")

    def pip(*arguments: str) -> None:
        command = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
        done = subprocess.run(command, cwd=source, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    locks = {name: str(REPOSITORY / f"requirements{name}.lock") for name in ("", "-build")}
    pip("install", "--require-hashes", "--requirement", locks["-build"])
    only_wheels = ["--only-binary", ":all:", "--no-compile"]
    pip("install", "--require-hashes", *only_wheels, "--target", str(target), "--requirement", locks[""])
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path / "wheels"), ".")
    pip("install", "--no-deps", "--no-compile", "--target", str(target), *map(str, (tmp_path / "wheels").glob("*.whl")))
    shown = subprocess.run(
        [python, "-m", "proxy", "--version"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(target), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    assert shown.returncode == 0, shown.stderr
    assert "0." in shown.stdout
    listed = subprocess.run(
        [python, "-m", "proxy.sbom"], cwd=tmp_path, env={"PYTHONPATH": str(target)}, capture_output=True, text=True
    )
    components = {one["name"].lower() for one in json.loads(listed.stdout)["components"]}
    assert components >= {"python", "sluicegate", "aiohttp", "cryptography", "pydantic", "uvloop"}
    assert (target / "providers").is_dir()


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_firewall_stages_step_brings_an_nft_that_runs(tmp_path: Path) -> None:
    """With apt's state in a plain directory and nothing installed there, as if into an empty image."""
    apt = shutil.which("apt-get")
    if apt is None or shutil.which("dpkg-deb") is None:
        pytest.skip("apt-get and dpkg-deb are not here")
    update, install, _ = (step.split() for step in instructions("RUN")[-1].split(" && "))
    assert (update, install[:2]) == (["apt-get", "update"], ["apt-get", "install"])
    for folder in ("lists/partial", "cache/archives/partial", "root"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "status").touch()
    options = [
        f"Dir::State::lists={tmp_path}/lists",
        f"Dir::State::status={tmp_path}/status",
        f"Dir::Cache={tmp_path}/cache",
    ]
    options += ["Debug::NoLocking=1", "Acquire::Retries=3", "Acquire::http::Timeout=20"]
    given = [word for option in options for word in ("-o", option)]

    def ran_apt(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([apt, *given, *words], capture_output=True, text=True, timeout=100)

    if ran_apt("-o", "Acquire::Retries=1", "-o", "APT::Update::Error-Mode=any", *update[1:]).returncode:
        pytest.skip("the package archive cannot be reached")
    done = ran_apt(*install[1:], "--download-only")
    assert done.returncode == 0, done.stdout + done.stderr
    root = tmp_path / "root"
    for package in (tmp_path / "cache" / "archives").glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", str(package), str(root)], check=True)
    (loader, *_) = [path for path in root.rglob("ld-linux*.so.*") if path.is_file()]
    libraries = ":".join({str(path.parent) for path in root.rglob("*.so.*")})
    ran = subprocess.run(
        [str(loader), "--library-path", libraries, str(root / "usr/sbin/nft"), "--version"],
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("nftables v")
