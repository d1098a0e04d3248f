"""All documents in force, as one immutable value that is replaced whole when a file changes.

What is remembered (who is meant by which documents, plans, verdicts) lives inside, is bounded, and goes with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from policies.conditions import Content
from policies.decide import Allowed, Denied, Plan, decide_tunnel
from policies.explain import Explanation, Question, explain
from policies.facts import ProviderFacts
from policies.rules import Document, Endpoint, Rule
from policies.traits import NO_TRAITS, Traits

K = TypeVar("K")
V = TypeVar("V")

MAX_CALLERS: Final = 10_000
MAX_PLANS: Final = 1_024
"""For each set of documents, so that one caller's wandering cannot push out another's plans."""


class Size(NamedTuple):
    documents: int
    rules: int


class _Index:
    """A document's rules by what a destination must have for them to be asked at all."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._hosts: dict[str, list[Rule]] = {}
        self._suffixes: dict[str, list[Rule]] = {}
        self._providers: dict[str, list[Rule]] = {}
        self._anywhere: list[Rule] = []
        for rule in rules:
            self._shelf(rule).append(rule)

    def _shelf(self, rule: Rule) -> list[Rule]:
        if rule.host is not None and rule.host.kind == "exact":
            return self._hosts.setdefault(rule.host.text, [])
        if rule.host is not None:
            return self._suffixes.setdefault(rule.host.text.split(".", 1)[1], [])
        if rule.provider is not None:
            return self._providers.setdefault(rule.provider, [])
        return self._anywhere

    def about(self, host: str, providers: Iterable[str]) -> Iterable[Rule]:
        yield from self._anywhere
        yield from self._hosts.get(host, ())
        if self._suffixes:
            rest = host
            while "." in rest:
                rest = rest.split(".", 1)[1]
                yield from self._suffixes.get(rest, ())
        for provider in providers:
            yield from self._providers.get(provider, ())


class _Selection:
    """The documents that concern a caller, shared by every caller whom the same ones concern."""

    def __init__(self, indexes: Sequence[_Index]) -> None:
        self._indexes = indexes
        self.plans: dict[tuple[Endpoint, str | None], Plan] = {}
        self.tunnels: dict[tuple[str, int], Allowed | Denied | None] = {}
        self.dialects: dict[Endpoint, str | None] = {}

    def about(self, host: str, providers: Iterable[str]) -> list[Rule]:
        return [rule for index in self._indexes for rule in index.about(host, providers)]


