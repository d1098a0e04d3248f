"""The format of a provider file. `schema()` publishes it as JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import date
from typing import Annotated, Any, Final, Literal
from urllib.parse import unquote

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from proxy.catalog.answers import AnswersDocument
from proxy.catalog.base import OneLine, one_or_many
from proxy.catalog.base import Strict as _Strict
from proxy.catalog.hmac import HmacDocument
from proxy.catalog.hosts import HostPattern, host_pattern, path_within
from proxy.catalog.inside import OTHER, Request, Selector
from proxy.catalog.located import Location
from proxy.catalog.operations import Operation, OperationIndex, path_segments, told_apart
from proxy.catalog.probes import ProbeDocument, probe_faults
from proxy.catalog.token import TokenDocument
from proxy.catalog.tool import Tool, ToolDocument, variables_in
from signers.placement import Injection, Placement, check_placement, prepare

Method = Literal["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"]
# RFC 9110 sections 9.2.1 and 9.2.2.
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_IDEMPOTENT: Final = _READING | {"PUT", "DELETE"}


def _checked_host(text: str) -> str:
    host_pattern(text)
    return text


def _checked_path(text: str) -> str:
    path_segments(text)
    return text


def _checked_base_path(text: str) -> str:
    if text != "/" and (text.endswith("/") or "{" in text or not path_segments(text)):
        raise ValueError(f"base path {text!r} must be / or literal segments without a slash at the end")
    return text


def _host_alone(value: Any) -> Any:
    return {"host": value} if isinstance(value, str) else value


Host = Annotated[str, AfterValidator(_checked_host)]
BasePath = Annotated[str, AfterValidator(_checked_base_path)]
AccountHeader = Annotated[str, Field(pattern=r"^\{[a-z][a-z0-9_]*\}$")]
PathTemplate = Annotated[str, AfterValidator(_checked_path)]


class SiteDocument(_Strict):
    """A host, and its base path where that is not the provider's. A host alone may be written as a string."""

    host: Host
    base_path: BasePath | None = None


class PlacementDocument(_Strict):
    """A position for a credential: a header, a query parameter, a cookie or a path's segment, and how it is written."""

    header: str | None = None
    query: str | None = None
    cookie: str | None = None
    path: str | None = Field(None, description="what the segment begins with; format begins with it too")
    format: str = Field("{value}", description="holds {value} once; 'Basic USER:{value}' is base64-encoded")

    @model_validator(mode="after")
    def _placeable(self) -> PlacementDocument:
        if sum(name is not None for name in (self.header, self.query, self.cookie, self.path)) != 1:
            raise ValueError("name exactly one of header, query, cookie and path")
        check_placement(self.placement())
        return self

    def placement(self) -> Placement:
        if self.header is not None:
            return Placement("header", self.header, self.format)
        if self.query is not None:
            return Placement("query", self.query, self.format)
        if self.path is not None:
            return Placement("path", self.path, self.format)
        return Placement("cookie", self.cookie or "", self.format)


class AuthDocument(_Strict):
    """The record kinds that the provider takes, each with its default placement."""

    bearer: PlacementDocument | None = None
    api_key: PlacementDocument | None = None
    basic: PlacementDocument | None = None
    aws: bool = Field(False, description="takes requests signed with an `aws` record, which places itself")
    hmac: HmacDocument | None = Field(None, description="how it wants requests signed with an `hmac` record")

    def signed(self) -> tuple[str, ...]:
        """The kinds that sign each request: they have no placement."""
        return (*(("aws",) if self.aws else ()), *(("hmac",) if self.hmac is not None else ()))

    def placements(self) -> dict[str, Placement]:
        kinds = {"bearer": self.bearer, "api_key": self.api_key, "basic": self.basic}
        return {kind: document.placement() for kind, document in kinds.items() if document is not None}


class PinDocument(_Strict):
    """A version header, added when the caller sent none of that name."""

    header: OneLine
    value: OneLine

    @model_validator(mode="after")
    def _sendable(self) -> PinDocument:
        self.injection()
        return self

    def injection(self) -> Injection:
        # A pin is held to the same rules as a header of a record.
        return prepare("headers", {"headers": {self.header: self.value}}, None, ())


