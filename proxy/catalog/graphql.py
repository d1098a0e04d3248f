"""What a GraphQL document asks for: type and root fields of all its operations, and where it goes on paging (pure).

Written for deciding, not for executing: whatever is not understood raises Unreadable, so that a server cannot read more
into a document than was judged. Grammar: GraphQL specification, October 2021, section 2.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

MOST_TOKENS: Final = 20_000
MOST_DEPTH: Final = 60
MOST_WALKED: Final = 5_000
"""Fields looked at when paging is looked for: fragments that use each other unfold without end."""

_TOKEN: Final = re.compile(
    r"""
      (?P<ignored>[\ufeff\t\n\r ,]+|\#[^\n\r]*)
    | (?P<name>[_A-Za-z][_0-9A-Za-z]*)
    | (?P<mark>\.\.\.|[!$&():=@\[\]{|}])
    | (?P<block>\"{3}(?:[^"\\]|\\"{3}|\\(?!"{3})|"(?!""))*\"{3})
    | (?P<string>"(?!"")(?:[^"\\\n\r]|\\[^\n\r])*")
    | (?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![.\w]))
    """,
    re.VERBOSE,
)
_CLOSING: Final = {"(": ")", "[": "]", "{": "}"}
Type = Literal["query", "mutation", "subscription"]
_TYPES: Final[dict[str, Type]] = {"query": "query", "mutation": "mutation", "subscription": "subscription"}


class Unreadable(ValueError):
    """The document is not one that can be judged."""


class Connection(NamedTuple):
    """A field that takes `after` from a variable: the keys that lead to it in the reply's data, and the variable."""

    path: tuple[str, ...]
    variable: str


class Asked(NamedTuple):
    """`fields` are (type, root field) of all operations, without repeats; `connection` is the one place where the
    document takes a cursor, None where there is none or more than one."""

    fields: tuple[tuple[Type, str], ...]
    connection: Connection | None


class _Field(NamedTuple):
    key: str
    name: str
    after: str
    inner: list[_Selection]


class _Spread(NamedTuple):
    fragment: str


class _Inline(NamedTuple):
    inner: list[_Selection]


_Selection = _Field | _Spread | _Inline


def asked(document: str) -> Asked:
    """What all operations of the document ask for. Raises Unreadable."""
    parser = _Parser(_tokens(document))
    parser.document()
    if not parser.operations:
        raise Unreadable("no operation")
    fields = {
        (kind, field.name): None
        for kind, selections in parser.operations
        for field in _roots(selections, parser.fragments)
    }
    one = parser.operations[0][1] if len(parser.operations) == 1 else []
    return Asked(tuple(fields), _connection(one, parser.fragments))


def _tokens(document: str) -> list[str]:
    found, at = [], 0
    while at < len(document):
        token = _TOKEN.match(document, at)
        if token is None:
            raise Unreadable("a character that GraphQL has no use for")
        if token.lastgroup != "ignored":
            # Only names and marks matter: every other value is told from them by its first character.
            found.append(token[0] if token.lastgroup in ("name", "mark") else "0")
            if len(found) > MOST_TOKENS:
                raise Unreadable("too long")
        at = token.end()
    return found


def _roots(selections: list[_Selection], fragments: dict[str, list[_Selection]]) -> Iterator[_Field]:
    """The fields at the top, those of fragments included; each fragment is looked into once."""
    todo, seen = list(selections), set()
    while todo:
        selection = todo.pop()
        if isinstance(selection, _Field):
            yield selection
        elif isinstance(selection, _Inline):
            todo += selection.inner
        elif selection.fragment not in fragments:
            raise Unreadable("a fragment that is not there")
        elif selection.fragment not in seen:
            seen.add(selection.fragment)
            todo += fragments[selection.fragment]


