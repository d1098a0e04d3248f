"""Names of headers and parameters that a credential may stand in."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import AfterValidator

_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_PARAMETER: Final = re.compile(r"[\x21-\x7e]{1,128}")

# Headers that frame or route a message, or that this proxy consumes: a credential there would change what is sent.
_RESERVED_HEADERS: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade", "cookie",
     "expect", "proxy-authorization", "proxy-connection", "idempotency-key"}
)  # fmt: skip


def _header(text: str) -> str:
    if not _HEADER.fullmatch(text):
        raise ValueError("that is not a header's name")
    if text.lower() in _RESERVED_HEADERS or text.lower().startswith("sluicegate-"):
        raise ValueError(f"{text} cannot carry a credential: it frames the message or belongs to the proxy")
    return text


def _parameter(text: str) -> str:
    if not _PARAMETER.fullmatch(text) or any(sign in text for sign in "&=;,#"):
        raise ValueError("that is not a parameter's name")
    return text


Header = Annotated[str, AfterValidator(_header)]
Parameter = Annotated[str, AfterValidator(_parameter)]
