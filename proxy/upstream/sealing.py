"""Signed requests on their way: the head made anew for each attempt, and the body as far as a signature covers it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Final, TypeVar

from proxy.errors import GatewayError
from proxy.model import Call
from proxy.upstream.rendering import Pins
from proxy.wire.reply_head import ReplyHead
from signers.signing import Coder, Outgoing, Signing, Unsignable

log = logging.getLogger("sluicegate.signing")

SKEW_NOTICED: Final = 60.0
"""Seconds between our clock and the provider's from which a refusal is blamed on it; providers allow five minutes."""
SKEW_BELIEVED: Final = 86_400.0
"""A provider's clock that is further off than this is not followed: signatures must not be made for another time."""
MAX_SKEWS: Final = 1_024

_REFUSALS: Final = frozenset({400, 401, 403})
_HOLDING_DROPS: Final = frozenset({b"transfer-encoding", b"trailer", b"expect", b"content-length"})

T = TypeVar("T")
Skews = dict[str, float]
"""Seconds to add to our clock, by host, where its replies have shown that they disagree."""


class Seal:
    """One call's signature, made for each attempt with the time of that attempt.

    Raises GatewayError(malformed_request) when the request cannot be signed; so do `overflow`, `piece` and `end`.
    """

    def __init__(
        self,
        call: Call,
        signing: Signing,
        pins: Pins,
        is_session: Callable[[bytes], bool],
        skews: Skews,
        region: str = "",
        service: str = "",
    ) -> None:
        self._call = call
        self._signing = signing
        self._skews = skews
        self._leaving = _remembered(call, signing, pins, is_session)
        self._request = _outgoing(call, self._leaving.lines, region, service)
        self._coder: Coder | None = None
        self._body: bytes | None = None
        self._timed = True
        self._sent = 0.0
        self._corrected = False
        self.need = self._guarded(lambda: signing.need(self._request))

    def head(self, body: bytes | None) -> bytes:
        """Request line and header section of the next attempt. `body` is the whole body, None when it streams."""
        self._sent = time.monotonic()
        now = time.time() + self._skews.get(self._request.host, 0.0)
        signed = self._guarded(lambda: self._signing.sign(self._request, body, now))
        self._coder, self._body, self._timed = signed.coder, signed.body, signed.timed
        held = body is not None and self.need.hold > 0
        block = self._leaving.without(signed.drops | _HOLDING_DROPS if held else signed.drops)
        sent = signed.body if signed.body is not None else body or b""
        length = b"Content-Length: %d\r\n" % len(sent) if held else b""
        method = self._call.method.encode("ascii")
        return b"%b %b HTTP/1.1\r\n%b%b%b\r\n" % (method, signed.target, block, length, signed.lines)

    def overflow(self) -> None:
        """The body is longer than may be held."""
        if not self.need.streams:
            raise GatewayError(
                "malformed_request",
                f"The body is longer than the {self.need.hold} bytes that can be held to be signed.",
                status=413,
            )

    def piece(self, payload: bytes) -> bytes:
        """Body bytes as they leave."""
        if self._body is not None:
            payload, self._body = self._body, None
        coder = self._coder
        return payload if coder is None else self._guarded(lambda: coder.feed(payload))

    def end(self) -> bytes:
        """What is left to be sent of the body."""
        coder, self._coder = self._coder, None
        return b"" if coder is None else self._guarded(coder.end)

    def again(self, reply: ReplyHead) -> bool:
        """Whether a refusal came of our clock: then the next attempt is signed by the provider's.

        The provider's time is its Date header less half the round trip. A reply from a cache (Age) tells nothing.
        """
        if reply.status not in _REFUSALS or self._corrected or not self._timed:
            return False
        theirs = _date(reply)
        if theirs is None:
            return False
        offset = theirs - (time.time() - (time.monotonic() - self._sent) / 2)
        if abs(offset) > SKEW_BELIEVED or abs(offset - self._skews.get(self._request.host, 0.0)) < SKEW_NOTICED:
            return False
        self._corrected = True
        if len(self._skews) >= MAX_SKEWS:
            self._skews.clear()
        self._skews[self._request.host] = offset
        log.warning(
            "this machine's clock is %.0f seconds off that of %s: correct it, with NTP; requests are signed by theirs",
            -offset,
            self._request.host,
        )
        return True

    @staticmethod
    def _guarded(work: Callable[[], T]) -> T:
        try:
            return work()
        except Unsignable as why:
            raise GatewayError("malformed_request", str(why), status=413 if why.too_large else 400) from None


class _Leaving:
    """The lines that leave besides those of the signature: (lower-case name, name as written, value)."""

    __slots__ = ("_block", "_kept", "_names", "lines")

    def __init__(self, kept: list[tuple[bytes, bytes, bytes]]) -> None:
        self._kept = kept
        self._names = frozenset([name for name, _, _ in kept])
        self._block = b"".join([b"%b: %b\r\n" % (written, value) for _, written, value in kept])
        self.lines = tuple([(name, value) for name, _, value in kept])

    def without(self, dropped: frozenset[bytes]) -> bytes:
        """The header section, less the lines with these names."""
        if self._names.isdisjoint(dropped):
            return self._block
        return b"".join(
            [b"%b: %b\r\n" % (written, value) for name, written, value in self._kept if name not in dropped]
        )


def _remembered(call: Call, signing: Signing, pins: Pins, is_session: Callable[[bytes], bool]) -> _Leaving:
    """What leaves, remembered with the section while neither credential nor destination changes."""
    section, memo = call.section, call.section.memo
    if (
        memo is None
        or memo[0] is not signing
        or memo[1] is not call.destination
        or memo[2] is not pins
        or memo[3] is not is_session
    ):
        leaving = _Leaving(_leaving(call, signing.clears, pins, is_session))
        memo = section.memo = (signing, call.destination, pins, is_session, leaving)
    found: _Leaving = memo[4]
    return found


def _leaving(
    call: Call, clears: frozenset[bytes], pins: Pins, is_session: Callable[[bytes], bool]
) -> list[tuple[bytes, bytes, bytes]]:
    """The client's lines that leave, Host set, and the pins."""
    section, authority = call.section, call.destination.authority.encode("ascii")
    kept = [] if section.host is not None else [(b"host", b"Host", authority)]
    names = set()
    for compared, name, value in section.kept:
        if compared in clears or (section.suspects and b"eyJ" in value and is_session(value)):
            continue
        names.add(compared)
        kept.append((name.lower(), name, authority if compared == b"host" else value))
    kept += [(name.lower(), name, value) for name, value in pins if name.lower() not in names]
    return kept


def _outgoing(call: Call, lines: tuple[tuple[bytes, bytes], ...], region: str, service: str) -> Outgoing:
    section = call.section
    return Outgoing(
        call.method,
        call.destination.scheme == "https",
        call.destination.host,
        call.place.target,
        lines,
        None if section.chunked else section.length or 0,
        region,
        service,
    )


def _date(reply: ReplyHead) -> float | None:
    """The reply's Date in epoch seconds; None without a usable one, and for a reply that was kept somewhere."""
    found = None
    for name, value in reply.section.kept:
        lowered = name.lower()
        if lowered == b"age":
            return None
        if lowered == b"date":
            found = value
    try:
        return parsedate_to_datetime(found.decode("ascii")).timestamp() if found else None
    except ValueError:
        return None
