"""Fixtures of the webhook's tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def vectors() -> Path:
    path = Path(os.environ.get("SLUICEGATE_VECTORS", REPOSITORY.parent / "shared" / "vectors"))
    if not path.is_dir():
        pytest.skip("published vectors are not here")
    return path
