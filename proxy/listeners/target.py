"""One canonical name for where a call goes, from whatever the client wrote.

Request target, CONNECT authority, Host, SNI and base-URL segment all end in `canonical_host`, so that policy,
credential, dial, certificate check and log line can never mean different hosts. Pure; results are remembered, bounded,
because the same few authorities arrive with every call. Everything here raises `malformed_request` (400) and
nothing else, except `check_host`, which also raises `destination_mismatch` (421). No detail repeats what was received:
it may hold a password.

Sources: RFC 3986 section 3.2 (authority), RFC 9112 section 3.2 (forms of the target), RFC 9110 section 7.2 (Host),
RFC 5891 and UTS 46 (international names), WHATWG URL "ends in a number" (odd IPv4 spellings).
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

import idna

from proxy.errors import GatewayError
from proxy.model import DEFAULT_PORTS, Destination

REMEMBERED: Final = 4096
"""How many authorities each memo holds. Only valid ones are remembered, and those are short."""
LONGEST_HOST: Final = 253
"""Octets of a DNS name in text, without the trailing dot (RFC 1035 section 3.1)."""
_LONGEST_INPUT: Final = 1024  # before IDNA mapping, which may shorten; more is refused unread

# Underscores stand in real names (`_service.example`, `my_bucket.example`); RFC 2181 section 11 leaves DNS free there.
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")
_AUTHORITY: Final = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::([^:]*))?")
# Visible ASCII without "#". What RFC 3986 leaves out but clients send (`|`, `"`, `^` …) is kept as received.
_TARGET_BYTES: Final = bytes(byte for byte in range(0x21, 0x7F) if byte != ord("#"))
_ORIGIN: Final = re.compile(rb"(?i:(https?))://([^/?#]*)")
_SEGMENT: Final = re.compile(rb"/([^/?]+)")


class Segment(NamedTuple):
    """A base-URL call's first path segment: a provider or rule name, and the host chosen among the provider's."""

    name: str
    host: str | None
    port: int | None


def canonical_host(raw: bytes | str) -> str:
    """The one spelling of a host: lower-case A-labels without trailing dot, or an IP literal without brackets.

    Takes a host without port as URLs spell it (IPv6 in brackets) or as this function returned it; bytes are UTF-8.
    """
    if len(raw) > _LONGEST_INPUT:
        raise _malformed("The host name is too long.")
    return _canonical(raw)


@lru_cache(REMEMBERED)
def _canonical(raw: bytes | str) -> str:
    text = raw if isinstance(raw, str) else _decoded(raw)
    if text.startswith("[") or ":" in text:
        return _ipv6(text)
    name = text.lower() if text.isascii() else _a_labels(text)
    return _name_or_ipv4(name, odd=not text.isascii())


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise _malformed("The host is neither ASCII nor UTF-8.") from None


def _ipv6(text: str) -> str:
    bracketed = text.startswith("[")
    try:
        if bracketed and not text.endswith("]"):
            raise ValueError
        address = ipaddress.IPv6Address(text[1:-1] if bracketed else text)
    except ValueError:
        raise _malformed("The host is not a valid IPv6 address.") from None
    if address.scope_id is not None:
        raise _malformed("The host is an IPv6 address with a zone id.")
    # ::ffff:a.b.c.d and ::a.b.c.d are IPv4 in disguise; :: and ::1 share the prefix of the latter.
    if int(address) >> 32 in (0, 0xFFFF) and int(address) > 1:
        raise _malformed("The host is an IPv4 address spelled as IPv6. Write it as IPv4.")
    return address.compressed


def _a_labels(text: str) -> str:
    """Non-ASCII names as browsers map them. ASCII labels beside them stay as they are, underscores included."""
    try:
        labels = idna.uts46_remap(text, std3_rules=False).split(".")
        return ".".join(label if label.isascii() else idna.alabel(label).decode() for label in labels)
    except UnicodeError:
        raise _malformed("The host is not a valid international domain name.") from None


def _name_or_ipv4(name: str, *, odd: bool) -> str:
    if _NUMBER.fullmatch(name.removesuffix(".").rpartition(".")[2]):
        return _ipv4(name, odd=odd)
    name = name.removesuffix(".")
    if not name:
        raise _malformed("The host is empty.")
    if len(name) > LONGEST_HOST or not all(_LABEL.fullmatch(label) for label in name.split(".")):
        raise _malformed("The host is not a valid domain name.")
    return name


def _ipv4(text: str, *, odd: bool) -> str:
    """Only four decimal numbers: resolvers read 2130706433, 0177.1, 127.1 and 0x7f.1 as addresses too."""
    try:
        if odd:
            raise ValueError
        return str(ipaddress.IPv4Address(text))
    except ValueError:
        raise _malformed("The host ends in a number but is not an IPv4 address in dotted decimal.") from None


@lru_cache(REMEMBERED)
def parse_host(value: bytes) -> tuple[str, int | None]:
    """A Host header's value, `host[:port]`, as (canonical host, port or None)."""
    if len(value) > _LONGEST_INPUT:
        raise _malformed("The host name is too long.")
    if not value.isascii():
        raise _malformed("The host holds bytes outside ASCII. Send international names in their xn-- form.")
    if b"@" in value:
        raise _malformed("User name and password do not belong in the authority.")
    match = _AUTHORITY.fullmatch(value.decode())
    if match is None:
        raise _malformed("The authority is not host[:port]; an IPv6 address needs brackets.")
    host, port = match.groups()
    return _canonical(host), None if port is None else _port(port)


