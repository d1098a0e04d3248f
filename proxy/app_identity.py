"""Identity as configured: the settings' chains made into the listeners' chains."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from proxy.identity.chain import Chain
from proxy.identity.identifier import Identifier
from proxy.identity.static import Static
from proxy.identity.traits import traits_of
from proxy.model import Caller, ListenerKind
from proxy.settings import Settings
from proxy.settings import identity as configured_as

if TYPE_CHECKING:
    from proxy.identity.client_certificate import CertificateRule
    from proxy.identity.keys import KeySet
    from proxy.identity.mapping import CallerTemplate
    from proxy.identity.revocation import RevocationList
    from proxy.identity.service_account import ServiceAccountRule
    from proxy.identity.session_token import SessionIssuer
    from proxy.identity.source import Reloading, Source

Fetch = Callable[[str], Awaitable[bytes]]
FILE_SECONDS = 1.0
"""How often key files and revocation lists on disk are looked at."""
KEYS_URL_SECONDS = 300.0
"""A key set behind a URL; an unknown key id asks again at once."""
REVOCATIONS_URL_SECONDS = 5.0
"""A revocation list behind a URL: who is on it is cut within seconds."""


class Chains(Protocol):
    """Where an instance gets its listeners' chains."""

    @property
    def documents(self) -> Sequence[Reloading[Any]]:
        """Key sets and revocation lists behind them."""

    @property
    def revocations(self) -> Sequence[RevocationList]:
        """The lists among them."""

    def chain(self, configured: configured_as.Identity, kind: ListenerKind) -> Chain:
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

    def chain(self, configured: configured_as.Identity, kind: ListenerKind) -> Chain:
        """The chain of one listener. Raises ConfigurationError."""
        members = [self._member(member) for member in configured.chain]
        return Chain(
            members, kind, configured.per_call == "required", self._settings.tenants, self._revocations(configured)
        )

    async def start(self) -> None:
        """Reads every key set and list once. Raises ConfigurationError for a file that cannot be used."""
        for document in self.documents:
            await document.start()
            seconds = FILE_SECONDS
            if not document.source.local:
                seconds = REVOCATIONS_URL_SECONDS if document in self.revocations else KEYS_URL_SECONDS
            self._tasks.append(asyncio.create_task(document.keep_fresh(seconds)))

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _source(self, file: Path | None, url: str | None) -> Source:
        from proxy.identity.source import FileSource, UrlSource

        return FileSource(file) if file is not None else UrlSource(url or "", self._fetch)

    def _revocations(self, configured: configured_as.Identity) -> Callable[[Caller], bool] | None:
        if configured.revocations_file is None and configured.revocations_url is None:
            return None
        from proxy.identity.revocation import RevocationList

        revocations = RevocationList(self._source(configured.revocations_file, configured.revocations_url))
        self.documents.append(revocations)
        self.revocations.append(revocations)
        return revocations.revoked

    def _keys(self, source: configured_as.KeySource) -> KeySet:
        from proxy.identity.keys import KeySet

        keys = KeySet(self._source(source.jwks_file, source.jwks_url))
        self.documents.append(keys)
        return keys

    # Members import what they need when they are configured: `static` needs no cryptography and no JWT library.

    def _member(self, member: object) -> Identifier:
        if isinstance(member, configured_as.StaticIdentity):
            return Static(member.tenant, member.agent, member.actor, traits_of(member.namespace, member.labels))
        if isinstance(member, configured_as.SessionTokenIdentity):
            from proxy.identity.session_token import SessionToken

            return SessionToken([self._issuer(issuer, float(member.leeway)) for issuer in member.issuers])
        if isinstance(member, configured_as.ServiceAccountIdentity):
            return self._service_account(member)
        if isinstance(member, configured_as.TokenReviewIdentity):
            from proxy.app_token_review import token_review

            return token_review(member, [_account_rule(rule) for rule in member.rules])
        assert isinstance(member, configured_as.ClientCertificateIdentity)
        from proxy.identity.client_certificate import ClientCertificate

        return ClientCertificate([_certificate_rule(rule) for rule in member.rules])

    def _service_account(self, member: configured_as.ServiceAccountIdentity) -> Identifier:
        from proxy.identity.service_account import ServiceAccount
        from proxy.identity.verification import Verifier

        verifier = Verifier(member.issuer, member.audience, member.algorithms, self._keys(member), float(member.leeway))
        return ServiceAccount(verifier, [_account_rule(rule) for rule in member.rules])

    def _issuer(self, issuer: configured_as.Issuer, leeway: float) -> SessionIssuer:
        from proxy.identity.session_token import ClaimNames, SessionIssuer
        from proxy.identity.verification import Verifier

        return SessionIssuer(
            Verifier(issuer.issuer, issuer.audience, issuer.algorithms, self._keys(issuer), leeway),
            issuer.tenants,
            ClaimNames(**issuer.claims.model_dump()),
        )


def _account_rule(rule: configured_as.ServiceAccountRule) -> ServiceAccountRule:
    from proxy.identity.service_account import ServiceAccountRule

    return ServiceAccountRule(rule.namespace, rule.name, _template(rule))


def _template(names: configured_as.CallerNames) -> CallerTemplate:
    from proxy.identity.mapping import CallerTemplate

    return CallerTemplate(names.tenant, names.agent, names.actor)


def _certificate_rule(rule: configured_as.CertificateRule) -> CertificateRule:
    from proxy.identity.client_certificate import CertificateRule

    if rule.spiffe is not None:
        return CertificateRule("spiffe", rule.spiffe, _template(rule))
    return CertificateRule("dns", rule.dns or "", _template(rule))
