"""The forms in which a secret may come back in a reply, so that it can be masked there.

A reply is not parsed: whoever echoes a request writes the secret as it is, or in the escaping of the format it stands
in. Each function below is one such form. What a reply holds beyond these (encryption, compression) is not looked for.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import quote, quote_plus

SHORTEST: Final = 12
"""Characters. A shorter value would be found by chance in ordinary text."""

_ESCAPED_OCTET: Final = re.compile(r"%[0-9A-F]{2}")
_URLSAFE: Final = bytes.maketrans(b"+/", b"-_")
# What common JSON and HTML writers escape beyond what the format asks for (PHP; Go and Rails; .NET).
_JSON_STYLES: Final = tuple(
    str.maketrans(style)
    for style in (
        {"/": "\\/"},
        {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"},
        {"<": "\\u003C", ">": "\\u003E", "&": "\\u0026", "+": "\\u002B", "'": "\\u0027"},
    )
)
# Python and browsers; Jinja; PHP and lodash; Go.
_HTML_STYLES: Final = tuple(
    str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"} | style)
    for style in (
        {'"': "&#34;", "'": "&#39;"},
        {'"': "&quot;", "'": "&#39;"},
        {'"': "&#34;", "'": "&#39;", "+": "&#43;"},
        {},
    )
)


def renderings(secrets: Iterable[str], pairs: Iterable[str] = ()) -> tuple[bytes, ...]:
    """Every form of the secrets to look for, longest first, without repeats.

    `pairs` are user-pass texts of RFC 7617: only their whole base64 form is looked for, not the user name in them.
    Secrets and pairs shorter than SHORTEST are left out.
    """
    found = {form for secret in secrets if len(secret) >= SHORTEST for form in _forms(secret)}
    found |= {form for pair in pairs if len(pair) >= SHORTEST for form in _whole_base64(pair.encode())}
    return tuple(sorted(found, key=lambda form: (-len(form), form)))


def _forms(secret: str) -> Iterator[bytes]:
    octets = secret.encode()
    yield octets
    yield from _inner_base64(octets)
    yield from _whole_base64(octets)
    yield octets.hex().encode()
    yield octets.hex().upper().encode()
    for text in (*_percent_encoded(secret), *_json_escaped(secret), *_html_escaped(secret)):
        yield text.encode()


def _inner_base64(octets: bytes) -> Iterator[bytes]:
    """Base64 of any text that holds these octets: the characters their neighbours have no part in (RFC 4648 section 4).

    The octets may start at any of three places in a group. A character carries six bits: the leading ones that mix
    in bits of the octets before, and a last one that mixes in bits of the octet after, cannot be known.
    """
    for before, unknown in ((0, 0), (1, 2), (2, 3)):
        size = before + len(octets)
        text = base64.b64encode(bytes(before) + octets)[unknown : size * 8 // 6]
        yield text
        yield text.translate(_URLSAFE)


def _whole_base64(octets: bytes) -> Iterator[bytes]:
    padded = base64.b64encode(octets)
    for text in (padded, padded.rstrip(b"=")):
        yield text
        yield text.translate(_URLSAFE)


def _percent_encoded(secret: str) -> Iterator[str]:
    """RFC 3986 section 2.1 as strictly as can be, as paths, forms and JavaScript's two functions do it."""
    for text in (
        quote(secret, safe=""),
        quote(secret),
        quote_plus(secret),
        quote(secret, safe="!'()*"),
        quote(secret, safe=";,/?:@&=+$!*'()#"),
    ):
        yield text
        yield _ESCAPED_OCTET.sub(lambda octet: octet[0].lower(), text)


def _json_escaped(secret: str) -> Iterator[str]:
    for ascii_only in (True, False):
        text = json.dumps(secret, ensure_ascii=ascii_only)[1:-1]
        yield text
        yield from (text.translate(style) for style in _JSON_STYLES)


def _html_escaped(secret: str) -> Iterator[str]:
    yield html.escape(secret)
    yield from (secret.translate(style) for style in _HTML_STYLES)
