"""The files a command's clients trust, in a private folder that goes when the command has ended."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from proxy.errors import ConfigurationError, Fault
from proxy.listeners.trust import combined_bundle, pkcs12_truststore, system_roots
from proxy.running.environment import TrustFiles

_HOOK: Final = Path(__file__).with_name("sitecustomize.py")


@contextmanager
def trust_files(authority_pem: str, extra_roots: Path | None) -> Iterator[TrustFiles]:
    """Writes the bundle and its other forms. Raises ConfigurationError when the roots cannot be read."""
    folder = Path(tempfile.mkdtemp(prefix="sluicegate-run-"))  # 0700
    try:
        added = combined_bundle(authority_pem, _read(extra_roots))
        bundle = combined_bundle(added, system_roots())
        files = TrustFiles(folder / "ca.pem", folder / "bundle.pem", folder / "truststore.p12", folder / "python")
        _write(files.authority, added.encode())
        _write(files.bundle, bundle.encode())
        _write(files.java, pkcs12_truststore(bundle))
        files.python.mkdir(mode=0o700)
        _write(files.python / _HOOK.name, _HOOK.read_bytes())
        yield files
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _read(roots: Path | None) -> str:
    if roots is None:
        return ""
    try:
        return roots.read_text()
    except (OSError, UnicodeDecodeError):
        raise ConfigurationError([Fault(str(roots), 0, "cannot be read as PEM certificates")]) from None


def _write(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
