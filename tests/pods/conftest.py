"""Fixtures of the tests in network namespaces."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pods.namespaces import PROXY, Folders, Network, skip_where_not_permitted


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    skip_where_not_permitted()
    with Network() as network:
        yield network


@pytest.fixture(scope="module")
def folders() -> Iterator[Folders]:
    made: list[Path] = []

    def make() -> Path:
        folder = Path(tempfile.mkdtemp(prefix="sluicegate-pod-"))
        shutil.chown(folder, PROXY, PROXY)
        folder.chmod(0o755)
        made.append(folder)
        return folder

    yield make
    for folder in made:
        shutil.rmtree(folder)
