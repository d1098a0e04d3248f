"""What the catalogue says of a call that is only thought of: for the cases of policies."""

from __future__ import annotations

from urllib.parse import urlsplit

from policies.cases import CaseCall, Classified, Classify
from policies.rules import Endpoint
from proxy.catalog import Operation, Provider
from proxy.catalog.inside import Request
from proxy.contents import as_one
from proxy.errors import SAFE_METHODS
from proxy.model import Destination
from proxy.rules import Rules


def classifier(rules: Rules) -> Classify:
    """Files calls as the pipeline does: by host and path, or in the dialect of a rule; then by what they hold."""

    def classify(call: CaseCall, endpoint: Endpoint, path: str | None) -> Classified:
        provider = rules.catalog.find(endpoint[1], path)
        if provider is None and not rules.catalog.shared(endpoint[1]):
            name = rules.policies.dialect(call.tenant, call.agent, call.actor, Destination(*endpoint), call.traits)
            provider = rules.catalog.by_name(name) if name else None
        if provider is None:
            return Classified(None, None, call.method not in SAFE_METHODS)
        operation = _operation(provider, call, path)
        if operation is None:
            return Classified(provider.name, None, True)
        return Classified(provider.name, operation.name, operation.write)

    return classify


def _operation(provider: Provider, call: CaseCall, path: str | None) -> Operation | None:
    operation = provider.operation(call.method, path)
    if operation is None or operation.inside is None:
        return operation
    parts = urlsplit(call.url)
    target = f"{parts.path or '/'}?{parts.query}".encode()
    lines = [
        (name.lower().replace("_", "-").encode(), name.encode(), value.encode()) for name, value in call.headers.items()
    ]
    return as_one(operation.inside.find(Request(call.method, target, lines, call.body.encode())), operation)
