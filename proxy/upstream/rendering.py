"""The request as it leaves: the client's lines as received, less what is cleared, plus the credential (pure)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from proxy.model import Call
from signers.edit import edit_cookies, edit_target
from signers.placement import Injection

Pins = tuple[tuple[bytes, bytes], ...]
"""(name, value) of header lines added when the caller sent none: a provider's version."""
NOTHING: Final = Injection()


def uncoded(injection: Injection) -> Injection:
    """The same, and without the caller's Accept-Encoding: for replies that have to be read whole."""
    return replace(injection, clears=injection.clears | {b"accept-encoding"})


UNCODED: Final = uncoded(NOTHING)


def request_bytes(
    call: Call, injection: Injection, authority: bytes, pins: Pins, is_session: Callable[[bytes], bool]
) -> bytes:
    """Request line and header section, ready for the wire.

    `authority` is the Host to send; `is_session` tells session tokens of ours, which never leave. The header block is
    remembered with the section while neither credential nor destination changes: an agent's calls differ in little but
    the target.
    """
    target = call.place.target if injection is NOTHING else edit_target(call.place.target, injection)
    section = call.section
    memo = section.memo
    if (
        memo is None
        or memo[0] is not injection
        or memo[1] is not authority
        or memo[2] is not pins
        or memo[3] is not is_session
    ):
        block = _block(call, injection, pins, is_session, authority)
        memo = section.memo = (injection, authority, pins, is_session, block)
    return b"%b %b HTTP/1.1\r\n%b" % (call.method.encode("ascii"), target, memo[4])


def _block(
    call: Call, injection: Injection, pins: Pins, is_session: Callable[[bytes], bool], authority: bytes
) -> bytes:
    section, clears = call.section, injection.clears
    cookies_change = bool(injection.cookies or injection.cookie_clears)
    parts: list[bytes] = []
    names = set()
    cookies: list[bytes] = []
    if section.host is None:
        parts.append(b"Host: " + authority + b"\r\n")
    for compared, name, value in section.kept:
        if compared in clears or (section.suspects and is_session(value)):
            continue
        if compared == b"host":
            value = authority
        elif compared == b"cookie" and cookies_change:
            cookies.append(value)
            continue
        names.add(compared)
        parts += (name, b": ", value, b"\r\n")
    if cookies_change:
        cookie = edit_cookies(cookies, injection)
        if cookie:
            parts += (b"Cookie: ", cookie, b"\r\n")
    for name, value in pins:
        if name.lower() not in names:
            parts += (name, b": ", value, b"\r\n")
    parts += (injection.lines, b"\r\n")
    return b"".join(parts)
