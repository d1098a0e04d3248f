"""The identifiers of one listener, asked in order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final

from proxy.errors import GatewayError
from proxy.identity.identifier import Identifier, misconfigured
from proxy.identity.names import TenantList
from proxy.identity.recognition import looks_like_session_token
from proxy.identity.refusals import BY_LISTENER, PER_CALL, Refusal
from proxy.identity.static import Static
from proxy.model import Caller, ListenerKind, Presented

RECENT: Final = 1_024
"""Callers remembered by the bytes they presented, in front of the members' own memories of digests."""


class Chain:
    """Who makes a call on a listener of one kind.

    The first member that claims the call decides. A member's refusal ends the search, so that a bad token never falls
    back to a weaker identity. For the same reason a token in `Sluicegate-Session` or `Proxy-Authorization` that no
    member knows is refused, while an unknown `Authorization` is taken for an SDK's dummy key and passed over.
    """

    def __init__(
        self,
        members: Sequence[Identifier],
        listener_kind: ListenerKind,
        per_call_required: bool = False,
        tenants: Collection[str] = ("*",),
        revoked: Callable[[Caller], bool] | None = None,
    ) -> None:
        """`tenants` are those this instance serves; `revoked` is asked on every call.

        Raises ConfigurationError, all faults at once, for a chain that could never work as it reads.
        """
        self._members = tuple(members)
        self._kind = listener_kind
        self._refusal = BY_LISTENER[listener_kind]
        self._per_call = per_call_required
        self._tenants = TenantList(tenants)
        self._revoked = revoked
        self._unrestricted = self._tenants.every and revoked is None
        self.issuers = frozenset[str]().union(*(member.issuers for member in members))
        self.is_session: Callable[[bytes], bool] = lambda value: looks_like_session_token(value, self.issuers)
        """Whether a header's value holds a token of one of this chain's issuers, which must not leave. The same object
        every time, so that a rendering that depends on it can be remembered."""
        self._recent: dict[Presented, Caller] = {}
        for member in self._members:
            member.subscribe(self._recent.clear)
        faults = [*self._faults(), *self._tenants.faults("tenants")]
        if faults:
            raise misconfigured(*faults)

    def _faults(self) -> list[str]:
        static = any(isinstance(member, Static) for member in self._members)
        faults = [] if self._members else ["no identifier is configured: nobody could call"]
        if static and len(self._members) > 1:
            faults.append("static has to be the only identifier of its listener: the others would never be asked")
        if self._per_call and not self.issuers:
            faults.append("per_call: required needs an identifier that reads tokens (session_token, service_account)")
        if sum(len(member.issuers) for member in self._members) > len(self.issuers):
            faults.append("an issuer is listed by two identifiers: the second would never be asked")
        return faults

    def identify(self, presented: Presented, now: float) -> Caller | Awaitable[Caller]:
        """The caller of one call; an awaitable only when a key set has to be fetched first.

        For a request inside a tunnel pass the CONNECT's `proxy_authorization` and `certificate` together with the
        request's own `session`: expiry and revocation of the connection's token are then looked at again.
        `now` is in epoch seconds. Raises GatewayError `identity_missing` or `identity_invalid`.
        """
        known = self._recent.get(presented)
        if known is not None and (known.expires is None or now < known.expires):
            return known if self._unrestricted else self._admitted(known, self._refusal_of(presented))
        if self._per_call and presented.session is None:
            raise PER_CALL.absent()
        caller = self.identify_connection(presented, now)
        if isinstance(caller, Caller):
            if len(self._recent) >= RECENT:
                self._recent.clear()
            self._recent[presented] = caller
        return caller

    def identify_connection(self, presented: Presented, now: float) -> Caller | Awaitable[Caller]:
        """As `identify`, for a CONNECT: the calls inside carry their own token where `per_call` asks for one."""
        return self._ask(0, self._judged(presented), now, self._refusal_of(presented))

    def _refusal_of(self, presented: Presented) -> Refusal:
        return self._refusal if presented.session is None else PER_CALL

    def _judged(self, presented: Presented) -> Presented:
        """Only what counts on this listener, a token presented for the call or the proxy alone."""
        session, proxy, authorization, certificate = presented
        if session is not None:
            return _only(session, None, None, None)
        if self._kind == "proxy":
            return _only(None, proxy, None, certificate if proxy is None else None)
        return _only(None, None, authorization if self._kind != "transparent" else None, certificate)

    def _ask(self, start: int, presented: Presented, now: float, refusal: Refusal) -> Caller | Awaitable[Caller]:
        for position in range(start, len(self._members)):
            try:
                answer = self._members[position].identify(presented, now)
            except GatewayError as error:
                raise refusal.of(error) from None
            if isinstance(answer, Caller):
                return answer if self._unrestricted else self._admitted(answer, refusal)
            if answer is not None:
                return self._wait(answer, position, presented, now, refusal)
        raise self._nobody(presented, refusal)

    async def _wait(
        self, pending: Awaitable[Caller | None], position: int, presented: Presented, now: float, refusal: Refusal
    ) -> Caller:
        try:
            caller = await pending
        except GatewayError as error:
            raise refusal.of(error) from None
        if caller is not None:
            return self._admitted(caller, refusal)
        rest = self._ask(position + 1, presented, now, refusal)
        return rest if isinstance(rest, Caller) else await rest

    def _admitted(self, caller: Caller, refusal: Refusal) -> Caller:
        if caller.tenant not in self._tenants:
            raise refusal.invalid("The session is for a tenant that this proxy does not serve.")
        if self._revoked is not None and self._revoked(caller):
            raise refusal.invalid("The session was revoked.")
        return caller

    def _nobody(self, presented: Presented, refusal: Refusal) -> GatewayError:
        if presented.session is None and presented.proxy_authorization is None:
            return refusal.absent()
        return refusal.invalid("The token presented is not a session token of an issuer that this proxy knows.")


def _only(*values: bytes | None) -> Presented:
    # A third of the time that the named tuple's own constructor takes; this runs on every call.
    return tuple.__new__(Presented, values)
