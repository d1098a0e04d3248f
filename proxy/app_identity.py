"""Identity as configured: the settings' chains made into the listeners' chains."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from proxy.identity.chain import Chain
from proxy.identity.client_certificate import CertificateRule, ClientCertificate
from proxy.identity.identifier import Identifier
from proxy.identity.keys import KeySet
from proxy.identity.limited import Limited
from proxy.identity.mapping import CallerTemplate
from proxy.identity.revocation import RevocationList
from proxy.identity.service_account import ServiceAccount, ServiceAccountRule
from proxy.identity.session_token import ClaimNames, SessionIssuer, SessionToken
from proxy.identity.source import FileSource, Reloading, UrlSource
from proxy.identity.static import Static
from proxy.identity.verification import Verifier
from proxy.model import Caller, ListenerKind
from proxy.settings import Settings
from proxy.settings.identity import (
    ClientCertificateIdentity,
    Identity,
    KeySource,
    ServiceAccountIdentity,
    SessionTokenIdentity,
    StaticIdentity,
)

Fetch = Callable[[str], Awaitable[bytes]]
FILE_SECONDS = 1.0
"""How often key files and revocation lists on disk are looked at."""
URL_SECONDS = 300.0


class Chains(Protocol):
    """Where an instance gets its listeners' chains."""

    def chain(self, configured: Identity, kind: ListenerKind) -> Chain:
        """The chain of one listener."""

    async def start(self) -> None:
        """Makes ready what the chains rest on, before anything is served."""

    def stop(self) -> None:
        """Ends background work."""


class Identities:
    """Makes chains, and keeps the documents behind them fresh."""

    def __init__(self, settings: Settings, fetch: Fetch) -> None:
        self._settings = settings
        self._fetch = fetch
        self._documents: list[Reloading[object]] = []
        self._lists: list[RevocationList] = []
        self._tasks: list[asyncio.Task[None]] = []

    def chain(self, configured: Identity, kind: ListenerKind) -> Chain:
        """The chain of one listener. Raises ConfigurationError."""
        members = [self._member(member) for member in configured.chain]
        return Chain(members, kind, configured.per_call == "required", self._settings.tenants, self._revoked)

    async def start(self) -> None:
        """Reads every key set and list once. Raises ConfigurationError for a file that cannot be used."""
        for document in self._documents:
            await document.start()
            seconds = FILE_SECONDS if document.source.local else URL_SECONDS
            self._tasks.append(asyncio.create_task(document.keep_fresh(seconds)))

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _revoked(self, caller: Caller) -> bool:
        return any(document.revoked(caller) for document in self._lists)

    def _keys(self, source: KeySource) -> KeySet:
        if source.jwks_file is not None:
            keys = KeySet(FileSource(source.jwks_file))
        else:
            keys = KeySet(UrlSource(source.jwks_url or "", self._fetch))
        self._documents.append(keys)  # type: ignore[arg-type]
        return keys

    def _member(self, member: object) -> Identifier:
        if isinstance(member, StaticIdentity):
            return Static(member.tenant, member.agent, member.actor)
        if isinstance(member, SessionTokenIdentity):
            return self._session_token(member)
        if isinstance(member, ServiceAccountIdentity):
            verifier = Verifier(
                member.issuer, member.audience, member.algorithms, self._keys(member), float(member.leeway)
            )
            mapping = ServiceAccountRule("*", "*", CallerTemplate(member.tenant, member.agent))
            return Limited(ServiceAccount(verifier, [mapping]), member.tenants)
        assert isinstance(member, ClientCertificateIdentity)
        kind, pattern = ("spiffe", member.spiffe) if member.spiffe else ("dns", member.dns or "")
        rule = CertificateRule(kind, pattern, CallerTemplate("{tenant}", "{agent}"))  # type: ignore[arg-type]
        return Limited(ClientCertificate([rule]), member.tenants)

    def _session_token(self, member: SessionTokenIdentity) -> SessionToken:
        if member.revocations_file is not None:
            revoked = RevocationList(FileSource(member.revocations_file))
            self._lists.append(revoked)
            self._documents.append(revoked)  # type: ignore[arg-type]
        return SessionToken(
            [
                SessionIssuer(
                    Verifier(
                        issuer.issuer, issuer.audience, issuer.algorithms, self._keys(issuer), float(member.leeway)
                    ),
                    issuer.tenants,
                    ClaimNames(issuer.claims.tenant, issuer.claims.agent, issuer.claims.actor),
                )
                for issuer in member.issuers
            ]
        )
