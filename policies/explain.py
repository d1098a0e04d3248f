"""Why a call is allowed or denied: every rule considered, and what kept it from matching.

Rules are gone through one by one here, slowly and in words; the decision itself is the plan's, so that an explanation
cannot say anything but what happens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from policies.conditions import Asked, Content
from policies.decide import Allowed, Denied, Plan
from policies.facts import ProviderFacts
from policies.narrowing import failure, path_readings
from policies.rules import Document, Endpoint, Rule
from policies.traits import NO_TRAITS, Traits


class Considered(NamedTuple):
    """One rule. `verdict`: decides; matches (another one decides); warns (a softened deny); or no match, and why."""

    document: str
    rule: str
    verdict: Literal["decides", "matches", "warns", "no match"]
    why: str


@dataclass(frozen=True, slots=True)
class Explanation:
    decision: Allowed | Denied
    considered: tuple[Considered, ...]


class Question(NamedTuple):
    """One call, as a plan is asked about it."""

    tenant: str
    agent: str
    actor: str
    destination: Endpoint
    provider: str | None
    method: str
    path: str | None
    operation: str | None
    write: bool
    traits: Traits = NO_TRAITS
    content: Content | None = None
    """What the call holds; None where that is not known."""

    @property
    def asked(self) -> Asked:
        return Asked(self.method, self.path, self.tenant, self.agent, self.actor)


def explain(
    documents: Sequence[Document], providers: Mapping[str, ProviderFacts], plan: Plan, question: Question
) -> Explanation:
    """The decision of `plan` (the caller's at the destination), with every rule of every document beside it."""
    if plan.conditions:
        rules = plan.asking(question.method, question.path, [(question.operation, question.write)])
        plan = plan.under(rules, question.content, question.asked)
    decision = plan.decide(question.method, question.path, question.operation, write=question.write)
    asked = _as_decided(providers, question)
    considered = (_considered(document, rule, asked, decision) for document, rule in _rules(documents))
    return Explanation(decision, tuple(considered))


def _as_decided(providers: Mapping[str, ProviderFacts], question: Question) -> Question:
    """With the operation as the decision takes it: unknown for an ambiguous path, and then a write."""
    if question.provider is None:
        return question._replace(operation=None)
    facts = providers.get(question.provider)
    known = facts is not None and question.path is not None and question.operation in facts.operations
    return question if known else question._replace(operation=None, write=True)


def _rules(documents: Sequence[Document]) -> Iterator[tuple[Document, Rule]]:
    for document in documents:
        for rule in (*document.denies, *document.allows):
            yield document, rule


def _considered(document: Document, rule: Rule, question: Question, decision: Allowed | Denied) -> Considered:
    why = mismatch(document, rule, question)
    if why is not None:
        return Considered(document.name, rule.name, "no match", why)
    if (decision.policy, decision.rule) == (document.name, rule.name):
        return Considered(document.name, rule.name, "decides", "every key matches")
    if rule.denies and rule.soft:
        return Considered(document.name, rule.name, "warns", "every key matches, and its document only warns")
    return Considered(document.name, rule.name, "matches", "another rule comes first")


def mismatch(document: Document, rule: Rule, question: Question) -> str | None:
    """The first key that keeps the rule from matching, in words; None when every key matches."""
    if not document.concerns(question.tenant, question.agent, question.actor, question.traits):
        return "the document's subjects do not include this caller"
    if rule.tunnel:
        return "a tunnel rule is about CONNECT, not about a call"
    return _elsewhere(rule, question) or _otherwise(rule, question)


def _elsewhere(rule: Rule, question: Question) -> str | None:
    """Why the rule is not about the destination."""
    scheme, host, port = question.destination
    if rule.covers(question.destination, question.provider):
        return None
    if rule.provider is not None and question.provider not in (None, rule.provider):
        return f"provider is {question.provider}, not {rule.provider}"
    if rule.scheme not in (None, scheme):
        return f"scheme is {scheme}, the rule is about {rule.scheme}"
    if rule.port not in (None, port):
        return f"port is {port}, the rule is about {rule.port}"
    return f"host {host} is not {rule.host.text if rule.host else f'a host of {rule.provider}'}"


def _otherwise(rule: Rule, question: Question) -> str | None:
    """Why the rule is not about what the call does there."""
    if rule.methods is not None and question.method not in rule.methods:
        return f"method is {question.method}, the rule lists {', '.join(sorted(rule.methods))}"
    if rule.access is not None and (rule.access == "write") != question.write:
        return f"the call is a {'write' if question.write else 'read'}, the rule is about {rule.access}"
    if not (rule.denies and question.path is None):  # the path may be any
        inside = _inside(rule, question)
        if inside is not None:
            return inside
    return failure(rule, question.content, question.asked) if rule.condition is not None else None


def _inside(rule: Rule, question: Question) -> str | None:
    """Why the rule is not about the operation or the path."""
    if rule.operations is not None and not _names_operation(rule, question.operation):
        return f"operation is {question.operation or 'unknown'}, which the rule does not list"
    path = question.path
    if rule.paths and (path is None or not any(path_readings(rule, pattern, path) for pattern in rule.paths)):
        return "the path is ambiguous" if path is None else f"path {path} matches none of the rule's"
    return None


def _names_operation(rule: Rule, operation: str | None) -> bool:
    if operation is None:
        return rule.denies
    return rule.operations is not None and operation in rule.operations
