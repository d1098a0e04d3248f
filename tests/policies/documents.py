"""A small catalogue and the shortest valid document, for the tests of this folder."""

from __future__ import annotations

from typing import Any

from policies.facts import ProviderFacts

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
