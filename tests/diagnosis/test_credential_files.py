"""Files that an agent of this user could read past the proxy."""

from __future__ import annotations

from pathlib import Path

from proxy.diagnosis.credential_files import readable_files


def test_files_that_are_there_are_named(tmp_path: Path):
    for name in (".aws/credentials", ".netrc", ".ssh/id_ed25519", ".ssh/id_ed25519.pub", ".config/gh/hosts.yml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / ".npmrc").mkdir()
    other = tmp_path / "token"
    other.write_text("x")
    found = readable_files({"HOME": str(tmp_path)}, (str(other), str(tmp_path / "none")))
    names = [str(path.relative_to(tmp_path)) for path in found]
    assert names == [".aws/credentials", ".config/gh/hosts.yml", ".netrc", ".ssh/id_ed25519", "token"]
