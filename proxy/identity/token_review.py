"""Kubernetes service accounts, by asking the cluster: TokenReview, authentication.k8s.io/v1.

Unlike an offline check it sees at once that a pod, its account or the token itself is gone. For proxies that many pods
share; an answer is reused for a short while only, so that what was revoked is refused within it.
https://kubernetes.io/docs/reference/kubernetes-api/authentication-resources/token-review-v1/
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from policies.traits import Traits
from proxy.identity.bearer import presented_token
from proxy.identity.compact import TokenFault, unverified_issuers
from proxy.identity.identifier import Answer, misconfigured, refused
from proxy.identity.memory import Memory
from proxy.identity.service_account import ServiceAccountRule, account_of, named_by
from proxy.model import Caller, Presented
from signers.secret import Secret

Review = Callable[[str], Awaitable[Mapping[str, Any]]]
"""Asks the cluster about a token: the review's `status`. Raises OSError, saying why, when there is no answer."""
REFUSED_SECONDS: Final = 5.0
"""For which a refusal is reused: an agent that goes on with a bad token does not flood the cluster."""
MOST_REFUSED: Final = 1_024
_EXTRA: Final = {"pod": "authentication.kubernetes.io/pod-name", "node": "authentication.kubernetes.io/node-name"}


class TokenReview:
    """The `token_review` member of a chain. `ttl` is how many seconds an answer holds."""

    def __init__(
        self, issuer: str, audiences: Sequence[str], rules: Sequence[ServiceAccountRule], review: Review, ttl: float
    ) -> None:
        """Raises ConfigurationError without a rule: which tenant a pod speaks for is never guessed."""
        if not rules:
            raise misconfigured("token_review: at least one mapping from service account to tenant is needed")
        self.issuers = frozenset({issuer})
        self._audiences = frozenset(audiences)
        self._rules = tuple(rules)
        self._review = review
        self._ttl = ttl
        self._memory = Memory()
        self._refused: dict[bytes, tuple[float, str]] = {}
        self._asking: dict[bytes, asyncio.Task[Caller]] = {}

    def identify(self, presented: Presented, now: float) -> Answer:
        """See Identifier. The token's `iss` is looked at unverified, only to tell whose it is to judge."""
        token = presented_token(presented)
        if token is None or self.issuers.isdisjoint(unverified_issuers(token)):
            return None
        digest = hashlib.sha256(token).digest()
        known = self._memory.recall(digest, now)
        if known is not None:
            return known
        until, why = self._refused.get(digest, (0.0, ""))
        if now < until:
            raise refused(why)
        return self._asked(token, digest, now)

    def subscribe(self, forgotten: Callable[[], None]) -> None:
        """See Identifier."""
        self._memory.subscribe(forgotten)

    async def _asked(self, token: bytes, digest: bytes, now: float) -> Caller:
        """One question for all calls that come with the same token meanwhile."""
        asking = self._asking.get(digest)
        if asking is None:
            asking = self._asking[digest] = asyncio.ensure_future(self._ask(token, digest, now))
            asking.add_done_callback(lambda _: self._asking.pop(digest, None))
        return await asyncio.shield(asking)

    async def _ask(self, token: bytes, digest: bytes, now: float) -> Caller:
        try:
            status = await self._review(token.decode("ascii"))
        except OSError:
            raise refused("The cluster could not be asked about the token; try again.", blame="network") from None
        try:
            caller = self._caller(status, token, now)
        except TokenFault as fault:
            if len(self._refused) >= MOST_REFUSED:
                self._refused.clear()
            self._refused[digest] = (now + REFUSED_SECONDS, fault.args[0])
            raise refused(fault.args[0]) from None
        self._memory.remember(digest, caller)
        return caller

    def _caller(self, status: Mapping[str, Any], token: bytes, now: float) -> Caller:
        """Raises TokenFault for a token that the cluster refuses, of another audience, or of nobody's."""
        if status.get("authenticated") is not True:
            raise TokenFault("The cluster does not accept the token.")
        # An API server that does not know of audiences would answer without any, for a token meant for itself.
        if self._audiences.isdisjoint(status.get("audiences") or ()):
            raise TokenFault("The token is not for this proxy: its audience is another.")
        user = status.get("user") or {}
        values = self._values(user)
        tenant, agent, actor = named_by(self._rules, values)
        return Caller(
            tenant, agent, actor, now + self._ttl, "token_review", hashlib.sha256(token).hexdigest(),
            subject_token=Secret(token.decode("ascii")), traits=Traits(values["namespace"]),
        )  # fmt: skip

    @staticmethod
    def _values(user: Mapping[str, Any]) -> dict[str, str]:
        namespace, name = account_of(user.get("username"))
        extra = user.get("extra") or {}
        found = {key: extra[field][0] for key, field in _EXTRA.items() if extra.get(field)}
        return {**found, "namespace": namespace, "name": name}
