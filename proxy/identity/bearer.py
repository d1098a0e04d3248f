"""What session tokens and service account tokens have in common: found in a header, verified once, remembered."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Protocol

from proxy.errors import GatewayError
from proxy.identity.compact import TokenFault, unverified_issuers
from proxy.identity.identifier import Answer, misconfigured, refused
from proxy.identity.jwk import UnknownKey
from proxy.identity.memory import Memory
from proxy.identity.presented import bearer_token, proxy_token, session_token
from proxy.identity.verification import Verified, Verifier
from proxy.model import Caller, Presented
from signers.secret import Secret


class TokenIssuer(Protocol):
    """An issuer and what its verified claims say about the caller."""

    @property
    def verifier(self) -> Verifier:
        """Checks the issuer's tokens."""

    def caller(self, verified: Verified, token: Secret) -> Caller:
        """The caller named by verified claims. Raises TokenFault when they name none that this issuer may speak for."""


class BearerIdentifier:
    """Claims tokens whose unverified `iss` is one of its issuers'; every other token is not its to judge."""

    def __init__(self, issuers: Sequence[TokenIssuer], memory: Memory | None = None) -> None:
        """Raises ConfigurationError when two issuers have one name: which keys and tenants count would be chance."""
        self._issuers = {issuer.verifier.issuer: issuer for issuer in issuers}
        if len(self._issuers) != len(issuers) or not issuers:
            raise misconfigured("issuers: at least one is needed, and each may be listed once")
        self.issuers = frozenset(self._issuers)
        self._memory = memory if memory is not None else Memory()
        for issuer in issuers:
            issuer.verifier.keys.subscribe(self._memory.clear)

    def identify(self, presented: Presented, now: float) -> Answer:
        """See Identifier. At once for a remembered token and wherever the key is known."""
        session, proxy, authorization, _ = presented
        # The place is part of the digest: a spelling accepted in one place is not thereby accepted in another.
        if session is not None:
            spelling = b"s" + session
        elif proxy is not None:
            spelling = b"p" + proxy
        elif authorization is not None:
            spelling = b"a" + authorization
        else:
            return None
        digest = hashlib.sha256(spelling).digest()
        return self._memory.recall(digest, now) or self._judge(presented_token(presented), digest, now)

    def subscribe(self, forgotten: Callable[[], None]) -> None:
        """See Identifier."""
        self._memory.subscribe(forgotten)

    def forget(self) -> None:
        """Every remembered caller is verified anew on its next call."""
        self._memory.clear()

    def _judge(self, token: bytes | None, digest: bytes, now: float) -> Answer:
        issuer = self._issuer_of(token) if token is not None else None
        if token is None or issuer is None:
            return None
        try:
            return self._verified(issuer, token, digest, now)
        except UnknownKey:
            return self._look_again(issuer, token, digest, now)
        except TokenFault as fault:
            raise refused(fault.args[0]) from None

    def _issuer_of(self, token: bytes) -> TokenIssuer | None:
        found = (self._issuers.get(name) for name in unverified_issuers(token))
        return next((issuer for issuer in found if issuer is not None), None)

    def _verified(self, issuer: TokenIssuer, token: bytes, digest: bytes, now: float) -> Caller:
        verified = issuer.verifier.verify(token, now)
        caller = issuer.caller(verified, Secret(token.decode("ascii")))
        self._memory.remember(digest, caller)
        return caller

    async def _look_again(self, issuer: TokenIssuer, token: bytes, digest: bytes, now: float) -> Caller:
        await issuer.verifier.keys.look_again(now)
        try:
            return self._verified(issuer, token, digest, now)
        except UnknownKey as fault:
            raise _unknown(issuer, fault) from None
        except TokenFault as fault:
            raise refused(fault.args[0]) from None


def _unknown(issuer: TokenIssuer, fault: UnknownKey) -> GatewayError:
    if issuer.verifier.keys.loaded:
        return refused(fault.args[0])
    return refused("The session token cannot be checked: its issuer's keys could not be read yet.", blame="network")


def presented_token(presented: Presented) -> bytes | None:
    """The one token of a call that may be judged, out of its place's spelling; None without one."""
    if presented.session is not None:
        return session_token(presented.session)
    if presented.proxy_authorization is not None:
        return proxy_token(presented.proxy_authorization)
    return bearer_token(presented.authorization) if presented.authorization is not None else None
