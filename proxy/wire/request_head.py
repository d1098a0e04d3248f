"""From a request's bytes to a judged RequestHead (pure)."""

from __future__ import annotations

import re
from typing import Final

from proxy.errors import GatewayError
from proxy.model import Headers, HeaderSection, Presented, RequestHead, RequestLine, Wishes
from proxy.wire.framing import (
    Limits,
    comparable,
    content_length,
    header_section,
    is_chunked,
    malformed,
    request_line,
    tokens,
)

# What a header line is to a relay, by its comparable name.
_PLAIN, _DROPPED, _HOST, _LENGTH, _CODING, _CONNECTION, _UPGRADE, _TE, _EXPECT = range(9)
_AUTHORIZATION, _PROXY_AUTHORIZATION, _SESSION, _SINGLE, _OVERRIDE, _TIMEOUT, _KEY, _CURSOR, _ORIGIN = range(9, 18)

_ROLES: Final[dict[bytes, int]] = {
    b"host": _HOST,
    b"content-length": _LENGTH,
    b"transfer-encoding": _CODING,
    b"connection": _CONNECTION,
    b"upgrade": _UPGRADE,
    b"te": _TE,
    b"expect": _EXPECT,
    b"authorization": _AUTHORIZATION,
    b"proxy-authorization": _PROXY_AUTHORIZATION,
    b"sluicegate-session": _SESSION,
    b"sluicegate-timeout": _TIMEOUT,
    b"content-type": _SINGLE,
    b"origin": _ORIGIN,
    b"idempotency-key": _KEY,
    b"sluicegate-cursor": _CURSOR,
    # Hop-by-hop by RFC 9110 section 7.6.1 or by custom.
    b"keep-alive": _DROPPED,
    b"proxy-connection": _DROPPED,
    b"proxy-authenticate": _DROPPED,
    b"http2-settings": _DROPPED,
    # Would let the method that policy judged differ from the one the server acts on.
    b"x-http-method": _OVERRIDE,
    b"x-http-method-override": _OVERRIDE,
    b"x-method-override": _OVERRIDE,
}
_CONSUMED: Final = frozenset({_DROPPED, _CONNECTION, _PROXY_AUTHORIZATION, _SESSION, _UPGRADE, _TE, _TIMEOUT, _CURSOR})
_BASIC: Final = frozenset({b"Ba", b"ba", b"BA", b"bA"})
"""How credentials begin in which a session token may stand under base64."""
_SECONDS: Final = re.compile(rb"[0-9]{1,5}(?:\.[0-9]{1,3})?")
_SPELLINGS_LIMIT: Final = 4_096
_spellings: dict[bytes, tuple[bytes, int]] = {}


def _spelling(name: bytes) -> tuple[bytes, int]:
    """Comparable name and role of a header by its exact spelling; remembered, since clients repeat themselves."""
    compared = comparable(name)
    role = _ROLES.get(compared, _DROPPED if compared.startswith(b"sluicegate-") else _PLAIN)
    if b"_" in name and role in (_LENGTH, _CODING, _HOST, _CONNECTION):
        raise malformed("A header name with underscores poses as a framing or routing field.")
    if len(name) <= 64:
        if len(_spellings) >= _SPELLINGS_LIMIT:
            _spellings.clear()  # somebody invents names: those in use come back at their next call
        _spellings[name] = (compared, role)
    return compared, role


class _Sorted:
    """Lines of one section, sorted by role."""

    def __init__(self) -> None:
        self.by_role: dict[int, list[bytes]] = {}

    def all(self, role: int) -> list[bytes]:
        return self.by_role.get(role, [])

    def one(self, role: int, name: str) -> bytes | None:
        values = self.by_role.get(role)
        if values is None:
            return None
        if len(values) > 1:
            raise malformed(f"More than one {name} header.")
        return values[0]


def section_of(lines: Headers, limits: Limits) -> HeaderSection:
    """Sorts and judges a request's header lines. Raises GatewayError(malformed_request)."""
    if len(lines) > limits.lines:
        raise malformed(f"The request has more than {limits.lines} header lines.", 431)
    section, found = HeaderSection(), _Sorted()
    kept = section.kept
    for name, value in lines:
        compared, role = _spellings.get(name) or _spelling(name)
        if role != _PLAIN:
            found.by_role.setdefault(role, []).append(value)
            if role in _CONSUMED:
                continue
        kept.append((compared, name, value))
        if b"eyJ" in value or value[:2] in _BASIC:
            section.suspects = True
    _judge(section, found)
    _drop_named_by_connection(section, tokens(found.all(_CONNECTION)))
    _upgrade_and_te(section, found, lines)
    return section