def _connection(selections: list[_Selection], fragments: dict[str, list[_Selection]]) -> Connection | None:
    found: list[Connection] = []
    todo: list[tuple[tuple[str, ...], list[_Selection]]] = [((), selections)]
    for _ in range(MOST_WALKED):
        if not todo:
            return found[0] if len(found) == 1 else None
        path, inner = todo.pop()
        for selection in inner:
            if isinstance(selection, _Field):
                here = (*path, selection.key)
                if selection.after:
                    found.append(Connection(here, selection.after))
                if selection.inner and len(here) < MOST_DEPTH:
                    todo.append((here, selection.inner))
            elif isinstance(selection, _Inline):
                todo.append((path, selection.inner))
            elif selection.fragment in fragments:
                todo.append((path, fragments[selection.fragment]))
    return None


class _Parser:
    """A recursive descent over the tokens; `operations` and `fragments` are what it found."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = [*tokens, ""]
        self._at = 0
        self.operations: list[tuple[Type, list[_Selection]]] = []
        self.fragments: dict[str, list[_Selection]] = {}

    def document(self) -> None:
        while self._next:
            if self._next == "{":
                self.operations.append(("query", self._selections(0)))
                continue
            word = self._name()
            if word in _TYPES:
                self._operation(_TYPES[word])
            elif word == "fragment":
                self._fragment()
            else:
                raise Unreadable("a definition that is neither an operation nor a fragment")

    @property
    def _next(self) -> str:
        return self._tokens[self._at]

    def _take(self) -> str:
        token = self._tokens[self._at]
        if not token:
            raise Unreadable("it ends too early")
        self._at += 1
        return token

    def _expect(self, mark: str) -> None:
        if self._take() != mark:
            raise Unreadable(f"{mark} is missing")

    def _name(self) -> str:
        token = self._take()
        if not (token[0].isalpha() or token[0] == "_"):
            raise Unreadable("a name is missing")
        return token

    def _operation(self, kind: Type) -> None:
        if self._next not in ("(", "@", "{"):
            self._name()
        if self._next == "(":
            self._balanced()
        self._directives()
        self.operations.append((kind, self._selections(0)))

    def _fragment(self) -> None:
        name = self._name()
        if name == "on" or name in self.fragments:
            raise Unreadable("a fragment without a name of its own")
        self._expect("on")
        self._name()
        self._directives()
        self.fragments[name] = self._selections(0)

    def _directives(self) -> None:
        while self._next == "@":
            self._take()
            self._name()
            if self._next == "(":
                self._balanced()

    def _balanced(self) -> None:
        """Skips what stands in brackets."""
        closing = [_CLOSING[self._take()]]
        while closing:
            token = self._take()
            if token in _CLOSING:
                closing.append(_CLOSING[token])
            elif token in ")]}" and token != closing.pop():
                raise Unreadable("brackets that do not match")

    def _selections(self, depth: int) -> list[_Selection]:
        if depth > MOST_DEPTH:
            raise Unreadable("too deep")
        self._expect("{")
        found: list[_Selection] = []
        while self._next != "}":
            found.append(self._spread(depth) if self._next == "..." else self._field(depth))
        self._take()
        if not found:
            raise Unreadable("an empty selection")
        return found

    def _spread(self, depth: int) -> _Selection:
        self._take()
        if self._next not in ("on", "@", "{"):
            name = self._name()
            self._directives()
            return _Spread(name)
        if self._next == "on":
            self._take()
            self._name()
        self._directives()
        return _Inline(self._selections(depth + 1))

    def _field(self, depth: int) -> _Field:
        key = name = self._name()
        if self._next == ":":
            self._take()
            name = self._name()
        after = self._arguments() if self._next == "(" else ""
        self._directives()
        return _Field(key, name, after, self._selections(depth + 1) if self._next == "{" else [])

    def _arguments(self) -> str:
        """The variable that `after` is given; empty without one."""
        start = self._at
        self._balanced()
        inside, level, after = self._tokens[start + 1 : self._at - 1], 0, ""
        for number, token in enumerate(inside):
            level += (token in _CLOSING) - (token in ")]}")
            if level == 0 and token == "after" and inside[number + 1 : number + 3] == [":", "$"]:
                after = inside[number + 3] if number + 3 < len(inside) else ""
        return after
