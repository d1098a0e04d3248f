"""Policy files written by a test, and a small catalogue to judge them by."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from policies.facts import ProviderFacts
from policies.load import load
from policies.policy_set import PolicySet

PROVIDERS = {
    facts.name: facts
    for facts in (
        ProviderFacts(
            "slack", ("slack.com", "files.slack.com"), frozenset({"chat.postMessage", "conversations.list", "admin.x"})
        ),
        ProviderFacts("github", ("api.github.com",), frozenset({"repos.get", "repos.delete", "issues.create"})),
        ProviderFacts("shopify", ("{shop}.myshopify.com",), frozenset({"products.list"})),
    )
}


def document(name: str = "bot", **keys: Any) -> dict[str, Any]:
    """A document with everything that is required."""
    return {
        "apiVersion": "sluicegate/v1",
        "kind": "EgressPolicy",
        "metadata": {"name": name},
        "subjects": [{"agent": "*"}],
        **keys,
    }


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
