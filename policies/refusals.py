"""Refusals, and the sentences they are told in: what was refused, by which rule, and what would be allowed instead."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from policies.rules import Endpoint, Rule

_DEFAULT_PORTS: Final = {"https": 443, "http": 80}
_MAX_OFFERS: Final = 5
_MAX_WORDS: Final = 8


@dataclass(frozen=True, slots=True)
class Denied:
    """The call must not leave. `reason` is a sentence for whoever sent it; `rule` of document `policy` decided, if one
    did. `ambiguous`: the path can be read in more than one way where a path rule decides."""

    rule: str | None
    policy: str | None
    reason: str
    ambiguous: bool = False


def refusal(rule: Rule, *, ambiguous: bool = False) -> Denied:
    """A rule refuses: it denies the call, or (`ambiguous`) it cannot be told whether it is about the call."""
    if ambiguous:
        text = (
            f'The path can be read in more than one way, and rule "{rule.name}" of policy "{rule.document}" looks at '
            "paths or operations here; write it without dot or empty segments, encoded slashes or double escapes."
        )
        return Denied(rule.name, rule.document, text, ambiguous=True)
    why = f": {rule.reason}" if rule.reason else "."
    return Denied(rule.name, rule.document, f'Rule "{rule.name}" of policy "{rule.document}" forbids this call{why}')


def unmatched(endpoint: Endpoint, allows: Sequence[Rule] = ()) -> Denied:
    """Nothing allows the call. `allows` are the rules that allow other calls to the endpoint, named as a way out."""
    text = f"No policy rule allows this call to {origin(endpoint)} for this agent."
    if allows:
        text += f" Allowed there: {'; '.join(_offer(rule) for rule in allows[:_MAX_OFFERS])}"
        text += "; and more." if len(allows) > _MAX_OFFERS else "."
    return Denied(None, None, text)


def origin(endpoint: Endpoint) -> str:
    """The endpoint as it stands in a URL (RFC 3986 section 3.2), without a default port."""
    scheme, host, port = endpoint
    name = f"[{host}]" if ":" in host else host
    return f"{scheme}://{name}" if port == _DEFAULT_PORTS.get(scheme) else f"{scheme}://{name}:{port}"


def _offer(rule: Rule) -> str:
    """What a rule allows, in few words."""
    words = [
        _listed(sorted(rule.methods or ())),
        f"{rule.access}s" if rule.access else "",
        _listed(sorted(rule.operations or ())),
        _listed([path.text for path in rule.paths]),
    ]
    return " ".join(word for word in words if word) or f'what rule "{rule.name}" covers'


def _listed(words: Iterable[str]) -> str:
    every = list(words)
    return ", ".join(every[:_MAX_WORDS]) + (", …" if len(every) > _MAX_WORDS else "")
