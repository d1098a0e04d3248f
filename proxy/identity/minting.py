"""Session tokens for tests and small set-ups, where no identity provider issues them."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

import jwt

from proxy.identity.claims import DAY
from proxy.identity.compact import TokenFault, parse
from proxy.identity.signing_key import SigningKey

_BIND = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):[0-9]{1,5}")


class Inspection(NamedTuple):
    """What a token says; nothing verified."""

    header: dict[str, Any]
    claims: dict[str, Any]

    def as_json(self) -> str:
        """Both, indented, for a terminal. Escaped to ASCII: a token's text must not write to the terminal."""
        return json.dumps({"header": self.header, "claims": self.claims}, indent=2, ensure_ascii=True)


def mint(key: SigningKey, claims: Mapping[str, Any], ttl: float, now: float) -> str:
    """A signed token with `claims`, valid for `ttl` seconds from `now` (epoch seconds).

    `iat`, `nbf`, `exp` and a random `jti` are set here. Raises ValueError when the proxy would never accept the
    lifetime.
    """
    if not 0 < ttl <= DAY:
        raise ValueError("a session token lives for more than nothing and at most 24 hours")
    issued = int(now)
    dates = {"iat": issued, "nbf": issued, "exp": issued + max(1, int(ttl)), "jti": secrets.token_hex(16)}
    return jwt.encode({**claims, **dates}, key.private(), algorithm=key.algorithm, headers={"kid": key.key_id})


def inspect(token: str) -> Inspection:
    """A token's header and claims without verifying it. Raises ValueError for what the proxy could not read either."""
    try:
        parsed = parse(token.strip().encode("utf-8", "replace"))
    except TokenFault as fault:
        raise ValueError(fault.args[0]) from None
    return Inspection(parsed.header, parsed.claims)


def proxy_url(token: str, bind: str, agent: str = "agent") -> str:
    """The value for HTTP_PROXY and HTTPS_PROXY: the token as the password for the listener at `bind`, HOST:PORT.

    Raises ValueError when `bind` is not that. `agent` is for the reader of the URL only: signed claims say who calls.
    """
    if not _BIND.fullmatch(bind):
        raise ValueError("the listener is named as HOST:PORT, for example 127.0.0.1:18400")
    return f"http://{quote(agent, safe='')}:{quote(token, safe='')}@{bind}"
