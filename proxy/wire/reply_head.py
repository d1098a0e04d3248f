"""From an upstream reply's bytes to a judged ReplyHead (pure)."""

from __future__ import annotations

from copy import copy
from typing import Final

from proxy.model import Headers
from proxy.wire.framing import (
    Limits,
    broken_reply,
    comparable,
    content_length,
    header_section,
    is_chunked,
    status_line,
    tokens,
)

# Connection-level fields of the upstream hop, our own names (nobody upstream may speak for us), and Alt-Svc, which
# would lead the client round the proxy.
_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})
_DROPPED: Final = frozenset(
    b"connection keep-alive proxy-connection proxy-authenticate proxy-authentication-info te upgrade alt-svc".split()
)
_POINTING: Final = frozenset({b"location", b"content-location", b"link", b"strict-transport-security"})
_NOTED: Final = _FRAMING | _POINTING | {b"connection", b"upgrade", b"content-encoding"}


class ReplySection:
    """What a reply's header section says, derived once and kept with the connection while it repeats.

    kept        (name, value) of the end-to-end lines in order, the framing lines among them
    length      Content-Length; None without one
    chunked     the body is chunked
    close       the provider will close; `keep_alive` an HTTP/1.0 provider will not
    upgrade     values of Upgrade, for a 101
    coding      Content-Encoding, lower-case; b"" without one
    pointing    some line may point at the provider's own URLs (Location, Link) or pins its scheme (HSTS)
    """

    __slots__ = ("chunked", "close", "coding", "keep_alive", "kept", "length", "pointing", "upgrade")

    def __init__(self, kept: Headers, by_name: dict[bytes, list[bytes]]) -> None:
        connection = tokens(by_name.get(b"connection", []))
        doomed = connection - _FRAMING - {b"close", b"keep-alive", b"upgrade"}
        self.kept = [line for line in kept if line[0].lower() not in doomed] if doomed else kept
        self.close, self.keep_alive = b"close" in connection, b"keep-alive" in connection
        self.upgrade = tuple(by_name.get(b"upgrade", []))
        self.coding = b",".join(by_name.get(b"content-encoding", [])).lower()
        self.pointing = not _POINTING.isdisjoint(by_name)
        try:
            self.length = content_length(by_name.get(b"content-length", []))
            self.chunked = is_chunked(by_name.get(b"transfer-encoding", []))
        except ValueError as fault:
            raise broken_reply(f"The provider's {fault} is repeated or has a value that is not accepted.") from None
        if self.chunked and self.length is not None:
            raise broken_reply("The provider sent both Content-Length and Transfer-Encoding.")

    def with_lines(self, kept: Headers) -> ReplySection:
        """The same section with other end-to-end lines."""
        other = copy(self)
        other.kept = kept
        return other

    def unsized(self) -> ReplySection:
        """The same section without a Content-Length, for a body whose length changes on its way."""
        other = self.with_lines([line for line in self.kept if line[0].lower() != b"content-length"])
        other.length = None
        return other


class ReplyHead:
    """A status line with its header section. `raw` and `section_raw` are the bytes it was made from.

    `memo` is the last rendering: (what it depends on, bytes).
    """

    __slots__ = ("memo", "minor", "raw", "reason", "section", "section_raw", "status")

    def __init__(
        self, raw: bytes, status: int, reason: bytes, minor: int, section: ReplySection, section_raw: bytes
    ) -> None:
        self.raw = raw
        self.status = status
        self.reason = reason
        self.minor = minor
        self.section = section
        self.section_raw = section_raw
        self.memo: tuple[object, bytes] | None = None

    def with_lines(self, kept: Headers) -> ReplyHead:
        """The same head with other end-to-end lines."""
        return ReplyHead(
            self.raw, self.status, self.reason, self.minor, self.section.with_lines(kept), self.section_raw
        )

    def unsized(self) -> ReplyHead:
        """The same head without a Content-Length."""
        return ReplyHead(self.raw, self.status, self.reason, self.minor, self.section.unsized(), self.section_raw)


def reply_section(raw: bytes) -> ReplySection:
    """Judges a reply's header section. Raises GatewayError(upstream_protocol)."""
    lines = header_section(raw)
    if lines is None:
        raise broken_reply("The provider's header section is not well-formed, or frames its body in two ways.")
    by_name: dict[bytes, list[bytes]] = {}
    kept: Headers = []
    for name, value in lines:
        lowered = name.lower()
        if lowered in _NOTED:
            by_name.setdefault(lowered, []).append(value)
        if lowered not in _DROPPED and not comparable(name).startswith(b"sluicegate-"):
            kept.append((name, value))
    return ReplySection(kept, by_name)


def reply_head(head: bytes, limits: Limits, last: ReplyHead | None) -> ReplyHead:
    """A whole reply head to a ReplyHead; `last` as in request_head. Raises GatewayError(upstream_protocol)."""
    if last is not None and last.raw == head:
        return last
    end = head.find(b"\r\n")
    status, reason, minor = status_line(head[:end])
    section_raw = head[end + 2 :]
    section = last.section if last is not None and last.section_raw == section_raw else reply_section(section_raw)
    if len(section.kept) > limits.lines:
        raise broken_reply(f"The provider sent more than {limits.lines} header lines.")
    if section.chunked and minor == 0:
        raise broken_reply("The provider sent Transfer-Encoding in HTTP/1.0.")
    return ReplyHead(head, status, reason, minor, section, section_raw)
