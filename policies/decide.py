"""May this call leave? The only place that builds Allowed.

Deny beats allow; what nothing allows is denied; of several allows the most specific one says how the call leaves. The
order of files and rules has no part in it: equals are told apart by their names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from policies.conditions import Asked, Content
from policies.narrowing import concerned, holding
from policies.paths import ANY_PATH, NO_MATCH, PathTable, allow_segments, deny_readings, deny_segments
from policies.refusals import Denied, refusal, unmatched
from policies.rules import CredentialUse, Effect, Endpoint, Network, Rule
from policies.terms import Terms
from policies.tls_terms import TlsTerms

MAX_VERDICTS: Final = 1_024
MAX_REMEMBERED_PATH: Final = 256
MAX_NARROWED: Final = 128
"""Plans for different sets of rules whose conditions hold."""
_OTHER_METHOD: Final = ""
_APART: Final = "What this call asks for is allowed by different rules in different ways: send it as separate calls."


@dataclass(frozen=True, slots=True)
class Allowed:
    """The call may leave, in this way.

    `would_deny`: only a rollout setting let it pass; `warning` is the refusal that was softened. `rule` and `policy`
    are None when no rule allowed it. `max_bytes` caps an uninspected tunnel, both ways together. `token_endpoint`: it
    may be one that gives tokens.
    """

    rule: str | None
    policy: str | None
    credential: CredentialUse | None = None
    networks: tuple[Network, ...] = ()
    presigned: bool = False
    mask: bool = True
    errors: str = "problem"
    plaintext: bool = False
    tunnel: bool = False
    would_deny: bool = False
    max_bytes: int | None = None
    warning: Denied | None = None
    token_endpoint: bool = False
    tls: TlsTerms | None = None
    terms: Terms | None = None
    """Further terms, None for a rule that has none."""


Verdict = Allowed | Denied


def _grant(rule: Rule) -> Allowed:
    effect = rule.effect
    return Allowed(
        rule.name, rule.document, effect.credential, effect.networks, effect.presigned, effect.mask, effect.errors,
        effect.plaintext, rule.tunnel, False, effect.max_bytes, None, effect.token_endpoint, effect.tls,
        effect.terms,
    )  # fmt: skip


def _way(allowed: Allowed) -> Allowed:
    """How a call leaves, whichever rule said so."""
    return replace(allowed, rule=None, policy=None)


def _warned(allowed: Allowed, warning: Denied | None) -> Allowed:
    return allowed if warning is None else replace(allowed, would_deny=True, warning=warning)


def _unruled(endpoint: Endpoint, warning: Denied) -> Allowed:
    """`default: warn` lets a call pass that nothing allowed: without a credential, and to public addresses only."""
    return Allowed(None, None, plaintext=endpoint[0] == "http", would_deny=True, warning=warning)


Rank = tuple[tuple[int, int], int, bool, bool, bool]


def rank(rule: Rule, host_rank: tuple[int, int], literal: int) -> Rank:
    """How specific an allow is: exact host, deeper wildcard, longer literal path, listed operations, listed methods,
    conditions."""
    listed = rule.methods is not None or rule.access is not None
    return host_rank, literal, rule.operations is not None, listed, rule.condition is not None


class Alternative(NamedTuple):
    """One path pattern of a rule, or all its paths where it names none."""

    rule: Rule
    segments: tuple[str, ...]
    order_key: tuple[object, ...]

    @property
    def looks_inside(self) -> bool:
        """Whether path or operation decide if it matches."""
        return bool(self.rule.paths) or self.rule.operations is not None


def _allow_alternatives(rules: Iterable[Rule], host: str) -> list[Alternative]:
    found = []
    for rule in rules:
        host_rank = rule.host_rank(host)
        for segments, literal in [(path.segments, path.literal) for path in rule.paths] or [(ANY_PATH, 0)]:
            depth, length, operations, methods, conditions = rank(rule, host_rank, literal)
            key = (
                -depth[0], -depth[1], -length, not operations, not methods, not conditions, rule.document, rule.name,
            )  # fmt: skip
            found.append(Alternative(rule, segments, key))
    return sorted(found, key=lambda alternative: alternative.order_key)


def _deny_alternatives(rules: Iterable[Rule]) -> list[Alternative]:
    found = [
        Alternative(rule, segments, (rule.soft, rule.document, rule.name))
        for rule in rules
        for segments in [deny_segments(path.segments) for path in rule.paths] or [ANY_PATH]
    ]
    return sorted(found, key=lambda alternative: alternative.order_key)


class _MethodTable:
    """The alternatives of a plan that are about one method (and reading or writing)."""

    def __init__(
        self,
        allows: Sequence[Alternative],
        denies: Sequence[Alternative],
        endpoint: Endpoint,
        offers: Sequence[Rule],
        *,
        warn: bool,
    ) -> None:
        self._allows, self._denies, self._endpoint, self._warn = allows, denies, endpoint, warn
        self._unmatched = unmatched(endpoint, offers)
        self._grants: dict[int, Allowed] = {}
        self._allow_paths, self._deny_paths = PathTable(unknown=False), PathTable(unknown=True)
        for table, alternatives in ((self._allow_paths, allows), (self._deny_paths, denies)):
            for order, alternative in enumerate(alternatives):
                table.add(alternative.segments, alternative.rule.operations, order)

    def judge(self, path: str | None, operation: str | None) -> Verdict:
        denied, soft = self._refused(path, operation)
        if denied is not None and not soft:
            return denied
        found = self._permitted(path, operation)
        if isinstance(found, Allowed):
            return _warned(found, denied)
        return _unruled(self._endpoint, denied or found) if self._warn else found

    def _refused(self, path: str | None, operation: str | None) -> tuple[Denied | None, bool]:
        """The refusal by a deny, if one matches, and whether it only warns."""
        if not self._denies:
            return None, False
        order = 0  # the path may be any, so every deny of this method may be meant; those that refuse come first
        if path is not None:
            order = min([self._deny_paths.best(reading, operation) for reading in deny_readings(path)])
        if order == NO_MATCH:
            return None, False
        found = self._denies[order]
        return refusal(found.rule, ambiguous=path is None and found.looks_inside), found.rule.soft

    def _permitted(self, path: str | None, operation: str | None) -> Verdict:
        if path is None:
            return self._permitted_whatever_the_path()
        order = self._allow_paths.best(allow_segments(path), operation)
        if order == NO_MATCH:
            return self._unmatched
        if order not in self._grants:
            self._grants[order] = _grant(self._allows[order].rule)
        return self._grants[order]

    def _permitted_whatever_the_path(self) -> Verdict:
        """The allow that holds for any path, unless a more specific one would let some paths leave differently."""
        inside: list[Rule] = []
        for alternative in self._allows:
            if not alternative.looks_inside:
                other = next((rule for rule in inside if rule.effect != alternative.rule.effect), None)
                return _grant(alternative.rule) if other is None else refusal(other, ambiguous=True)
            inside.append(alternative.rule)
        return refusal(inside[0], ambiguous=True) if inside else self._unmatched


class Plan:
    """What policy says of one destination and provider for the callers of one set of documents.

    Compiled when a method is first asked for; verdicts are remembered, at most MAX_VERDICTS of them. A plan lives and
    dies with its PolicySet, so nothing in it is ever invalidated.
    """

    __slots__ = (
        "_allows",
        "_denies",
        "_endpoint",
        "_methods",
        "_narrowed",
        "_offers",
        "_operations",
        "_rules",
        "_tables",
        "_verdicts",
        "_warn",
        "conditions",
        "possible",
    )

    def __init__(
        self,
        rules: Sequence[Rule],
        endpoint: Endpoint,
        operations: frozenset[str] | None,
        *,
        warn: bool,
        settled: bool = False,
    ) -> None:
        """`rules` cover the endpoint; `operations` are those the catalogue knows, None without a provider; `settled`:
        their conditions are known to hold."""
        asking = [] if settled else [rule for rule in rules if rule.condition is not None and not rule.tunnel]
        self.conditions: tuple[Rule, ...] = tuple(asking)
        """The rules that ask something of what a call holds; most plans have none."""
        self._rules = rules
        self._narrowed: dict[frozenset[int], Plan] = {}
        denies = [rule for rule in rules if rule.denies and not rule.tunnel]
        allows = [rule for rule in rules if not rule.denies and not rule.tunnel]
        self._endpoint, self._operations, self._warn = endpoint, operations, warn
        self._allows, self._denies = _allow_alternatives(allows, endpoint[1]), _deny_alternatives(denies)
        self._offers = sorted(allows, key=_by_name)
        self._methods = frozenset(method for rule in rules for method in rule.methods or ())
        self._tables: dict[tuple[str, bool], _MethodTable] = {}
        self._verdicts: dict[tuple[str, str | None, str | None, bool], Verdict] = {}
        closed = any(not rule.soft and not rule.conditional for rule in denies)
        self.possible = (warn or bool(allows)) and not closed
        """Whether some call could be allowed."""

    def decide(self, method: str, path: str | None, operation: str | None, *, write: bool) -> Verdict:
        """The verdict on one call.

        `path` is decoded, None when ambiguous (policies.matchers.decode_path); `operation` is the catalogue's name for
        the call, None when it has none; `write` says whether the call changes anything. Where rules have conditions
        (`conditions`), ask `under` for the plan that a call's content leaves: here nothing is known of it, so that such
        an allow does not match and such a deny does.
        """
        key = (method, path, operation, write)
        verdict = self._verdicts.get(key)
        return self._judge(key) if verdict is None else verdict

    def asking(self, method: str, path: str | None, operations: Sequence[tuple[str | None, bool]]) -> list[Rule]:
        """The rules with conditions that may be about a call, as far as the rest of their keys says. `operations` as in
        `decide_together`."""
        known = [(self._known(path, operation), write) for operation, write in operations]
        asked = [
            (operation, write or (operation is None and self._operations is not None)) for operation, write in known
        ]
        return [rule for rule in self.conditions if concerned(rule, method, path, asked)]

    def under(self, rules: Sequence[Rule], content: Content | None, asked: Asked) -> Plan:
        """The plan for a call of this content, with those of `rules` (from `asking`) whose conditions hold for it."""
        held = holding(rules, content, asked)
        narrowed = self._narrowed.get(held)
        if narrowed is None:
            kept = [rule for rule in self._rules if rule.condition is None or id(rule) in held]
            narrowed = Plan(kept, self._endpoint, self._operations, warn=self._warn, settled=True)
            if len(self._narrowed) >= MAX_NARROWED:
                self._narrowed.clear()
            self._narrowed[held] = narrowed
        return narrowed

    def _known(self, path: str | None, operation: str | None) -> str | None:
        """The operation as far as rules may trust it."""
        return (
            operation if path is not None and self._operations is not None and operation in self._operations else None
        )

    def decide_together(self, method: str, path: str | None, operations: Iterable[tuple[str, bool]]) -> Verdict:
        """The verdict on one call that is several operations at once, each with whether it writes: all must be allowed,
        and in the same way. A refusal of one is the refusal of all."""
        verdicts = [self.decide(method, path, operation, write=write) for operation, write in operations]
        denied = next((verdict for verdict in verdicts if isinstance(verdict, Denied)), None)
        if denied is not None:
            return denied
        grants = [verdict for verdict in verdicts if isinstance(verdict, Allowed)]
        first, *others = sorted(grants, key=lambda grant: not grant.would_deny)
        if any(_way(other) != _way(first) for other in others if not first.would_deny):
            return Denied(first.rule, first.policy, _APART)
        return first

    def _judge(self, key: tuple[str, str | None, str | None, bool]) -> Verdict:
        method, path, operation, write = key
        if self.conditions:
            plan = self.under(self.asking(method, path, [(operation, write)]), None, Asked(method, path))
            return plan.decide(method, path, operation, write=write)
        operation = self._known(path, operation)
        if self._operations is not None and operation is None:
            write = True  # a call of a known provider that the catalogue cannot name may do anything
        verdict = self._table(method, write).judge(path, operation)
        if path is None or len(path) < MAX_REMEMBERED_PATH:
            if len(self._verdicts) >= MAX_VERDICTS:
                self._verdicts.clear()
            self._verdicts[key] = verdict
        return verdict

    def _table(self, method: str, write: bool) -> _MethodTable:
        # Methods that no rule names behave alike: one table for them all, or a caller could make any number.
        named = method if method in self._methods else _OTHER_METHOD
        table = self._tables.get((named, write))
        if table is None:
            allows, denies = (
                [alternative for alternative in side if alternative.rule.covers_method(named, write)]
                for side in (self._allows, self._denies)
            )
            table = self._tables[named, write] = _MethodTable(
                allows, denies, self._endpoint, self._offers, warn=self._warn
            )
        return table


def decide_tunnel(
    rules: Sequence[Rule], host: str, port: int, dialect: str | None, *, warn: bool
) -> Allowed | Denied | None:
    """The verdict on CONNECT host:port: Allowed for an uninspected tunnel, None where the calls inside are to be
    inspected and decided one by one, Denied where no rule could allow any of them.

    `rules` may be about the host; `dialect` is the provider that a rule names for a host of its own. A deny that would
    have to look inside forbids the uninspected tunnel.
    """
    secure, plain = ("https", host, port), ("http", host, port)
    passing = _best_tunnel([rule for rule in rules if rule.reaches(secure)], host)
    blocks = [rule for rule in rules if rule.denies and (rule.reaches(secure) or rule.covers(secure, dialect))]
    hard = min((rule for rule in blocks if not rule.soft), key=_by_name, default=None)
    soft = min((rule for rule in blocks if rule.soft), key=_by_name, default=None)
    if passing is not None and hard is None:
        return _warned(_grant(passing), refusal(soft) if soft else None)
    openings = [_opening(rules, endpoint, warn=warn) for endpoint in (secure, plain)]
    if None in openings:
        return None
    if passing is not None and hard is not None:
        return refusal(hard)
    return next((opening for opening in openings if opening is not None and opening.rule), None) or unmatched(secure)


def _by_name(rule: Rule) -> tuple[str, str]:
    return rule.document, rule.name


def _best_tunnel(rules: Iterable[Rule], host: str) -> Rule | None:
    """The tunnel rule to use, unless an inspected allow names the host more specifically."""
    tunnels, inspected = [], [(0, 0)]
    for rule in rules:
        if not rule.denies:
            tunnels.append(rule) if rule.tunnel else inspected.append(rule.host_rank(host))
    best = min(tunnels, key=lambda rule: (*(-part for part in rule.host_rank(host)), *_by_name(rule)), default=None)
    return best if best is not None and best.host_rank(host) >= max(inspected) else None


def _opening(rules: Sequence[Rule], endpoint: Endpoint, *, warn: bool) -> Denied | None:
    """None where some call to the endpoint could be allowed, else why none can."""
    here = [rule for rule in rules if not rule.tunnel and rule.reaches(endpoint)]
    closed = [rule for rule in here if rule.denies and not rule.soft and not rule.conditional]
    everywhere = min((rule for rule in closed if rule.provider is None), key=_by_name, default=None)
    if everywhere is not None:
        return refusal(everywhere)
    dialects = {rule.provider for rule in closed}
    if warn or any(not rule.denies and (rule.provider is None or rule.provider not in dialects) for rule in here):
        return None
    return refusal(min(closed, key=_by_name)) if closed else unmatched(endpoint)


__all__ = ["Allowed", "CredentialUse", "Denied", "Effect", "Plan", "Verdict", "decide_tunnel", "rank"]
