"""The secret of one run: a session token whose key lives in this process's memory and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, Final

from proxy.identity.chain import Chain
from proxy.identity.claims import DAY
from proxy.identity.identifier import Answer
from proxy.identity.jwk import Key, parse_key_set
from proxy.identity.minting import mint
from proxy.identity.revocation import RevocationList
from proxy.identity.session_token import SessionIssuer, SessionToken
from proxy.identity.signing_key import SigningKey
from proxy.identity.source import Reloading
from proxy.identity.verification import Verifier
from proxy.model import Caller, ListenerKind, Presented
from proxy.settings.identity import Identity

ISSUER: Final = "sluicegate-run"


class _OneKey:
    """A key set that never changes."""

    loaded = True

    def __init__(self, key: SigningKey) -> None:
        self.current: Sequence[Key] = parse_key_set(json.dumps(key.public_set()).encode())

    async def look_again(self, now: float) -> None:
        """Nothing to look at."""

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Never calls."""


class RunToken:
    """Claims the run's own token for as long as the process lives.

    A token elsewhere ends after 24 h at the latest, because nobody knows where it has gone by then. This one's key is
    gone with the process, and a command may run for longer than a day with the environment it was started with.
    """

    def __init__(self, inner: SessionToken, minted: float, *, owned: Caller | None = None) -> None:
        """`owned` is the caller of a connection that presents nothing, where the listener knows its owner by itself."""
        self.issuers = inner.issuers
        self._inner = inner
        self._minted = minted
        self._owned = owned
        self._seen: tuple[Caller, Caller] | None = None

    def identify(self, presented: Presented, now: float) -> Answer:
        """See Identifier."""
        if self._owned is not None and presented.session is None and presented.proxy_authorization is None:
            return self._owned
        answer = self._inner.identify(presented, self._minted)
        return self._endless(answer) if isinstance(answer, Caller) else answer

    def subscribe(self, forgotten: Callable[[], None]) -> None:
        """See Identifier."""
        self._inner.subscribe(forgotten)

    def _endless(self, caller: Caller) -> Caller:
        if self._seen is None or self._seen[0] is not caller:
            self._seen = (caller, replace(caller, expires=None))
        return self._seen[1]


class RunSession:
    """Mints the token and makes the chains that accept it and nothing else. Stands in for the configured identities."""

    documents: Sequence[Reloading[Any]] = ()
    revocations: Sequence[RevocationList] = ()

    def __init__(self, caller: Caller, tenants: Collection[str], now: float) -> None:
        """`tenants` are those the configuration serves, `now` is in epoch seconds."""
        key = SigningKey.generate()
        self.caller = caller
        self._tenants = tenants
        self._now = now
        claims = {"iss": ISSUER, "aud": ISSUER, "tenant": caller.tenant, "agent": caller.agent}
        if caller.actor:
            claims["actor"] = caller.actor
        self.token = mint(key, claims, DAY, now)
        verifier = Verifier(ISSUER, ISSUER, [key.algorithm], _OneKey(key))
        self._inner = SessionToken([SessionIssuer(verifier, [caller.tenant])])

    def chain(self, configured: Identity | None, kind: ListenerKind) -> Chain:
        """The chain of a listener, whatever identity is configured for it."""
        return Chain([RunToken(self._inner, self._now)], kind, tenants=self._tenants)

    def owners_chain(self) -> Chain:
        """The chain of a proxy listener that lets in nobody's connections but the run's."""
        return Chain([RunToken(self._inner, self._now, owned=self.caller)], "proxy", tenants=self._tenants)

    async def start(self) -> None:
        """Nothing to read."""

    def stop(self) -> None:
        """Nothing to stop."""
