"""Identity as configured: the settings' chains made into the listeners' chains."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from proxy.identity.chain import Chain
from proxy.identity.client_certificate import CertificateRule, ClientCertificate
from proxy.identity.identifier import Identifier
from proxy.identity.keys import KeySet
from proxy.identity.mapping import CallerTemplate
from proxy.identity.revocation import RevocationList
from proxy.identity.service_account import ServiceAccount, ServiceAccountRule
from proxy.identity.session_token import ClaimNames, SessionIssuer, SessionToken
from proxy.identity.source import FileSource, Reloading, Source, UrlSource
from proxy.identity.static import Static
from proxy.identity.verification import Verifier
from proxy.model import Caller, ListenerKind
from proxy.settings import Settings
from proxy.settings import identity as settings_identity
from proxy.settings.identity import (
    CallerNames,
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

    @property
    def documents(self) -> Sequence[Reloading[Any]]:
        """Key sets and revocation lists behind them."""

    @property
    def revocations(self) -> Sequence[RevocationList]:
        """The lists among them."""

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
        self.documents: list[Reloading[Any]] = []
        self.revocations: list[RevocationList] = []
        self._tasks: list[asyncio.Task[None]] = []

    def chain(self, configured: Identity, kind: ListenerKind) -> Chain:
        """The chain of one listener. Raises ConfigurationError."""
        members = [self._member(member) for member in configured.chain]
        return Chain(
            members, kind, configured.per_call == "required", self._settings.tenants, self._revocations(configured)
        )

    async def start(self) -> None:
        """Reads every key set and list once. Raises ConfigurationError for a file that cannot be used."""
        for document in self.documents:
            await document.start()
            seconds = FILE_SECONDS if document.source.local else URL_SECONDS
            self._tasks.append(asyncio.create_task(document.keep_fresh(seconds)))

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _revocations(self, configured: Identity) -> Callable[[Caller], bool] | None:
        source: Source
        if configured.revocations_file is not None:
            source = FileSource(configured.revocations_file)
        elif configured.revocations_url is not None:
            source = UrlSource(configured.revocations_url, self._fetch)
        else:
            return None
        revocations = RevocationList(source)
        self.documents.append(revocations)
        self.revocations.append(revocations)
        return revocations.revoked

    def _keys(self, source: KeySource) -> KeySet:
        if source.jwks_file is not None:
            keys = KeySet(FileSource(source.jwks_file))
        else:
            keys = KeySet(UrlSource(source.jwks_url or "", self._fetch))
        self.documents.append(keys)
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
            return ServiceAccount(
                verifier, [ServiceAccountRule(rule.namespace, rule.name, _template(rule)) for rule in member.rules]
            )
        assert isinstance(member, ClientCertificateIdentity)
        return ClientCertificate([_certificate_rule(rule) for rule in member.rules])

    def _session_token(self, member: SessionTokenIdentity) -> SessionToken:
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


def _template(names: CallerNames) -> CallerTemplate:
    return CallerTemplate(names.tenant, names.agent, names.actor)


def _certificate_rule(rule: settings_identity.CertificateRule) -> CertificateRule:
    if rule.spiffe is not None:
        return CertificateRule("spiffe", rule.spiffe, _template(rule))
    return CertificateRule("dns", rule.dns or "", _template(rule))