class PolicySet:
    """Answers for every caller and destination. `hash` is 12 hexadecimal digits over what the documents say."""

    def __init__(
        self,
        documents: Sequence[Document],
        providers: Mapping[str, ProviderFacts],
        *,
        warn: bool = False,
        digest: str = "",
    ) -> None:
        """`warn`: the operator's default lets pass what nothing allows, and says so in the verdict."""
        self.documents = tuple(sorted(documents, key=lambda document: document.name))
        self.providers = providers
        self.warn = warn
        self.hash = digest
        self.size = Size(
            len(self.documents), sum(len(document.allows) + len(document.denies) for document in self.documents)
        )
        self._indexes = [_Index((*document.allows, *document.denies)) for document in self.documents]
        self._by_tenant, self._any_tenant = _by_tenant(self.documents)
        self._provider_hosts = _provider_hosts(providers)
        self._segments = _segments(self.documents)
        self._callers: dict[tuple[str, str, str, Traits], _Selection] = {}
        self._selections: dict[tuple[int, ...], _Selection] = {}

    def plan(
        self,
        tenant: str,
        agent: str,
        actor: str,
        destination: Endpoint,
        provider: str | None,
        traits: Traits = NO_TRAITS,
    ) -> Plan:
        """The rules about this destination for this caller; `provider` is the catalogue's name for it, if any."""
        selection = self._selection(tenant, agent, actor, traits)
        return selection.plans.get((destination, provider)) or self._compile(selection, destination, provider)

    def _compile(self, selection: _Selection, destination: Endpoint, provider: str | None) -> Plan:
        endpoint = (destination[0], destination[1], destination[2])
        about = selection.about(endpoint[1], self._filed_under(endpoint[1]) if provider is None else (provider,))
        rules = [rule for rule in about if rule.covers(endpoint, provider)]
        facts = self.providers.get(provider) if provider is not None else None
        operations = frozenset(facts.operations if facts else ()) if provider is not None else None
        plan = Plan(rules, endpoint, operations, warn=self.warn)
        _remember(selection.plans, (endpoint, provider), plan)
        return plan

    def tunnel(
        self, tenant: str, agent: str, actor: str, host: str, port: int, traits: Traits = NO_TRAITS
    ) -> Allowed | Denied | None:
        """CONNECT host:port: Allowed for an uninspected tunnel; None where rules could allow calls inside, which are
        then inspected; Denied where none could."""
        selection = self._selection(tenant, agent, actor, traits)
        key = (host, port)
        if key not in selection.tunnels:
            dialect = self.dialect(tenant, agent, actor, ("https", host, port), traits)
            providers = {*self._filed_under(host), *([dialect] if dialect else [])}
            verdict = decide_tunnel(selection.about(host, providers), host, port, dialect, warn=self.warn)
            _remember(selection.tunnels, key, verdict)
        return selection.tunnels[key]

    def reachable(self, tenant: str, agent: str, actor: str, host: str, traits: Traits = NO_TRAITS) -> bool:
        """Whether some rule could allow this caller something at `host` (canonical), on whatever port."""
        if self.warn:
            return True
        rules = self._selection(tenant, agent, actor, traits).about(host, self._filed_under(host))
        return any(not rule.denies and rule.names(host) for rule in rules)

    def dialect(
        self, tenant: str, agent: str, actor: str, destination: Endpoint, traits: Traits = NO_TRAITS
    ) -> str | None:
        """The provider that a rule with both `provider` and `host` names for a host the catalogue does not know."""
        selection = self._selection(tenant, agent, actor, traits)
        if destination not in selection.dialects:
            rules = [
                rule
                for rule in selection.about(destination[1], ())
                if rule.provider is not None and not rule.denies and rule.reaches(destination)
            ]
            best = max(rules, key=lambda rule: (rule.host_rank(destination[1]), rule.provider), default=None)
            _remember(selection.dialects, destination, best.provider if best else None)
        return selection.dialects[destination]

    def explain(
        self,
        tenant: str,
        agent: str,
        actor: str,
        destination: Endpoint,
        provider: str | None,
        method: str,
        path: str | None,
        operation: str | None,
        write: bool,
        traits: Traits = NO_TRAITS,
        content: Content | None = None,
    ) -> Explanation:
        """The decision on one call, and for each rule whether it matched or what kept it from matching."""
        plan = self.plan(tenant, agent, actor, destination, provider, traits)
        question = Question(
            tenant, agent, actor, destination, provider, method, path, operation, write, traits, content
        )
        return explain(self.documents, self.providers, plan, question)

    def base_url(
        self, tenant: str, agent: str, actor: str, segment: str, traits: Traits = NO_TRAITS
    ) -> Endpoint | None:
        """Where `/{segment}/…` of the base-URL listener leads: the exact host of the allow of that name.

        None when this caller has no such rule, or has several that name different destinations.
        """
        found = {
            endpoint
            for document, endpoint in self._segments.get(segment, ())
            if document.concerns(tenant, agent, actor, traits)
        }
        return found.pop() if len(found) == 1 else None

    def _selection(self, tenant: str, agent: str, actor: str, traits: Traits) -> _Selection:
        selection = self._callers.get((tenant, agent, actor, traits))
        return selection or self._select(tenant, agent, actor, traits)

    def _select(self, tenant: str, agent: str, actor: str, traits: Traits) -> _Selection:
        candidates = (*self._by_tenant.get(tenant, ()), *self._any_tenant)
        key = tuple(
            sorted({number for number in candidates if self.documents[number].concerns(tenant, agent, actor, traits)})
        )
        selection = self._selections.get(key)
        if selection is None:
            selection = _Selection([self._indexes[number] for number in key])
            _remember(self._selections, key, selection, MAX_CALLERS)
        _remember(self._callers, (tenant, agent, actor, traits), selection, MAX_CALLERS)
        return selection

    def _filed_under(self, host: str) -> list[str]:
        """The providers at whose hosts this is."""
        exact, templates = self._provider_hosts
        wild = [facts.name for facts in templates if any(pattern.matches(host) for pattern in facts.patterns)]
        return sorted({*exact.get(host, ()), *wild})


def _remember(memory: dict[K, V], key: K, value: V, limit: int = MAX_PLANS) -> None:
    """Keeps a value, forgetting all of them when there are too many: they are cheap to make again."""
    if len(memory) >= limit:
        memory.clear()
    memory[key] = value


def _by_tenant(documents: Sequence[Document]) -> tuple[dict[str, list[int]], list[int]]:
    """Document numbers by the tenant they name exactly, and those that do not name one."""
    exact: dict[str, list[int]] = {}
    others: list[int] = []
    for number, document in enumerate(documents):
        tenants = {subject.tenant for subject in document.subjects}
        if any(tenant is None or "*" in tenant for tenant in tenants):
            others.append(number)
        else:
            for tenant in tenants:
                exact.setdefault(tenant or "", []).append(number)
    return exact, others


def _provider_hosts(providers: Mapping[str, ProviderFacts]) -> tuple[dict[str, list[str]], list[ProviderFacts]]:
    exact: dict[str, list[str]] = {}
    templates = []
    for facts in providers.values():
        if any(pattern.kind != "exact" for pattern in facts.patterns):
            templates.append(facts)
        for pattern in facts.patterns:
            if pattern.kind == "exact":
                exact.setdefault(pattern.text, []).append(facts.name)
    return exact, templates


def _segments(documents: Sequence[Document]) -> dict[str, list[tuple[Document, Endpoint]]]:
    """Allows with an exact host by their name, which is their base-URL segment."""
    found: dict[str, list[tuple[Document, Endpoint]]] = {}
    for document in documents:
        for rule in document.allows:
            if rule.host is not None and rule.host.kind == "exact" and not rule.tunnel:
                endpoint = (rule.scheme or "https", rule.host.text, rule.port or 443)
                found.setdefault(rule.name, []).append((document, endpoint))
    return found
