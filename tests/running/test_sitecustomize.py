"""The module that names the bundle to Python SDKs which read no variable, in an interpreter of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.running import trust_files

HOOK = Path(trust_files.__file__).with_name("sitecustomize.py")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("python", "own"):
        (tmp_path / name).mkdir()
    shutil.copy(HOOK, tmp_path / "python")
    return tmp_path


def run(folder: Path, script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-B", "-c", script], capture_output=True, text=True, timeout=30,
        env={"PYTHONPATH": f"{folder / 'python'}:{folder / 'own'}"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_the_sdk_is_told_of_the_bundle_whichever_way_it_is_imported(folder: Path) -> None:
    (folder / "own" / "stripe.py").write_text("ca_bundle_path = 'in the wheel'\n")
    for imported in ("import stripe", "from stripe import ca_bundle_path; import stripe", "import stripe, stripe"):
        assert run(folder, f"{imported}; print(stripe.ca_bundle_path)") == str(folder / "bundle.pem")


def test_nothing_is_imported_that_the_program_does_not_import(folder: Path) -> None:
    (folder / "own" / "stripe.py").write_text("raise SystemExit(3)\n")
    assert run(folder, "import sys; print('stripe' in sys.modules)") == "False"


def test_an_sdk_that_is_not_there_is_not_found_as_ever(folder: Path) -> None:
    script = "import sys\nsys.path = [entry for entry in sys.path if 'site-packages' not in entry]\n"
    script += "try:\n    import stripe\nexcept ModuleNotFoundError as error:\n    print(error.name)"
    assert run(folder, script) == "stripe"


def test_the_environments_own_sitecustomize_still_runs(folder: Path) -> None:
    (folder / "own" / "sitecustomize.py").write_text("mark = 'ours'\n")
    script = "import sys; print(sys.modules['sitecustomize'].mark, sys.modules['sitecustomize'].__file__)"
    assert run(folder, script) == f"ours {folder / 'own' / 'sitecustomize.py'}"


def test_of_two_runs_inside_each_other_the_inner_ones_bundle_counts(folder: Path) -> None:
    (folder / "own" / "stripe.py").write_text("ca_bundle_path = 'in the wheel'\n")
    outer = folder / "outer" / "python"
    outer.mkdir(parents=True)
    shutil.copy(HOOK, outer)
    shutil.copy(folder / "own" / "stripe.py", outer)
    (folder / "own").rename(folder / "unused")
    (folder / "own").symlink_to(outer)
    assert run(folder, "import stripe; print(stripe.ca_bundle_path)") == str(folder / "bundle.pem")
