"""What an allow asks beyond letting a call leave: limits, which headers leave, what of the reply comes back."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, model_validator

from policies.base import Strict
from policies.matchers import glob_matches

Scope = Literal["tenant", "agent", "actor", "provider"]
_HEADER_GLOB: Final = re.compile(r"[a-z0-9!#$%&'+.^`|~-]{0,127}\*?")


def _header_glob(text: str) -> str:
    if not text or not _HEADER_GLOB.fullmatch(text):
        raise ValueError(f'"{text}" is not a header\'s name in lower case, or the beginning of names and one star')
    return text


HeaderGlob = Annotated[str, AfterValidator(_header_glob)]


class LimitDocument(Strict):
    """How much one of `by` may do: requests or bytes in `every` seconds, or calls at once."""

    requests: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    bytes: Annotated[int, Field(ge=1)] | None = None
    concurrent: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    every: Annotated[int, Field(ge=1, le=86_400)] | None = None
    """Seconds."""
    by: Annotated[tuple[Scope, ...], Field(min_length=1)] = ("tenant", "agent")

    @model_validator(mode="after")
    def _one_kind(self) -> LimitDocument:
        given = [key for key in ("requests", "bytes", "concurrent") if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError("a limit says one of requests, bytes and concurrent")
        if (self.every is None) != (given == ["concurrent"]):
            raise ValueError("requests and bytes are counted in so many seconds: every; calls at once are not")
        return self


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit. `owner` is the rule or setting that it belongs to: what is counted is counted for that alone."""

    owner: str
    kind: Literal["requests", "bytes", "concurrent"]
    amount: int
    every: int
    by: tuple[Scope, ...]


def limits(documents: Iterable[LimitDocument], owner: str) -> tuple[Limit, ...]:
    """The limits of one owner. Their place among the others is not part of them: a reload goes on counting."""
    return tuple(_limit(document, owner) for document in documents)


def _limit(document: LimitDocument, owner: str) -> Limit:
    by = tuple(sorted(set(document.by)))
    if document.requests is not None:
        return Limit(owner, "requests", document.requests, document.every or 0, by)
    if document.bytes is not None:
        return Limit(owner, "bytes", document.bytes, document.every or 0, by)
    return Limit(owner, "concurrent", document.concurrent or 0, 0, by)


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of one allow; None, or nothing, where it says nothing of it.

    headers       lower-case names (or beginnings and a star) of the caller's headers that leave; None for all of them
    credentials   what becomes of a credential that the caller sent: "strip", "refuse"; None leaves it to `credential`
    max_response  bytes of a reply's body
    drop_cookies  Set-Cookie does not reach the caller
    uncoded       the provider is asked for a reply that is not compressed
    """

    limits: tuple[Limit, ...] = ()
    headers: tuple[str, ...] | None = None
    credentials: Literal["strip", "refuse"] | None = None
    max_response: int | None = None
    drop_cookies: bool = False
    uncoded: bool = False

    def passes(self, name: str) -> bool:
        """Whether a header of the caller's may leave, by its comparable name."""
        return self.headers is None or any(glob_matches(glob, name) for glob in self.headers)


NO_TERMS: Final = Terms()
