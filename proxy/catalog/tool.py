"""What a provider file says of an operation as a tool: its arguments, the request made of them, what is read back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import Field, model_validator

from proxy.catalog.base import OneLine, Strict
from proxy.dialect.places import Place, place

ArgumentName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,59}$")]
FieldType = Literal["string", "integer", "number", "boolean", "id", "time", "object", "strings"]
Unit = Literal["seconds", "milliseconds", "iso"]
Coding = Literal["json", "form"]

_JSON_TYPES: Final[Mapping[str, dict[str, Any]]] = {
    "string": {"type": "string"},
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "boolean": {"type": "boolean"},
    "id": {"type": "string"},
    "time": {"type": "string", "format": "date-time"},
    "object": {"type": "object"},
    "strings": {"type": "array", "items": {"type": "string"}},
}


@dataclass(frozen=True, slots=True)
class ToolField:
    """One promised field. `unit` is what a time is counted in; `required`: its absence is the provider's fault."""

    name: str
    place: Place
    type: FieldType
    unit: Unit
    required: bool

    def schema(self) -> dict[str, Any]:
        """JSON Schema of the value."""
        promised = _JSON_TYPES[self.type]
        return dict(promised) if self.required else {**promised, "type": [promised["type"], "null"]}


@dataclass(frozen=True, slots=True)
class Tool:
    """An operation as a tool.

    `query`, `headers` and `body` are templates: a text that is `{argument}` stands for the argument's value, and goes
    with its key where the argument is absent. `items` is where a page's items are; None for a single answer.
    """

    name: str
    description: str
    provider: str
    operation: str
    method: str
    path: str
    host: str
    write: bool
    idempotent: bool
    arguments: Mapping[str, Any]
    query: Mapping[str, Any]
    headers: Mapping[str, Any]
    body: Any
    coding: Coding
    fields: tuple[ToolField, ...]
    items: Place | None
    paged: bool

    def output_schema(self) -> dict[str, Any]:
        """JSON Schema of `data`."""
        shape = {
            "type": "object",
            "properties": {field.name: field.schema() for field in self.fields},
            "required": [field.name for field in self.fields],
            "additionalProperties": False,
        }
        if self.items is None:
            return shape
        return {
            "type": "object",
            "properties": {"items": {"type": "array", "items": shape}},
            "required": ["items"],
            "additionalProperties": False,
        }


class ToolFieldDocument(Strict):
    """A field of the answer. A place alone may be written as a string."""

    at: str = Field(description="where it stands in the answer, or in each item: $.path.in.json")
    type: FieldType = "string"
    unit: Unit = Field("iso", description="of a time: what the provider counts it in")
    required: bool = Field(False, description="its absence is an error that names it; else it is null")

    @model_validator(mode="after")
    def _placed(self) -> ToolFieldDocument:
        place(self.at)
        return self

    def compiled(self, name: str) -> ToolField:
        return ToolField(name, place(self.at), self.type, self.unit, self.required)


class ToolDocument(Strict):
    """An operation as a tool."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
    description: Annotated[str, Field(min_length=20, max_length=1000)] = Field(
        description="for a model: what it does, when to use it, what comes back"
    )
    arguments: dict[ArgumentName, dict[str, Any]] = Field(description="JSON Schema of each argument")
    required: list[ArgumentName] = Field([], description="arguments that have to be there")
    query: dict[OneLine, Any] = Field({}, description="query parameters: texts, or {argument}")
    headers: dict[OneLine, str] = Field({}, description="header lines: texts, or {argument}")
    body: dict[str, Any] | None = Field(None, description="the body's members: values, or {argument}")
    coding: Coding = Field("json", description="of the body; a GraphQL document is JSON with query and variables")
    fields: dict[ArgumentName, ToolFieldDocument] = Field(min_length=1)
    items: str | None = Field(None, description="where a page's items are: $.path")
    paged: bool = Field(False, description="the operation's pagination offers further pages")

    @model_validator(mode="after")
    def _readable(self) -> ToolDocument:
        if self.items is not None:
            place(self.items)
        unknown = [name for name in self.required if name not in self.arguments]
        if unknown:
            raise ValueError(f"required names {unknown[0]!r}, which is no argument")
        return self

    def placeholders(self) -> Iterator[str]:
        """The arguments that query, headers and body name."""
        yield from named_in([self.query, self.headers, self.body])

    def compiled(
        self, provider: str, operation: str, method: str, path: str, host: str, write: bool, idempotent: bool
    ) -> Tool:
        schema = {
            "type": "object",
            "properties": dict(self.arguments),
            "required": list(self.required),
            "additionalProperties": False,
        }
        return Tool(
            self.name, self.description, provider, operation, method, path, host, write, idempotent, schema,
            self.query, self.headers, self.body, self.coding,
            tuple(one.compiled(name) for name, one in self.fields.items()),
            place(self.items) if self.items is not None else None, self.paged,
        )  # fmt: skip


def named_in(template: Any) -> Iterator[str]:
    """The arguments that a template names."""
    if isinstance(template, dict):
        for value in template.values():
            yield from named_in(value)
    elif isinstance(template, list):
        for value in template:
            yield from named_in(value)
    elif (name := argument_of(template)) is not None:
        yield name


def variables_in(template: str) -> list[str]:
    """The variables of a path or host template."""
    return re.findall(r"\{([a-z][a-z0-9_]*)\+?\}", template)


def argument_of(text: Any) -> str | None:
    """The argument that a text stands for; None for a text of its own."""
    if isinstance(text, str) and text[:1] == "{" and text[-1:] == "}" and text[1:-1].replace("_", "a").isalnum():
        return text[1:-1]
    return None
