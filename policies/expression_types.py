"""The types of a condition's expression, worked out before any call is judged by it.

The library that evaluates CEL finds a wrong type only when a call comes, and compares a number with a text to "not
equal": a deny with such a slip would never match. So the expression is read here as well, by the grammar of
https://github.com/google/cel-spec/blob/master/doc/langdef.md, less messages, and everything that can be known is
checked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

Type = str
"""bool, int, uint, double, string, bytes, null, type, dyn (known when a call comes), "list T" or "map T"."""
MAX_DEPTH: Final = 24
_NUMBERS: Final = frozenset({"int", "uint", "double"})
_MACROS: Final = frozenset({"all", "exists", "exists_one", "map", "filter"})
_CONVERSIONS: Final = frozenset({"int", "uint", "double", "string", "bytes"})
_TEXT_TESTS: Final = frozenset({"contains", "startsWith", "endsWith", "matches"})
_ORDERED: Final = frozenset({"int", "uint", "double", "string", "bytes", "bool"})
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<string>[rR]?"(?:[^"\\\n]|\\.)*"|[rR]?'(?:[^'\\\n]|\\.)*')
    |(?P<double>\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)
    |(?P<uint>(?:0x[0-9a-fA-F]+|\d+)[uU])|(?P<int>0x[0-9a-fA-F]+|\d+)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<sign>\|\||&&|[<>=!]=|[-+*/%<>!?:.,()\[\]{}])
    |(?P<end>$))""",
    re.VERBOSE,
)


class ExpressionFault(ValueError):
    """An expression that cannot be used; `args[0]` says why, for who wrote it."""


class Token(NamedTuple):
    kind: str
    text: str


class Names(NamedTuple):
    """What an expression may speak of: variables with their types, and the members of those maps that are closed."""

    variables: Mapping[str, Type]
    members: Mapping[str, frozenset[str]]


class Found(NamedTuple):
    """What was found out about an expression."""

    type: Type
    variables: frozenset[str]
    patterns: tuple[str, ...]
    """The literals, quotes included, that `matches` is given."""


def check(text: str, names: Names) -> Found:
    """The type of an expression and what it speaks of. Raises ExpressionFault."""
    reader = _Reader(tuple(_tokens(text)), names)
    found = reader.expression()
    if reader.next.kind != "end":
        raise ExpressionFault(f'"{reader.next.text}" was not expected there')
    return Found(found, frozenset(reader.used), tuple(reader.patterns))


def _tokens(text: str) -> Iterator[Token]:
    at = 0
    while True:
        match = _TOKEN.match(text, at)
        if match is None:
            raise ExpressionFault(f'"{text[at:].strip()[:12]}" cannot be read')
        yield Token(str(match.lastgroup), match[0].strip())
        if match.lastgroup == "end":
            return
        at = match.end()


def _alike(one: Type, other: Type) -> bool:
    """Whether values of the two types can be equal."""
    if "dyn" in (one, other) or one == other or {one, other} <= _NUMBERS:
        return True
    return _inner(one) is not None and one.split(" ")[0] == other.split(" ")[0] and _alike(*map(_item, (one, other)))


def _inner(of: Type) -> Type | None:
    shape, _, item = of.partition(" ")
    return item if shape in ("list", "map") else None


def _item(of: Type) -> Type:
    """What a list or map holds."""
    return _inner(of) or "dyn"


def _common(types: Sequence[Type]) -> Type:
    return types[0] if types and all(one == types[0] for one in types) else "dyn"


