"""What a rule asks of a call beyond where it goes: its query, the type and size of its body, a `when:` expression.

Whether a condition holds may not be known: a body that cannot be read, a member that is not there. Then an allow does
not match and a deny does, so that what cannot be judged is not let out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from policies.expressions import Expression, Unjudgeable
from policies.matchers import glob_matches


class _Unread:
    """Stands for a body that is not there to be read."""

    def __repr__(self) -> str:
        return "UNREAD"


UNREAD: Final = _Unread()


@dataclass(frozen=True, slots=True)
class Content:
    """What a call holds, as far as conditions may look. Nothing of it is ever shown.

    query         decoded values by decoded name, in order
    headers       values by comparable name, of the headers that conditions may look at
    content_type  the media type, lower-case, without parameters; "" without one
    body_size     bytes; None where it is not known
    body          what the body says (policies/bodies.py); UNREAD where it cannot be told
    """

    query: Mapping[str, Sequence[str]] = field(default_factory=dict, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    content_type: str = ""
    body_size: int | None = 0
    body: Any = field(default=UNREAD, repr=False)


class Asked(NamedTuple):
    """The rest of what an expression may speak of. `path` is decoded, None when it is ambiguous."""

    method: str
    path: str | None
    tenant: str = ""
    agent: str = ""
    actor: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """All that one rule asks; None, or nothing, is not asked."""

    query: tuple[tuple[str, tuple[str, ...]], ...] = ()
    content_types: tuple[str, ...] = ()
    max_body: int | None = None
    when: Expression | None = None

    @property
    def reads_body(self) -> bool:
        return self.when is not None and "body" in self.when.variables

    @property
    def wants_size(self) -> bool:
        """Whether the body's size has to be known, be it by waiting for its end."""
        return self.max_body is not None or (self.when is not None and "body_size" in self.when.variables)

    def failure(self, content: Content | None, asked: Asked, params: Mapping[str, str], *, denies: bool) -> str | None:
        """Why the rule does not match, None when it does. Without a content nothing of the call is known."""
        if content is None:
            return None if denies else "what the call holds is not known"
        return (
            self._query(content, denies=denies)
            or self._content_type(content, denies=denies)
            or self._size(content)
            or self._when(content, asked, params, denies=denies)
        )

    def _query(self, content: Content, *, denies: bool) -> str | None:
        """An allow wants every value of a parameter to match, a deny one: servers differ in which one they take."""
        quantified = any if denies else all
        for name, globs in self.query:
            values = content.query.get(name, ())
            if not values or not quantified(any(glob_matches(glob, value) for glob in globs) for value in values):
                return f"query parameter {name} is not as the rule wants it"
        return None

    def _content_type(self, content: Content, *, denies: bool) -> str | None:
        if not self.content_types or any(glob_matches(glob, content.content_type) for glob in self.content_types):
            return None
        if denies and not content.content_type and content.body_size != 0:
            return None  # a body of no declared type may be taken for any
        return f"content type is {content.content_type or 'not given'}, the rule lists {', '.join(self.content_types)}"

    def _size(self, content: Content) -> str | None:
        if self.max_body is None or (content.body_size is not None and content.body_size <= self.max_body):
            return None
        return f"the body is larger than {self.max_body} bytes, or its size is not known"

    def _when(self, content: Content, asked: Asked, params: Mapping[str, str], *, denies: bool) -> str | None:
        if self.when is None:
            return None
        try:
            return None if self.when.holds(_values(content, asked, params)) else "its when is false"
        except Unjudgeable as why:
            return None if denies else f"its when cannot be judged: {why}"


class _Values(dict[str, Any]):
    """What an expression may speak of; what is not known is missing, and asking for it cannot be judged."""

    def __missing__(self, name: str) -> Any:
        raise Unjudgeable("the body cannot be read" if name.startswith("body") else f"{name} is not known")


def _values(content: Content, asked: Asked, params: Mapping[str, str]) -> _Values:
    values = _Values(
        method=asked.method,
        params=dict(params),
        query={name: list(found) for name, found in content.query.items()},
        headers=dict(content.headers),
        content_type=content.content_type,
        tenant=asked.tenant,
        agent=asked.agent,
        actor=asked.actor,
    )
    if asked.path is not None:
        values["path"], values["segments"] = asked.path, asked.path[1:].split("/")
    if content.body_size is not None:
        values["body_size"] = content.body_size
    if content.body is not UNREAD:
        values["body"] = content.body
    return values