class RevocationDocument(_Strict):
    """How the provider is asked to forget a token."""

    endpoint: str = Field(description="an https URL")
    style: Literal["rfc7009", "json", "bearer", "credentials"] = Field(
        "rfc7009",
        description="rfc7009: token in a form, the application authenticated; json: the same as JSON; "
        "bearer: the token ends itself; credentials: a JSON list of tokens, from anybody",
    )
    success: str = Field("", description="a member of the answer that has to be true, where 200 alone does not mean it")
    authentication: Literal["", "basic", "post", "none"] = Field(
        "", description="of the application; default: as at the token endpoint"
    )
    tokens: Literal["", "access_token", "refresh_token"] = Field("", description="the only type that ends there")
    invalid_token: Literal["ended", "unknown"] = Field(
        "ended", description="what that error means; unknown: the token may live on, another host knows it"
    )
    headers: dict[str, str] = Field({}, description="further ones that the endpoint requires")

    @model_validator(mode="after")
    def _askable(self) -> RevocationDocument:
        if not self.endpoint.startswith("https://"):
            raise ValueError("the endpoint must be an https URL")
        return self


Selected = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.+-]{0,80}$")]
GraphQLField = Annotated[str, Field(pattern=r"^[_A-Za-z][_0-9A-Za-z]{0,79}$")]


class GraphQLDocument(_Strict):
    """The root fields that policies may name, by type; all others of a type are its field `other`."""

    query: list[GraphQLField] = Field([])
    mutation: list[GraphQLField] = Field([])
    idempotent: list[GraphQLField] = Field([], description="those mutations that may be sent twice")

    def operations(self, name: str, method: str, path: str) -> Iterator[Operation]:
        for kind, fields in (("query", self.query), ("mutation", self.mutation), ("subscription", [])):
            for field in (*fields, OTHER):
                select, write = f"{kind}.{field}", kind == "mutation"
                yield Operation(f"{name}.{select}", method, path, write, not write or field in self.idempotent, select)


class SelectorDocument(_Strict):
    """What tells apart operations that share method and path: a header, a parameter, or the query's names."""

    header: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,60}$")] | None = None
    after: str = Field("", description="what follows the last of these in the header counts")
    parameter: OneLine | None = Field(None, description="of the query or of a form in the body")
    plain: list[OneLine] | None = Field(
        None, description="the names of the query's parameters tell: all but these, joined by + in the order of letters"
    )
    marks: list[Annotated[str, Field(pattern=r"^[a-z0-9-]{1,60}$")]] = Field(
        [], description="with plain: headers whose name counts like a parameter's"
    )
    method: Annotated[list[Method], one_or_many(Method)] = Field(["POST"], description="of reads and writes")
    path: Annotated[list[PathTemplate], one_or_many(PathTemplate)] = Field(["/"], description="of reads and writes")
    reads: list[Selected] = Field([], description="operations called what the selector finds, which change nothing")
    writes: list[Selected] = Field([])
    idempotent: list[Selected] = Field([], description="those writes that may be sent twice")

    @model_validator(mode="after")
    def _one_form(self) -> SelectorDocument:
        if (self.plain is not None) == (self.header is not None or self.parameter is not None):
            raise ValueError("name header or parameter or both, or else plain")
        return self

    def operations(self) -> Iterator[Operation]:
        for path in self.path:
            for method in self.method:
                for name in self.reads:
                    yield Operation(name, method, path, False, True, name)
                for name in self.writes:
                    yield Operation(name, method, path, True, name in self.idempotent, name)

    def selector(self) -> Selector:
        plain = frozenset(self.plain) if self.plain is not None else None
        return Selector((self.header or "").lower(), self.after, self.parameter or "", plain, tuple(self.marks))


