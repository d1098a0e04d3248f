"""A small catalogue and the shortest valid document, for the tests of this folder."""

from __future__ import annotations

from typing import Any

from policies.cases import CaseCall, Classified
from policies.facts import ProviderFacts
from policies.rules import Endpoint

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

SHIPPED = {
    facts.name: facts
    for facts in (
        ProviderFacts(
            "slack",
            ("slack.com",),
            frozenset({"chat.postMessage", "chat.update", "chat.delete", "conversations.list", "auth.test"}),
        ),
        ProviderFacts(
            "github",
            ("api.github.com",),
            frozenset({"repos.get", "repos.delete", "issues.create", "issues.createComment"}),
        ),
        ProviderFacts(
            "openai",
            ("api.openai.com",),
            frozenset(
                {"chat.completions.create", "responses.create", "embeddings.create", "models.list", "models.delete"}
            ),
        ),
        ProviderFacts(
            "anthropic", ("api.anthropic.com",), frozenset({"messages.create", "messages.count_tokens", "models.list"})
        ),
        ProviderFacts("stripe", ("api.stripe.com",), frozenset({"charges.list", "charges.create"})),
        ProviderFacts(
            "aws-s3",
            ("{bucket}.s3.{region}.amazonaws.com",),
            frozenset({"objects.read", "objects.put", "bucket.read", "objects.delete"}),
        ),
    )
}
"""Facts of the providers that the bundles and the documentation name."""

_OPERATIONS = {
    ("GET", "/repos/acme/site"): Classified("github", "repos.get", False),
    ("DELETE", "/repos/acme/site"): Classified("github", "repos.delete", True),
    ("POST", "/api/chat.postMessage"): Classified("slack", "chat.postMessage", True),
    ("POST", "/api/chat.delete"): Classified("slack", "chat.delete", True),
    ("POST", "/v1/chat/completions"): Classified("openai", "chat.completions.create", True),
    ("DELETE", "/v1/models/one"): Classified("openai", "models.delete", True),
    ("POST", "/v1/messages"): Classified("anthropic", "messages.create", True),
}


def classify(call: CaseCall, endpoint: Endpoint, path: str | None) -> Classified:
    """The catalogue's answer, for the few calls that these tests make."""
    method, host = call.method, endpoint[1]
    provider = next((facts.name for facts in SHIPPED.values() if host in facts.hosts), None)
    known = _OPERATIONS.get((method, path or ""))
    return known if known and known.provider == provider else Classified(provider, None, method != "GET")


def document(name: str = "bot", **keys: Any) -> dict[str, Any]:
    """A document with everything that is required."""
    return {
        "apiVersion": "sluicegate/v1",
        "kind": "EgressPolicy",
        "metadata": {"name": name},
        "subjects": [{"agent": "*"}],
        **keys,
    }
