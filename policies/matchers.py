"""Patterns of the policy language, and the one decoded form of a path that they are matched against.

Hosts     exact, `*.x.example` (one label), `**.x.example` (one label or more), and the catalogue's templates such as
          `{shop}.myshopify.com` (one label for each variable).
Paths     `*` within one segment, `**` for any number of segments, also none, `{name}` for one whole segment.
Names     subjects and operations: exact, or with `*` for any run of characters.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal
from urllib.parse import unquote_to_bytes

LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST_TEXT: Final = re.compile(rf"{LABEL}(?:\.{LABEL})*")
_NUMERIC_LABEL: Final = re.compile(r"\d+|0x[0-9a-f]*")
_VARIABLE: Final = re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*\}")

# The common case, decided by one match: ASCII, no escape, no segment that begins with a dot, no empty segment.
_PLAIN_PATH: Final = re.compile(rb"(?:/[A-Za-z0-9_~!$&'()*+,=:@-][A-Za-z0-9_.~!$&'()*+,;=:@-]*)+/?|/")
_BROKEN_ESCAPE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_SECOND_ESCAPE: Final = re.compile(rb"%[0-9A-Fa-f]{2}")
_ENCODED_SLASH: Final = re.compile(rb"%2[fF]")
_DOT_SEGMENT: Final = re.compile(r"/\.{1,2}(?:;[^/]*)?(?:/|$)")


def decode_path(raw: bytes) -> str | None:
    """The percent-decoded copy of a path that rules are matched on, or None when it is ambiguous.

    `raw` is the path of an origin-form target, without its query. Ambiguous is what two servers may read differently:
    dot segments (RFC 3986 section 5.2.4), also as `..;x`; an encoded slash; a backslash; control characters; an empty
    segment; bytes that are not UTF-8; an escape that is broken, or that decodes to another escape; characters that
    some servers fold into a slash or a dot (Unicode NFKC).
    """
    if _PLAIN_PATH.fullmatch(raw):
        return raw.decode("ascii")
    if not raw.startswith(b"/") or _ENCODED_SLASH.search(raw) or _BROKEN_ESCAPE.search(raw):
        return None
    decoded = unquote_to_bytes(raw)
    if _SECOND_ESCAPE.search(decoded):
        return None
    try:
        text = decoded.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if _is_ambiguous(text) else text


def _is_ambiguous(text: str) -> bool:
    if not text.isascii():
        if any(unicodedata.category(letter) == "Cc" for letter in text):
            return True
        folded = unicodedata.normalize("NFKC", text)
        if folded.count("/") != text.count("/"):
            return True
        text = folded
    elif not text.isprintable():
        return True
    return "//" in text or "\\" in text or _DOT_SEGMENT.search(text) is not None


@dataclass(frozen=True, slots=True)
class HostPattern:
    """Which hosts a rule means.

    `text` is canonical: two patterns with the same text match the same hosts. `rank` orders by how specific it is:
    an exact host before any wildcard, a deeper wildcard before a shallower one, `*.x` before `**.x`.
    """

    kind: Literal["exact", "one", "deep", "template"]
    text: str
    rank: tuple[int, int]

    def matches(self, host: str) -> bool:
        if self.kind == "exact":
            return host == self.text
        return _host_regex(self.kind, self.text).fullmatch(host) is not None


EXACT_RANK: Final = (1_000, 0)


@lru_cache(maxsize=4096)
def network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """An address block. Raises ValueError. The rules of a document mostly name the same few."""
    return ipaddress.ip_network(text)


@lru_cache(maxsize=4096)
def _host_regex(kind: str, text: str) -> re.Pattern[str]:
    """The regular expression of a wildcard; compiled on first use, since most rules of a large set are never asked."""
    if kind == "deep":
        return re.compile(rf"(?:{LABEL}\.)+{re.escape(text.removeprefix('**.'))}")
    return re.compile(re.escape(text).replace(r"\*", LABEL))


@lru_cache(maxsize=8192)
def host_pattern(text: str) -> HostPattern:
    """A `host:` of a rule. Upper case, a trailing dot, brackets and Unicode names are brought to the canonical form.

    Raises ValueError saying what is wrong.
    """
    star = next((star for star in ("**.", "*.") if text.startswith(star)), "")
    name = _canonical_host(text[len(star) :])
    if not star:
        return HostPattern("exact", name, EXACT_RANK)
    if _is_address(name):
        raise ValueError(f'"{text}": an address takes no star')
    kind: Literal["one", "deep"] = "deep" if star == "**." else "one"
    return HostPattern(kind, star + name, (name.count(".") + 1, int(kind == "one")))


def host_template(text: str) -> HostPattern:
    """A host of the catalogue: exact, a wildcard, or with `{variable}` standing for one label or a part of one."""
    shape, variables = _VARIABLE.subn("*", text.lower())
    if not variables:
        return host_pattern(text)
    if shape.startswith("*.") and shape.count("*") == 1:
        return host_pattern(shape)
    literal = sum(1 for label in shape.split(".") if "*" not in label)
    return HostPattern("template", shape, (literal, 1))


def _canonical_host(text: str) -> str:
    name = text.removesuffix(".")
    if ":" in name and "%" not in name:
        try:
            return str(ipaddress.IPv6Address(name[1:-1] if name.startswith("[") and name.endswith("]") else name))
        except ValueError:
            raise ValueError(f'"{text}": write the host alone; a port has its own key') from None
    name = _to_ascii(name)
    if not _HOST_TEXT.fullmatch(name) or len(name) > 253:
        raise ValueError(f'"{text}" is not a host: write a name, an address, "*.name" or "**.name"')
    if _NUMERIC_LABEL.fullmatch(name.rsplit(".", 1)[-1]):
        return _canonical_address(text, name)
    return name


def _canonical_address(text: str, name: str) -> str:
    try:
        return str(ipaddress.IPv4Address(name))
    except ValueError:
        raise ValueError(f'"{text}": write an IPv4 address as four decimal numbers') from None


def _to_ascii(name: str) -> str:
    if name.isascii():
        return name.lower()
    import idna  # seldom needed, and slow to load

    try:
        return idna.encode(name, uts46=True).decode("ascii")
    except idna.IDNAError as error:
        raise ValueError(f'"{name}" is not a valid host name: {error}') from None


def _is_address(name: str) -> bool:
    return ":" in name or name.rsplit(".", 1)[-1].isdigit()


@dataclass(frozen=True, slots=True)
class PathPattern:
    """A path of a rule, decoded. `literal` counts the characters that are not stars: more is more specific. `names`
    are its named segments with their places; they match as stars do."""

    text: str
    segments: tuple[str, ...]
    literal: int
    names: tuple[tuple[str, int], ...] = ()

    def params(self, segments: Sequence[str]) -> dict[str, str]:
        """What the named segments stand for in a path that matches."""
        return {name: segments[place] for name, place in self.names}


@lru_cache(maxsize=8192)
def path_pattern(text: str) -> PathPattern:
    """A path of a rule: decoded like a call's. Raises ValueError when it is ambiguous or not a path at all."""
    if not text.startswith("/"):
        raise ValueError(f'"{text}": a path begins with "/"')
    starred, names = _named_segments(text)
    if reserved := next((sign for sign in "?#{}" if sign in starred), None):
        raise ValueError(f'"{text}": "{reserved}" has no meaning in a path pattern')
    decoded = decode_path(starred.encode())
    if decoded is None:
        raise ValueError(f'"{text}" can be read in more than one way (dot segments, empty segments, odd escapes)')
    segments = tuple(decoded[1:].split("/"))
    if any("**" in segment and segment != "**" for segment in segments):
        raise ValueError(f'"{text}": "**" stands for whole segments; within one write "*"')
    deep = next((place for place, segment in enumerate(segments) if segment == "**"), len(segments))
    if any(place > deep for _, place in names):
        raise ValueError(f'"{text}": a named segment stands before any "**", since behind it its place is not known')
    return PathPattern(text if names else decoded, segments, len(decoded) - decoded.count("*"), names)


