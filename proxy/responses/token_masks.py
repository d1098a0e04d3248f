"""The answer of a token endpoint as an agent gets it, where a rule lets it ask: written anew, its tokens covered.

Written anew, not searched: a member that stands there twice, or in an escaping that nobody thought of, is gone with the
provider's own bytes.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from proxy.dialect import Answer
from proxy.responses.masking import FILL

_SECRET: Final = re.compile(r"(?i)token|secret|assertion|jwt|ticket|password|session|credential|cookie|key|code$")
_PLAIN: Final = re.compile(
    r"(?i)token_type|issued_token_type|token_use|key_id|.*expires?_?(in|at|on)|scopes?|error(_[a-z]+)?|.*_ur[il]"
)
"""Members that RFC 6749, RFC 8693 and providers' extensions give beside tokens."""
_TOKEN: Final = re.compile(r"(?!https?://)[^\s]{20,}")
"""What may be a token under any name."""
Written = tuple[bytes, bytes]
"""Content-Type and body."""


def covered(answer: Answer, coded: bool) -> Written | None:
    """The answer without its tokens; None where it cannot be read, and so not covered. `coded`: it is compressed."""
    if coded:
        return None
    if not answer.content.strip():
        return b"application/json", b""
    document = answer.json
    if isinstance(document, dict | list):
        return b"application/json", json.dumps(_covered("", document), separators=(",", ":")).encode()
    return _form(answer.content)


def _form(content: bytes) -> Written | None:
    """As GitHub writes it unless asked for JSON."""
    try:
        pairs = parse_qsl(content.decode("ascii").strip(), strict_parsing=True, max_num_fields=64)
    except ValueError:
        return None
    kept = urlencode([(name, _text(name, value)) for name, value in pairs], safe="*")
    return b"application/x-www-form-urlencoded", kept.encode("ascii")


def _covered(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _covered(str(key), inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_covered(name, inner) for inner in value]
    return _text(name, value) if isinstance(value, str) else value


def _text(name: str, value: str) -> str:
    if _PLAIN.fullmatch(name) or not (_SECRET.search(name) or _TOKEN.fullmatch(value)):
        return value
    return FILL.decode() * len(value)
