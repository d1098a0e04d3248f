"""The part of a provider file that says how it answers: errors, waits, pages, idempotency, request ids."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from proxy.catalog.base import OneLine, Strict, one_or_many
from proxy.dialect import (
    Condition,
    Dialect,
    ErrorRow,
    IdempotencyForm,
    Pagination,
    Partial,
    Place,
    Sign,
    WaitHint,
    place,
)
from proxy.dialect.facts import Unit
from proxy.errors import Kind


def _checked_place(text: str) -> str:
    place(text)
    return text


_SENTENCE_VALUE = re.compile(r"\{([a-z_]+)\}")
Where = Annotated[
    str, AfterValidator(_checked_place), Field(description="$.path[0].in.json, header NAME or xml ELEMENT")
]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.*-]{1,100}$")]
Names = Annotated[list[Name], one_or_many(Name)]
Status = Annotated[int, Field(ge=100, le=599)]
Sentence = Annotated[str, Field(min_length=8, max_length=300, pattern=r"^[^\x00-\x1f\x7f]+$")]


class PlaceDocument(Strict):
    """A place in a reply, and what of the text there is meant: what follows the last `after`, up to `before`."""

    at: Where
    after: str = ""
    before: str = ""

    def place(self) -> Place:
        return place(self.at, self.after, self.before)


def _place_alone(value: Any) -> Any:
    return {"at": value} if isinstance(value, str) else value


AnyPlace = Annotated[PlaceDocument, BeforeValidator(_place_alone, json_schema_input_type=PlaceDocument | str)]
Places = Annotated[list[AnyPlace], one_or_many(AnyPlace)]


class SignDocument(Strict):
    """What marks a 2xx as a failure."""

    at: Where
    equals: str | bool | int | None = Field(None, description="the value that marks it; default: anything not empty")
    filled: bool = Field(True, description="false: the place being empty marks it")
    operations: Names = Field([], description="operations it holds for; default: all")
    excepted: Names = Field([], alias="except", description="operations it does not hold for")
    unless: Where | None = Field(None, description="anything here makes it a success in part")

    def sign(self) -> Sign:
        condition = Condition(place(self.at), self.equals, self.filled)
        unless = place(self.unless) if self.unless is not None else None
        return Sign(condition, tuple(self.operations), tuple(self.excepted), unless)


class PartialDocument(Strict):
    """Where a success names items that failed."""

    at: Where
    kind: Kind
    codes: bool = Field(False, description="what stands there are codes or statuses, which say the kind themselves")
    operations: Names = Field([])

    def partial(self) -> Partial:
        return Partial(place(self.at), self.kind, self.codes, tuple(self.operations))


class EventDocument(Strict):
    """What makes a server-sent event an error: its name, or something in its data."""

    event: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,60}$")] | None = None
    at: Where | None = None
    equals: str | bool | int | None = None

    @model_validator(mode="after")
    def _one_form(self) -> EventDocument:
        if (self.event is None) == (self.at is None):
            raise ValueError("name event or at")
        return self


class RowDocument(Strict):
    """A row of the error map, for one or several codes. The first row that fits decides."""

    kind: Kind
    codes: Annotated[list[OneLine], one_or_many(OneLine)] = Field([], description="codes or globs")
    status: Annotated[list[Status], one_or_many(Status)] = Field([])
    text: Annotated[list[OneLine], one_or_many(OneLine)] = Field([], description="any of these in the body")
    header: OneLine | None = None
    name: Name | None = Field(None, description="the code shown where the reply has none")
    wait: Annotated[float, Field(ge=0, le=2_592_000, strict=False)] | None = None
    repeat: bool = True
    refresh: bool = True
    say: Sentence | None = Field(None, description="what happened, in our words; {title}, {scope}, {field}, {wait}")
    then: Sentence | None = Field(None, description="what the caller should do next")

    @model_validator(mode="after")
    def _looks_at_something(self) -> RowDocument:
        if not (self.codes or self.status or self.text or self.header):
            raise ValueError("a row needs codes, status, text or header")
        if self.text and not self.codes and not self.name:
            raise ValueError("a row that goes by text needs a name to show as its code")
        return self

    def sentences(self) -> Iterator[str]:
        yield from (sentence for sentence in (self.say, self.then) if sentence is not None)

    def rows(self) -> Iterator[ErrorRow]:
        for code in self.codes or [""]:
            yield ErrorRow(
                self.kind, code, frozenset(self.status), tuple(text.lower() for text in self.text), self.header or "",
                self.name or "", self.wait, self.repeat, self.refresh, self.say or "", self.then or "",
            )  # fmt: skip


class ErrorsDocument(Strict):
    """How failures look and what they mean."""

    code: Places = Field([], description="where the provider's code stands; the first that a row knows decides")
    failed_when: list[SignDocument] = Field([], description="errors inside a 2xx")
    partial: list[PartialDocument] = Field([])
    events: list[EventDocument] = Field([], description="errors among server-sent events")
    values: dict[Literal["scope", "field"], Where] = Field({}, description="identifiers that messages may name")
    native: dict[str, Any] | list[Any] | str | None = Field(
        None, description="the error body, with {detail}, {code}, {kind}, {status}, {request_id}, {title}, {reason}"
    )
    native_type: OneLine = "application/json"
    rows: list[RowDocument] = Field([])


class WaitDocument(Strict):
    """Where a reply says how long to wait."""

    at: Where | None = None
    unit: Unit = "auto"
    when_zero: OneLine | None = Field(None, description="counts only while this header is 0")
    text: Annotated[str, Field(pattern=r"^[^{}]{0,80}\{n\}[^{}]{0,80}$")] | None = None
    need: Where | None = None
    have: Where | None = None
    rate: Where | None = Field(None, description="with need and have: wait = (need - have) / rate seconds")

    @model_validator(mode="after")
    def _one_form(self) -> WaitDocument:
        computed = [one is not None for one in (self.need, self.have, self.rate)]
        if any(computed) != all(computed) or (self.at is not None) + (self.text is not None) + any(computed) != 1:
            raise ValueError("name at, or text, or need, have and rate together")
        return self

    def hint(self) -> WaitHint:
        pattern = None
        if self.text is not None:
            before, _, after = self.text.lower().partition("{n}")
            pattern = re.compile(re.escape(before) + r"(\d{1,10}(?:\.\d{1,6})?)" + re.escape(after))
        at, need, have, rate = (
            place(one) if one is not None else None for one in (self.at, self.need, self.have, self.rate)
        )
        return WaitHint(self.unit, at, self.when_zero or "", pattern, need, have, rate)


class PageDocument(Strict):
    """One paging convention."""

    style: Literal["cursor", "last_id", "link", "url", "page", "offset", "graphql"]
    parameter: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.\[\]$-]{1,60}$")] | None = None
    next: Where | None = None
    more: SignDocument | None = Field(None, description="without this there is no next page")
    items: Where | None = None
    size: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.\[\]$-]{1,60}$")] | None = None
    first: int = Field(1, ge=0, le=1, description="number of the first page")
    operations: Annotated[list[Name], one_or_many(Name), Field(min_length=1)]
    into: Literal["query", "body", "either"] = Field(
        "query", description="where parameter goes; in a JSON body a dot leads into an object. either: as the others do"
    )

    @model_validator(mode="after")
    def _complete(self) -> PageDocument:
        needed = {
            "cursor": ("parameter", "next"),
            "last_id": ("parameter", "items", "more"),
            "url": ("next",),
            "page": ("parameter",),
            "offset": ("parameter", "items"),
            "link": (),
            "graphql": (),
        }[self.style]
        if missing := [name for name in needed if getattr(self, name) is None]:
            raise ValueError(f"style {self.style} needs {', '.join(missing)}")
        return self

    def pagination(self) -> Pagination:
        return Pagination(
            self.style, self.parameter or "", place(self.next) if self.next else None,
            self.more.sign().condition if self.more else None, place(self.items) if self.items else None,
            self.size or "", self.first, tuple(self.operations), self.into,
        )  # fmt: skip


UUID_LENGTH: Final = 36


class IdempotencyDocument(Strict):
    """How the provider takes an idempotency key: in exactly one of a header, a query parameter, a field."""

    header: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,60}$")] | None = None
    query: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,60}$")] | None = None
    field: (
        Annotated[
            str, Field(pattern=r"^[A-Za-z0-9_-]{1,60}$", description="a member of the JSON object that the body is")
        ]
        | None
    ) = None
    methods: Annotated[
        list[Literal["POST", "PUT", "PATCH", "DELETE"]], one_or_many(Literal["POST", "PUT", "PATCH", "DELETE"])
    ] = Field(["POST"])
    retention: int | None = Field(
        None, gt=0, description="seconds for which the provider remembers a key; null where it does not say"
    )
    operations: Names = Field([])
    longest: int = Field(
        0,
        ge=0,
        description="characters of a key that the provider takes, at least 36; a longer one goes as a UUID of it",
    )

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if sum(one is not None for one in (self.header, self.query, self.field)) != 1:
            raise ValueError("give exactly one of header, query and field")
        if 0 < self.longest < UUID_LENGTH:
            raise ValueError(f"longest: a derived key has {UUID_LENGTH} characters, so give at least that")
        return self

    def form(self) -> IdempotencyForm:
        places: dict[Literal["header", "query", "field"], str | None]
        places = {"header": self.header, "query": self.query, "field": self.field}
        place, name = next((place, name) for place, name in places.items() if name is not None)
        retention = float(self.retention) if self.retention is not None else None
        return IdempotencyForm(place, name, frozenset(self.methods), retention, tuple(self.operations), self.longest)


class AnswersDocument(Strict):
    """The keys of a provider file that describe its answers."""

    errors: ErrorsDocument = Field(default_factory=lambda: ErrorsDocument.model_validate({}))
    waits: list[WaitDocument] = Field([])
    request_id: Annotated[list[Where], one_or_many(Where)] = Field([])
    pagination: list[PageDocument] = Field([])
    idempotency: IdempotencyDocument | None = None

    def answer_faults(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """(location, message) of each sentence that names what the file does not say where to find."""
        known = {*self.errors.values, "title", "code", "wait"}
        for number, row in enumerate(self.errors.rows):
            for sentence in row.sentences():
                for name in _SENTENCE_VALUE.findall(sentence):
                    if name not in known:
                        yield ("errors", "rows", number), f"the sentence names {{{name}}}, which errors.values does not"

    def dialect(self, name: str, title: str) -> Dialect:
        errors = self.errors
        return Dialect(
            title=title,
            provider=name,
            codes=tuple(one.place() for one in errors.code),
            rows=tuple(row for document in errors.rows for row in document.rows()),
            signs=tuple(one.sign() for one in errors.failed_when),
            partial=tuple(one.partial() for one in errors.partial),
            event_names=frozenset(one.event for one in errors.events if one.event is not None),
            event_errors=tuple(Condition(place(one.at), one.equals) for one in errors.events if one.at is not None),
            values={name: place(at) for name, at in errors.values.items()},
            native=errors.native,
            native_type=errors.native_type,
            waits=tuple(one.hint() for one in self.waits),
            request_id=tuple(place(at) for at in self.request_id),
            pagination=tuple(one.pagination() for one in self.pagination),
            idempotency=self.idempotency.form() if self.idempotency else None,
        )