def _named_segments(text: str) -> tuple[str, tuple[tuple[str, int], ...]]:
    """The pattern with a star for each `{name}`, and the names with their places. Raises ValueError."""
    if "{" not in text:
        return text, ()
    segments = text[1:].split("/")
    names = tuple((part[1:-1], place) for place, part in enumerate(segments) if _VARIABLE.fullmatch(part))
    if len({name for name, _ in names}) != len(names):
        raise ValueError(f'"{text}": a name stands in it twice')
    return "/" + "/".join("*" if _VARIABLE.fullmatch(part) else part for part in segments), names


@lru_cache(maxsize=4096)
def glob_regex(glob: str) -> re.Pattern[str]:
    """`*` is any run of characters, everything else is itself.

    Between two stars the first occurrence is as good as any later one, so it is taken for good (an atomic group): a
    long text made to almost match several stars costs no more than any other.
    """
    head, *rest = (re.escape(part) for part in glob.split("*"))
    middle = "".join(f"(?>.*?{part})" for part in rest[:-1])
    return re.compile(f"{head}{middle}.*{rest[-1]}" if rest else head, re.DOTALL)


def glob_matches(glob: str, text: str) -> bool:
    if "*" not in glob:
        return glob == text
    return glob == "*" or glob_regex(glob).fullmatch(text) is not None


def globs_overlap(one: str, other: str) -> bool:
    """Whether some text may match both: exact where one of them has no star, else judged by their two ends."""
    if "*" not in one:
        return glob_matches(other, one)
    if "*" not in other:
        return glob_matches(one, other)
    heads = one.split("*")[0], other.split("*")[0]
    tails = one.rsplit("*", 1)[1], other.rsplit("*", 1)[1]
    return (heads[0].startswith(heads[1]) or heads[1].startswith(heads[0])) and (
        tails[0].endswith(tails[1]) or tails[1].endswith(tails[0])
    )


def paths_overlap(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether some path may match both patterns, given as segments."""
    if not one or not other:
        return all(segment == "**" for segment in one + other)
    if one[0] == "**":
        return paths_overlap(one[1:], other) or paths_overlap(one, other[1:])
    if other[0] == "**":
        return paths_overlap(one, other[1:]) or paths_overlap(one[1:], other)
    return globs_overlap(one[0], other[0]) and paths_overlap(one[1:], other[1:])


def paths_match(pattern: Sequence[str], segments: Sequence[str]) -> bool:
    """Whether a path, given as segments, matches one pattern. Decisions use `policies.paths`, which takes many."""
    reached = {0}
    for part in pattern:
        if part == "**":
            reached = set(range(min(reached, default=len(segments) + 1), len(segments) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(segments) and _segment_matches(part, segments[at])}
        if not reached:
            return False
    return len(segments) in reached


def _segment_matches(part: str, segment: str) -> bool:
    return segment != "" if part == "*" else glob_matches(part, segment)