class OperationDocument(_Strict):
    """One operation: its name, method or methods, whole path, and what repeating it would do."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,99}$")]
    method: Annotated[list[Method], one_or_many(Method), Field(min_length=1)]
    path: Annotated[list[PathTemplate], one_or_many(PathTemplate), Field(min_length=1)]
    write: bool | None = Field(None, description="default: false for GET, HEAD and OPTIONS")
    idempotent: bool | None = Field(None, description="default: true for what does not write, PUT and DELETE")
    select: Annotated[list[Selected], one_or_many(Selected)] | None = Field(
        None, description="what the provider's `selector` finds in a request for it, where method and path do not tell"
    )
    graphql: GraphQLDocument | None = Field(
        None, description="the endpoint takes GraphQL: its operations are NAME.query.FIELD, NAME.mutation.FIELD, …"
    )

    tool: ToolDocument | None = Field(None, description="the operation as a tool, by its first method and path")

    def writes(self, method: str) -> bool:
        return method not in _READING if self.write is None else self.write

    def repeatable(self, method: str) -> bool:
        return self.idempotent if self.idempotent is not None else not self.writes(method) or method in _IDEMPOTENT

    def operations(self) -> Iterator[Operation]:
        """One for each method and path; for a GraphQL endpoint one for each type and root field too."""
        for path in self.path:
            for method in self.method:
                if self.graphql is not None:
                    yield from self.graphql.operations(self.name, method, path)
                    continue
                selects: list[str | None] = [*self.select] if self.select else [None]
                for select in selects:
                    yield Operation(self.name, method, path, self.writes(method), self.repeatable(method), select)


class ProviderDocument(AnswersDocument):
    """A file of the provider catalogue."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,39}$", description="also the name of the file")]
    title: OneLine
    verified: date = Field(description="the day on which this file was last compared with its sources")
    source: Annotated[list[Annotated[str, Field(pattern=r"^https://\S+$")]], Field(min_length=1)]
    hosts: Annotated[
        list[Annotated[SiteDocument, BeforeValidator(_host_alone, json_schema_input_type=SiteDocument | str)]],
        Field(min_length=1),
    ]
    base_path: BasePath = "/"
    vars: dict[str, OneLine] = Field({}, description="what each variable of a host template means")
    auth: AuthDocument
    positions: list[PlacementDocument] = Field([], description="further positions in which it accepts a credential")
    pins: list[PinDocument] = Field([])
    env: dict[Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$")], OneLine] = Field({})
    unauthorized: Literal["credential", "permission"] = Field(
        "credential", description="what its 401 means: a credential to be renewed, or one that may not do this"
    )
    account_headers: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")], AccountHeader] = Field(
        {}, description="headers that go with the credential: {variable} of the record's vars"
    )
    token: TokenDocument | None = Field(None, description="its token endpoint")
    operations: list[OperationDocument] = Field([])
    selector: SelectorDocument | None = Field(None, description="tells operations of one method and path apart")
    probes: list[ProbeDocument] = Field([], description="what `sluicegate contract` asks")
    revocation: RevocationDocument | None = Field(None, description="absent: the provider offers none")

    def all_operations(self) -> Iterator[Operation]:
        """What its calls are called: those that are listed, and those that the selector lists."""
        for operation in self.operations:
            yield from operation.operations()
        if self.selector is not None:
            yield from self.selector.operations()

    def tools(self) -> Iterator[Tool]:
        """Operations as tools, at the host that the file names first."""
        for one in self.operations:
            if one.tool is not None:
                method, path = one.method[0], one.path[0]
                yield one.tool.compiled(
                    self.name, one.name, method, path, self.hosts[0].host, one.writes(method), one.repeatable(method)
                )

    def sites(self) -> list[tuple[HostPattern, str]]:
        return [(host_pattern(site.host), site.base_path or self.base_path) for site in self.hosts]

    def faults(self) -> Iterator[tuple[Location, str]]:
        """What single values cannot show: (location, message) of each contradiction inside the file."""
        yield from self._variable_faults()
        yield from self._site_faults()
        yield from self._pin_faults()
        yield from self._operation_faults()
        yield from self.answer_faults()
        yield from probe_faults(self.probes)
        yield from self._probe_faults()
        if not self.auth.placements() and not self.auth.signed():
            yield ("auth",), "name at least one record kind: bearer, api_key, basic, aws or hmac"

    def _probe_faults(self) -> Iterator[tuple[Location, str]]:
        operations = list(self.all_operations()) if self.probes else []
        selector = self.selector.selector() if self.selector is not None else None
        for number, probe in enumerate(self.probes):
            if not _only_reads(operations, selector, probe):
                yield ("probes", number), f"{probe.method} {probe.path} is no operation here that only reads"

    def _variable_faults(self) -> Iterator[tuple[Location, str]]:
        used = {name for pattern, _ in self.sites() for name in pattern.variables}
        for name in sorted(used - self.vars.keys()):
            yield ("hosts",), f"variable {name!r} is not described in vars"
        sent = {text[1:-1] for text in self.account_headers.values()}
        for name in sorted(sent - self.vars.keys()):
            yield ("account_headers",), f"variable {name!r} is not described in vars"
        learned = self.token.learned() if self.token is not None else set()
        for name in sorted(learned - self.vars.keys()):
            yield ("token",), f"variable {name!r} is learned and not described in vars"
        for name in sorted(self.vars.keys() - used - sent - learned):
            yield ("vars", name), f"variable {name!r} stands in no host"

    def _site_faults(self) -> Iterator[tuple[Location, str]]:
        seen: set[tuple[str, str]] = set()
        for number, (pattern, base_path) in enumerate(self.sites()):
            if (pattern.text, base_path) in seen:
                yield ("hosts", number), f"host {pattern.text!r} stands here twice with base path {base_path}"
            seen.add((pattern.text, base_path))

    def _pin_faults(self) -> Iterator[tuple[Location, str]]:
        seen: set[str] = set()
        for number, pin in enumerate(self.pins):
            if pin.header.lower() in seen:
                yield ("pins", number), f"header {pin.header!r} is pinned twice"
            seen.add(pin.header.lower())

    def _operation_faults(self) -> Iterator[tuple[Location, str]]:
        names: set[str] = set()
        shapes: dict[tuple[str, tuple[str, ...]], dict[str | None, str]] = {}
        bases = {base_path for _, base_path in self.sites()}
        for number, operation in enumerate(self.operations):
            if operation.name in names:
                yield ("operations", number, "name"), f"operation {operation.name!r} stands here twice"
            names.add(operation.name)
            yield from ((("operations", number, "tool"), fault) for fault in tool_faults(operation, self.hosts[0].host))
            for path in operation.path:
                if not any(path_within(path, base) for base in bases):
                    yield ("operations", number, "path"), f"path {path!r} is below no base path of this provider"
            if operation.select is not None and (self.selector is None or operation.graphql is not None):
                yield ("operations", number, "select"), "select needs a selector of the provider's, and no graphql"
            for one in operation.operations():
                known = shapes.setdefault((one.method, path_segments(one.path)), {})
                if (first := _claimed(known, one)) is not None:
                    yield ("operations", number, "path"), f"{one.method} {one.path} is {first!r} already"
                known.setdefault(one.select, one.name)


