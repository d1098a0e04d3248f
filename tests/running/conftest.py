"""Fixtures of the tests of whole commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from tests.running.stand import Stand, Upstream


@pytest.fixture(scope="session")
def roots() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def upstream(roots: trustme.CA) -> Iterator[Upstream]:
    server = Upstream(roots)
    yield server
    server.close()


@pytest.fixture
def stand(tmp_path: Path, upstream: Upstream, roots: trustme.CA) -> Stand:
    return Stand(tmp_path, upstream, roots)
