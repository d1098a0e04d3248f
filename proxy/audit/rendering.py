"""What may stand in an audit line: time, and a path that names an operation without its secrets.

Webhook and bot addresses carry credentials in their path, so an unknown path is shown by its first two segments, and a
segment that looks like a token is masked.
"""

from __future__ import annotations

import re
import time
from itertools import pairwise
from typing import Final

MASK: Final = "*"
_SHOWN_SEGMENTS: Final = 2
_PLAIN: Final = re.compile(r"[A-Za-z0-9._~-]{1,64}\Z")
_LONG_RUN: Final = re.compile(r"[A-Za-z0-9]{16,}")
_REMEMBERED: Final = 4096


class Clock:
    """Formats epoch seconds as RFC 3339 UTC with milliseconds; the part down to the second is kept between calls."""

    __slots__ = ("_prefix", "_second")

    def __init__(self) -> None:
        self._second = -1
        self._prefix = ""

    def stamp(self, now: float) -> str:
        """`now` in epoch seconds, such as "2026-01-31T08:15:30.042Z"."""
        second = int(now)
        if second != self._second:
            self._second = second
            self._prefix = time.strftime("%Y-%m-%dT%H:%M:%S.", time.gmtime(second))
        return f"{self._prefix}{int((now - second) * 1000):03d}Z"


class PathTemplates:
    """Paths as they may be logged; the last few thousand are remembered."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def of(self, path: str | None, template: str | None = None) -> str:
        """The operation's template when the catalogue knows it, else `path` (without query) cut and masked.

        `path` is None when its decoded form is ambiguous; then nothing of it is shown but the root.
        """
        if template is not None:
            return template
        if path is None:
            return "/" + MASK
        shown = self._known.get(path)
        if shown is None:
            shown = shorten(path)
            if len(path) <= 256:
                self._remember(path, shown)
        return shown

    def _remember(self, path: str, shown: str) -> None:
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[path] = shown


def shorten(path: str) -> str:
    """The first two segments of a path, each masked if it looks like a token; "/..." stands for what was cut."""
    path = path.partition("?")[0].partition("#")[0]
    segments = path.split("/", _SHOWN_SEGMENTS + 1)[1:]
    shown = "/" + "/".join(_segment(segment) for segment in segments[:_SHOWN_SEGMENTS])
    return shown + "/..." if len(segments) > _SHOWN_SEGMENTS and segments[_SHOWN_SEGMENTS] else shown


def _segment(segment: str) -> str:
    return MASK if segment and looks_secret(segment) else segment


def looks_secret(text: str) -> bool:
    """Whether a word is more likely a token or an identifier of a person's thing than a name of an operation.

    True for anything but unreserved characters (RFC 3986 section 2.3), for over 64 characters, for a run of 16 or more
    letters and digits that holds a digit or changes case as often as random text, and for words that change between
    letters and digits often.
    """
    if not _PLAIN.match(text):
        return True
    if any(_random(run) for run in _LONG_RUN.findall(text)):
        return True
    return len(text) >= 12 and _changes(text) >= 4


def _random(run: str) -> bool:
    if any(character.isdigit() for character in run):
        return True
    humps = sum(1 for left, right in pairwise(run) if left.isupper() != right.isupper())
    # camelCase changes case about twice for each word of five letters; random text changes every other letter.
    return humps * 5 > len(run) * 2


def _changes(text: str) -> int:
    return sum(1 for left, right in pairwise(text) if left.isdigit() != right.isdigit())
