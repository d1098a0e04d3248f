"""Operations that share a method and path: which one a request is stands in a header, its query or its body (pure).

Whatever can be read in two ways is no operation at all, and so a write that no rule naming operations allows: a server
must not find another operation in a request than the one that was judged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qsl

from proxy.catalog.graphql import Connection, Unreadable, asked

if TYPE_CHECKING:
    from proxy.catalog.operations import Operation

OTHER: Final = "other"
"""What stands for root fields that the catalogue does not list: `graphql.query.other`."""
_JSON: Final = ("Content-Type", "application/json")
MEDIA_TYPE: Final = re.compile(r"[a-z0-9!#$&^_.+-]+/[a-z0-9!#$&^_.+-]+")
"""RFC 6838 section 4.2, lower-case. Of a list (`text/plain, a/b+json`) readers may take either end."""
_FORM: Final = "application/x-www-form-urlencoded"
_GRAPHQL_MEMBERS: Final = frozenset({"query", "variables", "operationName", "extensions"})
Lines = Sequence[tuple[bytes, bytes, bytes]]
"""A request's lines: (comparable name, name, value)."""


class Request(NamedTuple):
    """What is looked at. `body` is None where it is not there or larger than is read."""

    method: str
    target: bytes
    lines: Lines
    body: bytes | None

    def header(self, name: str) -> list[str]:
        return [value.decode("latin-1").strip() for compared, _, value in self.lines if compared == name.encode()]

    @property
    def query(self) -> list[tuple[str, str]]:
        return parse_qsl(self.target.partition(b"?")[2].decode("latin-1"), keep_blank_values=True)

    @property
    def kind(self) -> str:
        """The media type; empty where the body cannot be read as it stands (coded, another charset)."""
        if any(self.header("content-encoding")):
            return ""
        kind, _, rest = ("; ".join(self.header("content-type"))).lower().partition(";")
        charset = rest.partition("charset=")[2].strip(" \"'")
        return kind.strip() if charset in ("", "utf-8", "utf8") and MEDIA_TYPE.fullmatch(kind.strip()) else ""


class Found(NamedTuple):
    """The operations of a request, none where it is not known what it does; `connection` is where its GraphQL document
    goes on paging."""

    operations: tuple[Operation, ...] = ()
    connection: Connection | None = None


@dataclass(frozen=True, slots=True)
class Selector:
    """Where the operation's own name stands.

    header     a header; what follows the last `after` in it counts
    parameter  a parameter of the query or of a form
    plain      set where the names of the query's parameters tell (`?acl`): those that do not, with `marks` the headers
               that tell like a parameter
    """

    header: str = ""
    after: str = ""
    parameter: str = ""
    plain: frozenset[str] | None = None
    marks: tuple[str, ...] = ()

    @property
    def reads_body(self) -> bool:
        return bool(self.parameter)

    def name(self, request: Request) -> str | None:
        """What the request names; "" for nothing, None where it may name several."""
        if self.plain is not None:
            names = {name for name, _ in request.query} - self.plain
            return "+".join(sorted(names | {mark for mark in self.marks if request.header(mark)}))
        named = [value.rpartition(self.after)[2] if self.after else value for value in request.header(self.header)]
        if self.parameter:
            # A header speaks for JSON bodies only, and a body of no known kind might be taken for a form.
            if not _readable(request) or (named and request.kind == _FORM):
                return None
            named += [value for name, value in _parameters(request) if name == self.parameter]
        return named[0] if len(named) == 1 else None if named else ""


def _readable(request: Request) -> bool:
    if request.body == b"":
        return True
    return (request.kind == _FORM and request.body is not None) or "json" in request.kind


def _parameters(request: Request) -> list[tuple[str, str]]:
    found = request.query
    if request.body and request.kind == _FORM:
        found += parse_qsl(request.body.decode("latin-1"), keep_blank_values=True)
    return found


class Example(NamedTuple):
    """What makes a request of a shared method and path one of their operations."""

    query: str = ""
    lines: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


class Inside:
    """The operations of one method and path, by what selects them."""

    __slots__ = ("_choices", "_selector", "reads_body")

    def __init__(self, operations: Iterable[Operation], selector: Selector | None) -> None:
        """Without a selector they are told apart by GraphQL documents: each `select` is then type and root field."""
        self._choices = {operation.select: operation for operation in operations}
        self._selector = selector
        self.reads_body = selector is None or selector.reads_body

    @property
    def operations(self) -> tuple[Operation, ...]:
        return tuple(self._choices.values())

    def example(self, operation: Operation) -> Example:
        """How a request says that it is the operation."""
        select, selector = operation.select or "", self._selector
        if selector is None:
            kind, _, field = select.partition(".")
            return Example(lines=(_JSON,), body=json.dumps({"query": f"{kind} {{ {field} }}"}).encode())
        if selector.plain is not None:
            names = select.split("+") if select else []
            marks = tuple((name, "example") for name in names if name in selector.marks)
            return Example("&".join(name for name in names if name not in selector.marks), marks)
        if selector.header:
            return Example(lines=((selector.header, f"example{selector.after}{select}"), _JSON), body=b"{}")
        return Example(f"{selector.parameter}={select}")

    def find(self, request: Request) -> Found:
        """Which operations a request asks for. Never raises."""
        if self._selector is not None:
            name = self._selector.name(request)
            operation = self._choices.get(name) if name is not None else None
            return Found((operation,) if operation is not None else ())
        try:
            return self._documents(_documents(request))
        except (Unreadable, ValueError, RecursionError):
            return Found()

    def _documents(self, documents: list[str]) -> Found:
        found: dict[str, Operation] = {}
        connection = None
        for document in documents:
            fields, connection = asked(document)
            for kind, field in fields:
                operation = self._choices.get(f"{kind}.{field}") or self._choices[f"{kind}.{OTHER}"]
                found[operation.name] = operation
        return Found(tuple(found.values()), connection if len(documents) == 1 else None)


def _documents(request: Request) -> list[str]:
    """The documents of a request. Raises ValueError where there may be others, or none."""
    in_query = [value for name, value in request.query if name in ("query", "id", "documentId", "extensions")]
    if request.method == "GET":
        if len(in_query) != 1 or not any(name == "query" for name, _ in request.query) or request.body != b"":
            raise ValueError("not one document in the query")
        return in_query
    if in_query or request.body is None:
        raise ValueError("a document in the query of a request with a body")
    if request.kind == "application/graphql":
        return [request.body.decode()]
    if request.kind != "application/json" and not request.kind.endswith("+json"):
        raise ValueError("a body of another kind")
    value = json.loads(request.body.decode(), object_pairs_hook=_unique)
    return [_document(one) for one in value] if isinstance(value, list) and value else [_document(value)]


def _document(value: Any) -> str:
    """The document of one JSON request. A persisted one names what only the server knows."""
    if not isinstance(value, dict) or not value.keys() <= _GRAPHQL_MEMBERS:
        raise ValueError("members whose meaning is not known")
    document, extensions = value.get("query"), value.get("extensions")
    if not isinstance(document, str) or (isinstance(extensions, dict) and "persistedQuery" in extensions):
        raise ValueError("no document")
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object none of whose names stands twice: readers disagree on which of them counts."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice")
    return found
