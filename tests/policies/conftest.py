"""Policy files written by a test."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from policies.load import load
from policies.policy_set import PolicySet
from tests.policies.documents import PROVIDERS

Write = Callable[..., Path]
Load = Callable[..., PolicySet]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes one policy file, YAML text or a mapping, and returns its path."""

    def write(content: str | dict[str, Any], name: str = "policy.yaml", directory: str = "policies") -> Path:
        path = tmp_path / directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(content) if isinstance(content, str) else json.dumps(content))
        return path

    return write


@pytest.fixture
def loaded(write: Write) -> Load:
    """Loads the given documents, each from a file of its own."""

    def loaded(*documents: dict[str, Any], floor: dict[str, Any] | None = None, default: Any = "deny") -> PolicySet:
        paths = [write(document, f"{number}.yaml") for number, document in enumerate(documents)]
        floor_path = write(floor, "floor.yaml", "floor") if floor else None
        return load(paths, floor_path, PROVIDERS, default)

    return loaded