def _judge(section: HeaderSection, found: _Sorted) -> None:
    if _OVERRIDE in found.by_role:
        raise malformed("A method-override header is not accepted: use the method itself.")
    section.host = found.one(_HOST, "Host")
    found.one(_SINGLE, "Content-Type")
    section.origin = found.one(_ORIGIN, "Origin")
    section.presented = Presented(
        session=found.one(_SESSION, "Sluicegate-Session"),
        proxy_authorization=found.one(_PROXY_AUTHORIZATION, "Proxy-Authorization"),
        authorization=found.one(_AUTHORIZATION, "Authorization"),
    )
    try:
        section.length = content_length(found.all(_LENGTH))
        section.chunked = is_chunked(found.all(_CODING))
    except ValueError as fault:
        raise malformed(f"{fault} is repeated or has a value that is not accepted.") from None
    if section.chunked and section.length is not None:
        raise malformed("Both Content-Length and Transfer-Encoding are there.")
    expect = found.one(_EXPECT, "Expect")
    if expect is not None and expect.lower() != b"100-continue":
        raise malformed("Expect names something other than 100-continue.")
    section.expect = expect is not None
    if _KEY in found.by_role or _CURSOR in found.by_role:
        section.wishes = _wishes(found)
    section.timeout = _timeout(found.one(_TIMEOUT, "Sluicegate-Timeout"))
    connection = tokens(found.all(_CONNECTION))
    section.close = b"close" in connection
    section.keep_alive = b"keep-alive" in connection


def _wishes(found: _Sorted) -> Wishes:
    key, cursor = found.one(_KEY, "Idempotency-Key") or b"", found.one(_CURSOR, "Sluicegate-Cursor") or b""
    if len(key) > 255 or len(cursor) > 4_096:
        raise malformed("Idempotency-Key may have 255 characters, Sluicegate-Cursor 4096.")
    return Wishes(key, cursor)


def _timeout(value: bytes | None) -> float:
    if value is None:
        return 0.0
    seconds = float(value) if _SECONDS.fullmatch(value) else 0.0
    if not 0 < seconds <= 86_400:
        raise malformed("Sluicegate-Timeout is not a number of seconds between 0 and 86400.")
    return seconds


# A client cannot talk us out of what frames or routes its message by naming it in Connection.
_NOT_DROPPABLE: Final = frozenset({b"host", b"content-length", b"transfer-encoding", b"close", b"keep-alive"})


def _drop_named_by_connection(section: HeaderSection, named: frozenset[bytes]) -> None:
    doomed = {comparable(name) for name in named} - _NOT_DROPPABLE
    if doomed:
        section.kept = [line for line in section.kept if line[0] not in doomed]


def _upgrade_and_te(section: HeaderSection, found: _Sorted, lines: Headers) -> None:
    """Only an upgrade to websocket passes, and of TE only `trailers`; everything else of the two is hop-by-hop."""
    upgrade = found.all(_UPGRADE)
    if upgrade and b"upgrade" in tokens(found.all(_CONNECTION)):
        if section.chunked or section.length:
            raise malformed("A request with a body cannot ask for an upgrade.")
        section.websocket = tokens(upgrade) == {b"websocket"}
    if section.websocket:
        section.kept += [(b"connection", b"Connection", b"Upgrade"), (b"upgrade", b"Upgrade", b"websocket")]
    if b"trailers" in tokens(found.all(_TE)):
        section.kept.append((b"te", b"TE", b"trailers"))


def request_head(head: bytes, limits: Limits, last: RequestHead | None) -> RequestHead:
    """A whole head (through its empty line) to a RequestHead. Raises GatewayError(malformed_request).

    `last` is the connection's previous one: what equals it is not parsed again.
    """
    if last is not None and last.raw == head:
        return last
    end = head.find(b"\r\n")
    line_raw, section_raw = head[:end], head[end + 2 :]
    known = last is not None and last.line_raw == line_raw
    line = last.line if last is not None and known else RequestLine(*request_line(line_raw, limits))
    if last is not None and last.section_raw == section_raw:
        section = last.section
    else:
        lines = header_section(section_raw)
        if lines is None:
            raise malformed("The header section is not well-formed (RFC 9112 section 5).")
        section = section_of(lines, limits)
    _judge_together(line.method, line.minor, section)
    return RequestHead(head, line, line_raw, section, section_raw)


def _judge_together(method: str, minor: int, section: HeaderSection) -> None:
    if section.host is None and minor == 1:
        raise malformed("An HTTP/1.1 request needs exactly one Host header.")
    if section.chunked and minor == 0:
        raise malformed("Transfer-Encoding does not exist in HTTP/1.0.")
    if method == "CONNECT" and (section.chunked or section.length is not None):
        raise malformed("CONNECT takes no body.")
    if method[:1] in "Tt" and method.upper() in ("TRACE", "TRACK"):
        raise GatewayError("malformed_request", "TRACE is refused: it returns the request, credential included.")
    if section.websocket and (method != "GET" or minor == 0):
        raise malformed("An upgrade to websocket is a GET in HTTP/1.1.")
