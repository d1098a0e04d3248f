"""A rule's terms put to the request: which headers leave, what becomes of the caller's credentials (pure)."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from functools import lru_cache
from typing import Final
from urllib.parse import parse_qsl

from policies.decide import Allowed
from policies.terms import Terms
from proxy.catalog import Provider
from proxy.errors import GatewayError
from proxy.model import Call, HeaderSection
from signers.placement import Injection

_ALWAYS: Final = frozenset(
    {b"host", b"content-length", b"transfer-encoding", b"content-type", b"content-encoding", b"connection", b"upgrade"}
    | {b"te", b"expect", b"idempotency-key", b"sec-websocket-key", b"sec-websocket-version", b"sec-websocket-protocol"}
)
"""What frames or describes the message, whatever a list of headers says."""
_CUSTOMARY: Final = ("authorization", "x-api-key", "api-key", "x-auth-token")
"""Where a credential stands that nobody has declared."""


def listed(section: HeaderSection, terms: Terms) -> HeaderSection:
    """The section without the headers that may not leave."""
    passes = terms.passes
    return section.having([line for line in section.kept if line[0] in _ALWAYS or passes(line[0].decode("latin-1"))])


def asking_for_identity(section: HeaderSection) -> HeaderSection:
    """The section with an Accept-Encoding that wants no compression. Without the header any coding would be welcome
    (RFC 9110 section 12.5.3)."""
    kept = [line for line in section.kept if line[0] != b"accept-encoding"]
    return section.having([*kept, (b"accept-encoding", b"Accept-Encoding", b"identity")])


class Unlisted(Container[bytes]):
    """Comparable names that a list of headers keeps from leaving in trailers."""

    def __init__(self, terms: Terms, dropped: Container[bytes]) -> None:
        self._terms, self._dropped = terms, dropped

    def __contains__(self, name: object) -> bool:
        return name in self._dropped or not self._terms.passes(bytes(name).decode("latin-1"))  # type: ignore[call-overload]


@lru_cache(maxsize=1024)
def positions(allowed: Allowed, provider: Provider | None) -> Injection:
    """Where a caller's credential may stand, as what is cleared and nothing put in: what the catalogue declares, what
    the rule names, and the customary headers."""
    found: list[tuple[str, str]] = [
        (place.kind, place.name) for place in (provider.positions if provider is not None else ())
    ]
    found += [("header", name) for name in _CUSTOMARY]
    use = allowed.credential
    if use is not None and use.placement is not None and isinstance(use.placement[0], str):
        found.append((use.placement[0], str(use.placement[1])))
    return Injection(
        clears=frozenset(name.lower().replace("_", "-").encode() for name in _of("header", found)),
        query_clears=frozenset(_of("query", found)),
        cookie_clears=frozenset(name.encode() for name in _of("cookie", found)),
    )


def _of(kind: str, found: Iterable[tuple[str, str]]) -> Iterable[str]:
    return (name for each, name in found if each == kind)


def refuse_credentials(call: Call, where: Injection, is_session: Callable[[bytes], bool], rule: str | None) -> None:
    """Raises `policy_denied` where the caller sent a credential of its own. Session tokens of ours are none."""
    place = _credential_in(call, where, is_session)
    if place:
        raise GatewayError(
            "policy_denied",
            f"The call carries a credential of its own in {place}; leave it out, ours is used.",
            rule=rule,
        )


def _credential_in(call: Call, where: Injection, is_session: Callable[[bytes], bool]) -> str:
    for name, _, value in call.section.kept:
        if name in where.clears and not is_session(value):
            return f"the header {name.decode('latin-1')}"
        if name == b"cookie":
            pairs = (pair.partition(b"=")[0].strip() for pair in value.split(b";"))
            if any(pair in where.cookie_clears for pair in pairs):
                return "a cookie"
    query = call.place.target.partition(b"?")[2].decode("latin-1")
    if where.query_clears and any(name in where.query_clears for name, _ in parse_qsl(query, keep_blank_values=True)):
        return "the query"
    return ""
