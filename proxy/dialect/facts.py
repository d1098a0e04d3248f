"""What is known of a provider's answers, compiled from its file of the catalogue."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from proxy.dialect.answer import Answer
from proxy.dialect.places import Place
from proxy.errors import Kind

REMEMBERED: Final = 1_024
"""Operations of one provider whose declarations are remembered."""
Unit = Literal[
    "auto", "seconds", "float_seconds", "ms", "epoch_s", "epoch_ms", "iso8601", "http_date", "go_duration", "clock"
]


@dataclass(frozen=True, slots=True)
class Condition:
    """What has to stand at a place: a value equal to `equals`, or, without that, one that is not empty."""

    place: Place
    equals: Any = None
    filled: bool = True

    def holds(self, answer: Answer) -> bool:
        if self.equals is not None:
            return any(_same(value, self.equals) for value in self.place.values(answer))
        return any(value not in ("", [], {}, False, 0) for value in self.place.values(answer)) == self.filled


def _same(value: Any, wanted: Any) -> bool:
    return type(value) is type(wanted) and value == wanted


@dataclass(frozen=True, slots=True)
class Sign:
    """What marks a 2xx as a failure, and at which operations (globs; none means all). Where something stands at
    `unless`, part of what was asked for came back: no failure, then, but a partial one."""

    condition: Condition
    operations: tuple[str, ...] = ()
    excepted: tuple[str, ...] = ()
    unless: Place | None = None

    def holds(self, answer: Answer) -> bool:
        return self.condition.holds(answer) and (self.unless is None or self.unless.first(answer) is None)

    def concerns(self, operation: str | None) -> bool:
        return named(operation, self.operations, everything=True) and not named(operation, self.excepted)


def named(operation: str | None, globs: tuple[str, ...], *, everything: bool = False) -> bool:
    """Whether an operation is meant by a list of globs; an empty list means `everything` or nothing."""
    if not globs:
        return everything
    return operation is not None and any(fnmatch.fnmatchcase(operation, glob) for glob in globs)


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """One row of the error map: which answers it is about, and what they are.

    code      the provider's code, or a glob over it; "" for any
    statuses  the statuses it is about; empty for any
    texts     lower-case pieces of the body, one of which must stand there; empty for any
    header    a header that must be there
    name      the code shown to the caller where the answer has none of its own (rows matched by text)
    wait      seconds to wait at least, where the answer names none
    repeat    False: not to be repeated whatever the kind (a monthly quota)
    refresh   False: a newer credential would not help
    say, then sentences of ours for this row: what happened; what to do next
    """

    kind: Kind
    code: str = ""
    statuses: frozenset[int] = frozenset()
    texts: tuple[str, ...] = ()
    header: str = ""
    name: str = ""
    wait: float | None = None
    repeat: bool = True
    refresh: bool = True
    say: str = ""
    then: str = ""

    def fits(self, answer: Answer, codes: tuple[str, ...]) -> str | None:
        """The code by which the row fits the answer ("" when it looks at none); None when it does not."""
        if self.code and not codes:
            return None
        if self.statuses and answer.status not in self.statuses:
            return None
        if self.header and not answer.header(self.header):
            return None
        if self.texts and not any(text in answer.text for text in self.texts):
            return None
        if not self.code:
            return ""
        if "*" not in self.code:
            return self.code if self.code in codes else None
        return next((code for code in codes if fnmatch.fnmatchcase(code, self.code)), None)


@dataclass(frozen=True, slots=True)
class WaitHint:
    """Where an answer says how long to wait, and in which unit.

    exhausted  counts only when this header (the remaining calls) is there and zero
    pattern    a piece of text with {n} where the number stands
    need, have, rate  the wait is (need - have) / rate, as cost-based limits publish it
    """

    unit: Unit = "auto"
    place: Place | None = None
    exhausted: str = ""
    pattern: re.Pattern[str] | None = None
    need: Place | None = None
    have: Place | None = None
    rate: Place | None = None


@dataclass(frozen=True, slots=True)
class Partial:
    """A success in which some items failed: whatever stands at `place` is non-empty, and is of this kind. With `codes`
    the kind is that of the error row for each code found there."""

    place: Place
    kind: Kind
    codes: bool = False
    operations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pagination:
    """One paging convention and the operations that use it.

    style   cursor: `next` stands in the reply, and goes into `parameter`; link: RFC 8288 `next`; url: `next` is a URL;
            page, offset: counted by us from `parameter` and `size`; graphql: the connection that takes `after` from a
            variable of the document
    more    a condition without which `next` is not believed (has_more)
    into    where `parameter` goes: the query, a form or JSON object in the body, or either, wherever the others stand
    """

    style: Literal["cursor", "last_id", "link", "url", "page", "offset", "graphql"]
    parameter: str = ""
    next: Place | None = None
    more: Condition | None = None
    items: Place | None = None
    size: str = ""
    first: int = 1
    operations: tuple[str, ...] = ()
    into: Literal["query", "body", "either"] = "query"

    @property
    def reads_body(self) -> bool:
        return self.into != "query" or self.style == "graphql"


@dataclass(frozen=True, slots=True)
class IdempotencyForm:
    """How a provider takes a key: where, for these methods, remembered for so many seconds.

    place, name  the header, the query parameter, or the member of the JSON object that the body is
    retention    None where the provider does not say
    longest      characters that the provider takes; 0 for no bound. A longer key goes out as a UUID derived from it
    """

    place: Literal["header", "query", "field"]
    name: str
    methods: frozenset[str]
    retention: float | None
    operations: tuple[str, ...] = ()
    longest: int = 0

    def takes(self, method: str, operation: str | None) -> bool:
        return method in self.methods and named(operation, self.operations, everything=True)


class Here(NamedTuple):
    """What a dialect declares of one operation."""

    signs: tuple[Sign, ...]
    partial: tuple[Partial, ...]
    paging: Pagination | None

    @property
    def declared(self) -> bool:
        return bool(self.signs or self.partial or self.paging)


@dataclass(frozen=True, slots=True)
class Dialect:
    """Everything that is known of one provider's answers. `Dialect()` is that of a host nobody has described."""

    title: str = "The provider"
    provider: str = ""
    codes: tuple[Place, ...] = ()
    rows: tuple[ErrorRow, ...] = ()
    signs: tuple[Sign, ...] = ()
    partial: tuple[Partial, ...] = ()
    event_names: frozenset[str] = frozenset()
    """Names of server-sent events that are errors."""
    event_errors: tuple[Condition, ...] = ()
    """What in the data of any event makes it an error."""
    values: Mapping[str, Place] = field(default_factory=dict)
    """What messages may name: `scope`, `field`."""
    native: Any = None
    """The provider's own error body, with {placeholders}."""
    native_type: str = "application/json"
    waits: tuple[WaitHint, ...] = ()
    request_id: tuple[Place, ...] = ()
    pagination: tuple[Pagination, ...] = ()
    idempotency: IdempotencyForm | None = None
    pages_in_bodies: bool = field(init=False, compare=False)
    _here: dict[str | None, Here] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "pages_in_bodies", any(one.reads_body for one in self.pagination))

    @property
    def streams_errors(self) -> bool:
        return bool(self.event_names or self.event_errors)

    @property
    def looks_into_successes(self) -> bool:
        """Whether some success has to be looked at."""
        return bool(self.signs or self.partial or self.pagination) or self.streams_errors

    def at(self, operation: str | None) -> Here:
        """What is declared of one operation; remembered, since every success asks."""
        known = self._here.get(operation)
        if known is None:
            if len(self._here) >= REMEMBERED:  # a GraphQL call goes by the names of all its fields
                self._here.clear()
            known = self._here[operation] = Here(
                tuple(sign for sign in self.signs if sign.concerns(operation)),
                tuple(one for one in self.partial if named(operation, one.operations, everything=True)),
                next((one for one in self.pagination if named(operation, one.operations)), None),
            )
        return known

    def signs_at(self, operation: str | None) -> tuple[Sign, ...]:
        return self.at(operation).signs

    def partial_at(self, operation: str | None) -> tuple[Partial, ...]:
        return self.at(operation).partial

    def paging_at(self, operation: str | None) -> Pagination | None:
        return self.at(operation).paging