def _port(text: str) -> int:
    if not _PORT.fullmatch(text) or int(text) > 65535:
        raise _malformed("The port is not a number from 1 to 65535.")
    return int(text)


def parse_connect(target: bytes) -> tuple[str, int]:
    """A CONNECT target, `host:port` (RFC 9112 section 3.2.3), as (canonical host, port). The port is required."""
    host, port = parse_host(target)
    if port is None:
        raise _malformed("CONNECT needs a port: host:port.")
    return host, port


def parse_absolute(target: bytes) -> tuple[Destination, bytes]:
    """An absolute-form target (RFC 9112 section 3.2.2) as its destination and the origin-form sent upstream.

    `http` and `https` only. The origin-form is byte for byte what was received; an empty path becomes "/".
    """
    match = _ORIGIN.match(target)
    if match is None:
        raise _malformed("The target is not an absolute http:// or https:// URL.")
    rest = _from_root(target[match.end() :])
    check_origin_form(rest)
    return _destination(match[1], match[2]), rest


@lru_cache(REMEMBERED)
def _destination(scheme: bytes, authority: bytes) -> Destination:
    name = scheme.decode().lower()
    host, port = parse_host(authority)
    return Destination(name, host, port or DEFAULT_PORTS[name])


def _from_root(rest: bytes) -> bytes:
    return rest if rest.startswith(b"/") else b"/" + rest


def check_origin_form(target: bytes) -> None:
    """Refuses a target that is not a path (and query) in visible ASCII: controls, spaces, "#" and bytes >= 0x80."""
    if not target.startswith(b"/") or target.translate(None, _TARGET_BYTES):
        raise _malformed(
            "The target has to begin with / and hold only visible ASCII without #; percent-encode the rest."
        )


def check_host(value: bytes, destination: Destination) -> None:
    """Compares a Host header with the destination, by canonical host and effective port.

    Raises `destination_mismatch` when they differ, `malformed_request` when the value cannot be read.
    """
    host, port = parse_host(value)
    if host != destination.host or (port or DEFAULT_PORTS[destination.scheme]) != destination.port:
        raise GatewayError("destination_mismatch", f"The Host header does not name {destination.authority}.")


def names_host(server_name: bytes | str, host: str) -> bool:
    """Whether a client's SNI means `host`, which is canonical. What cannot be read means nothing."""
    try:
        return canonical_host(server_name) == host
    except GatewayError:
        return False


def base_url_segment(target: bytes) -> tuple[str, bytes]:
    """Splits a base-URL target into its first segment and the target left for the upstream, both as received.

    `/slack/api?x=1` gives ("slack", b"/api?x=1"); `/slack` gives ("slack", b"/").
    """
    check_origin_form(target)
    match = _SEGMENT.match(target)
    if match is None:
        raise _malformed("The path has to begin with the name of a provider or of a rule.")
    return match[1].decode(), _from_root(target[match.end() :])


def split_segment(segment: str) -> Segment:
    """Reads `name` or `provider@host[:port]`; percent-escapes count as what they stand for, since some clients
    escape "@" and ":" in paths."""
    if len(segment) > _LONGEST_INPUT:
        raise _malformed("The first path segment is too long.")
    return _split_segment(segment)


@lru_cache(REMEMBERED)
def _split_segment(segment: str) -> Segment:
    plain = unquote_to_bytes(segment)
    name, at, authority = plain.partition(b"@")
    if not re.fullmatch(rb"[A-Za-z0-9._-]+", name):
        raise _malformed("The first path segment is not the name of a provider or of a rule.")
    host, port = parse_host(authority) if at else (None, None)
    return Segment(name.decode(), host, port)


def _malformed(detail: str) -> GatewayError:
    return GatewayError("malformed_request", detail)