class _Reader:
    """Reads by recursive descent, each method one level of precedence, and gives the type of what it read."""

    def __init__(self, tokens: Sequence[Token], names: Names) -> None:
        self._tokens, self._at, self._depth = tokens, 0, 0
        self._names = names
        self._bound: dict[str, Type] = {}
        self.used: set[str] = set()
        self.patterns: list[str] = []

    @property
    def next(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self._tokens[self._at]
        if token.kind == "end":
            raise ExpressionFault("it ends too early")
        self._at += 1
        return token

    def _given(self, *signs: str) -> str:
        """The next token, if it is one of the signs (or the word `in`); "" otherwise."""
        token = self.next
        if token.text in signs and (token.kind == "sign" or token.text == "in"):
            self._at += 1
            return token.text
        return ""

    def _expect(self, sign: str) -> None:
        if not self._given(sign):
            raise ExpressionFault(f'"{sign}" was expected before "{self.next.text or "the end"}"')

    def expression(self) -> Type:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ExpressionFault("it is nested too deeply")
        found = self._either()
        if self._given("?"):
            _want(found, "bool", "what stands before ?")
            first = self._either()
            self._expect(":")
            found = _common([first, self.expression()])
        self._depth -= 1
        return found

    def _either(self) -> Type:
        return self._logical("||", lambda: self._logical("&&", self._relation))

    def _logical(self, sign: str, operand: Callable[[], Type]) -> Type:
        found = operand()
        while self._given(sign):
            _want(found, "bool", f"both sides of {sign}")
            found = operand()
            _want(found, "bool", f"both sides of {sign}")
        return found

    def _relation(self) -> Type:
        literal, start = self.next, self._at
        left = self._sum()
        while sign := self._given("==", "!=", "<=", ">=", "<", ">", "in"):
            if sign == "in" and literal.kind == "string" and self._at == start + 2:
                self._member(self.next.text, literal.text[1:-1])
            right = self._sum()
            _compare(left, sign, right)
            left = "bool"
        return left

    def _sum(self) -> Type:
        return self._arithmetic(("+", "-"), lambda: self._arithmetic(("*", "/", "%"), self._signed))

    def _arithmetic(self, signs: tuple[str, ...], operand: Callable[[], Type]) -> Type:
        left = operand()
        while sign := self._given(*signs):
            right = operand()
            left = _combined(left, sign, right)
        return left

    def _signed(self) -> Type:
        if self._given("!"):
            _want(self._deeper(), "bool", "what ! negates")
            return "bool"
        if self._given("-"):
            found = self._deeper()
            if found not in ("int", "double", "dyn"):
                raise ExpressionFault(f"- needs a number, not {found}")
            return found
        return self._members()

    def _deeper(self) -> Type:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ExpressionFault("it is nested too deeply")
        found = self._signed()
        self._depth -= 1
        return found

    def _members(self) -> Type:
        start = self.next
        found, root = self._primary(), start.text if start.kind == "name" else ""
        while sign := self._given(".", "["):
            found = self._selected(found, root) if sign == "." else self._indexed(found, root)
            root = ""
        return found

    def _selected(self, of: Type, root: str) -> Type:
        name = self._take()
        if name.kind != "name":
            raise ExpressionFault(f'a name was expected before "{name.text}"')
        if self._given("("):
            return self._called_on(of, name.text)
        if of != "dyn" and not of.startswith("map "):
            raise ExpressionFault(f"{of} has no members, so not {name.text}")
        self._member(root, name.text)
        return _item(of)

    def _indexed(self, of: Type, root: str) -> Type:
        token = self.next
        index = self.expression()
        self._expect("]")
        if of.startswith("map ") or of == "dyn":
            if root in self._names.members:
                self._member(root, token.text[1:-1] if token.kind == "string" else "")
            if of != "dyn":
                _want(index, "string", "the key of a map")
            return _item(of)
        if of.startswith("list "):
            _want(index, "int", "the index of a list")
            return _item(of)
        raise ExpressionFault(f"{of} cannot be indexed")

    def _member(self, root: str, name: str) -> None:
        known = self._names.members.get(root) if root not in self._bound else None
        if known is not None and name not in known:
            raise ExpressionFault(
                f'{root} holds no "{name}" here; it may be asked for: {", ".join(sorted(known)) or "nothing"}'
            )

    def _called_on(self, of: Type, name: str) -> Type:
        if name in _MACROS:
            return self._macro(of, name)
        if name == "size":
            self._expect(")")
            return _sized(of)
        if name not in _TEXT_TESTS:
            raise ExpressionFault(f"there is no function {name}")
        _want(of, "string", f"what {name} is asked of")
        pattern = self.next
        _want(self.expression(), "string", f"what {name} looks for")
        self._expect(")")
        if name == "matches":
            if pattern.kind != "string" or self._tokens[self._at - 2] is not pattern:
                raise ExpressionFault("matches needs a literal pattern, not one that a call could choose")
            self.patterns.append(pattern.text)
        return "bool"

    def _macro(self, of: Type, name: str) -> Type:
        variable = self._take()
        if variable.kind != "name" or variable.text in self._names.variables:
            raise ExpressionFault(f"{name} needs a variable of its own first")
        if self._bound:
            raise ExpressionFault(
                "one all, exists, map or filter cannot stand inside another: a call could make it slow"
            )
        if of != "dyn" and _inner(of) is None:
            raise ExpressionFault(f"{name} goes over a list or a map, not over {of}")
        self._expect(",")
        self._bound[variable.text] = "string" if of.startswith("map ") else _item(of)
        result = self.expression()
        del self._bound[variable.text]
        self._expect(")")
        if name == "map":
            return f"list {result}"
        _want(result, "bool", f"what {name} asks of each")
        return (of if of.startswith("list ") else "list dyn") if name == "filter" else "bool"

    def _primary(self) -> Type:
        token = self._take()
        if token.kind in ("string", "double", "uint", "int"):
            return token.kind
        if token.text == "(":
            found = self.expression()
            self._expect(")")
            return found
        if token.text == "[":
            return f"list {_common(list(self._listed(']')))}"
        if token.kind != "name":
            raise ExpressionFault(f'"{token.text}" was not expected there')
        if token.text in ("true", "false"):
            return "bool"
        if token.text == "null":
            return "null"
        return self._function(token.text) if self._given("(") else self._variable(token.text)

    def _listed(self, end: str) -> Iterator[Type]:
        while not self._given(end):
            yield self.expression()
            if not self._given(","):
                self._expect(end)
                return

    def _variable(self, name: str) -> Type:
        if name in self._bound:
            return self._bound[name]
        if name not in self._names.variables:
            raise ExpressionFault(f'"{name}" is unknown; known are {", ".join(sorted(self._names.variables))}')
        self.used.add(name)
        return self._names.variables[name]

    def _function(self, name: str) -> Type:
        before = self._at
        arguments = list(self._listed(")"))
        if name not in {"has", "size", *_CONVERSIONS}:
            raise ExpressionFault(f"there is no function {name}")
        if len(arguments) != 1:
            raise ExpressionFault(f"{name} takes one thing")
        if name == "has":
            if self._tokens[self._at - 3].text != "." or self._at - before < 4:
                raise ExpressionFault("has asks for a member: has(body.name)")
            return "bool"
        return _sized(arguments[0]) if name == "size" else name


def _want(found: Type, wanted: Type, what: str) -> None:
    if found not in (wanted, "dyn"):
        raise ExpressionFault(f"{what} must be {wanted}, not {found}")


def _sized(of: Type) -> Type:
    if of not in ("string", "bytes", "dyn") and _inner(of) is None:
        raise ExpressionFault(f"{of} has no size")
    return "int"


def _compare(left: Type, sign: str, right: Type) -> None:
    if sign == "in":
        if right != "dyn" and _inner(right) is None:
            raise ExpressionFault(f"in looks into a list or a map, not into {right}")
        item = "string" if right.startswith("map ") else _item(right)
        if not _alike(left, item):
            raise ExpressionFault(f"{left} cannot be in {right}")
    elif not _alike(left, right):
        raise ExpressionFault(f"{left} {sign} {right} is never the same kind of thing")
    elif sign not in ("==", "!=") and not {left, right} <= _ORDERED | {"dyn"}:
        raise ExpressionFault(f"{left} {sign} {right} has no order")


def _combined(left: Type, sign: str, right: Type) -> Type:
    if "dyn" in (left, right):
        return "dyn"
    addable = left in _NUMBERS or (sign == "+" and (left in ("string", "bytes") or left.startswith("list ")))
    if left != right or not addable or (sign == "%" and left == "double"):
        raise ExpressionFault(f"{left} {sign} {right} cannot be worked out; convert with int(), double() or string()")
    return left