def tool_faults(operation: OperationDocument, host: str) -> Iterator[str]:
    """What a tool's arguments do not cover: each variable of path and host is a required one."""
    tool = operation.tool
    if tool is None:
        return
    for name in (*variables_in(operation.path[0]), *variables_in(host)):
        if name not in tool.required:
            yield f"{name!r} of the path or host has to be a required argument"
    for name in tool.placeholders():
        if name not in tool.arguments:
            yield f"{{{name}}} is no argument"


def _only_reads(operations: Iterable[Operation], selector: Selector | None, probe: ProbeDocument) -> bool:
    """Whether a probe is a call that is known to change nothing."""
    known = OperationIndex(told_apart(operations, selector)).find(probe.method, unquote(probe.path.partition("?")[0]))
    if known is None or known.inside is None:
        return known is not None and not known.write
    body = b"" if probe.body is None else json.dumps(probe.body).encode()
    headers = {"Content-Type": "application/json", **probe.headers} if body else probe.headers
    lines = [(name.lower().encode(), name.encode(), value.encode()) for name, value in headers.items()]
    found = known.inside.find(Request(probe.method, probe.path.encode(), lines, body)).operations
    return bool(found) and not any(operation.write for operation in found)


def _claimed(known: dict[str | None, str], operation: Operation) -> str | None:
    """The operation that a request for this one would be taken for; `known` are those of the same method and path."""
    first: str | None = known.get(operation.select)
    if first is None and (operation.select is None or None in known):  # what nothing selects would be found instead
        first = next(iter(known.values()), None)
    return first if first != operation.name else None


def schema() -> dict[str, Any]:
    """The format as JSON Schema (draft 2020-12), for editors."""
    return ProviderDocument.model_json_schema(mode="validation") | {
        "$schema": "https://json-schema.org/draft/2020-12/schema"
    }
