"""The directory store under the running product: a mounted Secret whose `..data` link is swapped, and taken away."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.flows.conftest import NewFolder
from tests.flows.product import Product, eventually, rule
from tests.flows.upstreams import Upstream


def mount_volume(place: Path, generation: str, **fields: str) -> None:
    """What the kubelet does: files in a fresh folder, then the link is renamed over."""
    folder = place / generation
    folder.mkdir(parents=True)
    for name, text in fields.items():
        (folder / name).touch(0o600)
        (folder / name).write_text(text)
    (place / "..new").symlink_to(generation)
    os.replace(place / "..new", place / "..data")


def test_a_swapped_volume_is_used_and_a_deleted_file_revokes(new_folder: NewFolder) -> None:
    folder = new_folder()
    volume, file = folder / "secrets/tenants/acme/key", folder / "secrets/tenants/acme/other"
    mount_volume(volume, "..1", kind="api_key", value="sk-live-one-0123456\n", hosts="127.0.0.1")
    file.touch(0o600)
    file.write_text(json.dumps({"kind": "api_key", "value": "sk-live-file-012345", "hosts": ["127.0.0.2"]}))
    with Upstream() as upstream, Upstream(host="127.0.0.2") as other:
        allow = [
            rule("up", upstream, credential={"name": "key", "header": "X-Api-Key"}),
            rule("other", other, credential={"name": "other", "header": "X-Api-Key"}),
        ]
        with Product(folder, allow, store={"kind": "directory", "path": "./secrets"}) as product:
            assert product.get(upstream).status == product.get(other).status == 200
            assert upstream.requests[-1].all("X-Api-Key") == ["sk-live-one-0123456"]
            mount_volume(volume, "..2", kind="api_key", value="sk-live-two-0123456", hosts="127.0.0.1")

            def swapped() -> bool:
                assert product.get(upstream).status == 200
                return upstream.requests[-1].all("X-Api-Key") == ["sk-live-two-0123456"]

            eventually(swapped, within=10, pause=0.1)
            file.unlink()
            eventually(lambda: product.get(other).status == 403, within=10, pause=0.1)
            assert product.get(other).code == "credential_missing"
            refused = product.run("secrets", "set", "tenants/acme/x", "--kind", "bearer", stdin=b"t", check=False)
            assert refused.returncode == 1
