"""Base-URL mode: URLs of the provider in Location and Link point back to the proxy, so that the next call comes here."""

from __future__ import annotations

import re
from typing import Final

from proxy.model import Call, Headers

_REWRITTEN: Final = frozenset({b"location", b"content-location", b"link"})


def pointing_back(lines: Headers, call: Call) -> Headers:
    """The lines with the destination's own URLs put under the base URL; absolute paths likewise. HSTS is dropped: it
    would tell the client to speak TLS to our plain loopback port."""
    origin = call.destination.origin.encode("ascii")
    base = b"%b/%b" % (call.front, call.segment.encode("ascii"))
    return [
        (name, _rebased(name.lower(), value, origin, base))
        for name, value in lines
        if name.lower() != b"strict-transport-security"
    ]


def _rebased(name: bytes, value: bytes, origin: bytes, base: bytes) -> bytes:
    if name not in _REWRITTEN:
        return value
    # the origin with or without its default port, as a whole: api.x must not match api.x.evil
    whole = re.compile(re.escape(origin) + rb"(?::443(?=[/?#]|$))?(?=[/?#>;, ]|$)", re.IGNORECASE)
    rebased = whole.sub(lambda _: base, value)
    if name != b"link" and rebased.startswith(b"/") and not rebased.startswith(b"//"):
        return base + rebased
    return rebased.replace(b"</", b"<" + base + b"/") if name == b"link" else rebased
