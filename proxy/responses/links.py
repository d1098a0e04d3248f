"""Base-URL mode: URLs of the provider in Location and Link point back to the proxy, so that the next call comes too."""

from __future__ import annotations

import re
from typing import Final

from proxy.model import DEFAULT_PORTS, Call, Headers

_REWRITTEN: Final = frozenset({b"location", b"content-location", b"link"})
_ABSOLUTE_PATH: Final = re.compile(rb"<(?=/(?!/))")  # in a Link; `//` begins another authority


def pointing_back(lines: Headers, call: Call) -> Headers:
    """The lines with the destination's own URLs put under the base URL; absolute paths likewise. HSTS is dropped: it
    would tell the client to speak TLS to our plain loopback port."""
    scheme = call.destination.scheme
    # a whole origin where a URL begins, with or without its default port: api.x must not match api.x.evil
    origin = re.compile(
        b"(?:^|(?<=<))%b(?::%d)?(?=[/?#>]|$)"
        % (re.escape(call.destination.origin.encode("ascii")), DEFAULT_PORTS[scheme]),
        re.IGNORECASE,
    )
    base = b"%b/%b" % (call.place.front, call.place.segment.encode("ascii"))
    return [
        (name, _rebased(name.lower(), value, origin, base))
        for name, value in lines
        if name.lower() != b"strict-transport-security"
    ]


def _rebased(name: bytes, value: bytes, origin: re.Pattern[bytes], base: bytes) -> bytes:
    if name not in _REWRITTEN:
        return value
    if name == b"link":
        return origin.sub(lambda _: base, _ABSOLUTE_PATH.sub(lambda _: b"<" + base, value))
    if value.startswith(b"/") and not value.startswith(b"//"):
        return base + value
    return origin.sub(lambda _: base, value)
