"""From a plan to a stored record: through the browser, or with a code on another device."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from proxy.connecting.loopback import ConsentError, Loopback
from proxy.connecting.pages import success_page
from proxy.connecting.plan import Plan, missing_scopes, record_of
from proxy.credentials.renewal import renewed_fields
from proxy.credentials.store import Conflict, NotFound, Store, Stored
from proxy.errors import SluicegateError, StoreError
from proxy.upstream.token_endpoint import TokenEndpoints
from signers.grants.authorization_code import authorization_code, authorization_url
from signers.grants.device_code import DeviceAuthorization, device_authorization, device_code
from signers.grants.model import Answer, Issued, Step, TokenRefused, TokenRequest
from signers.secret import Secret
from signers.token_reply import labels

T = TypeVar("T")
SLOWER = 5.0
"""Seconds added to the pause between questions when the endpoint asks for it, or does not answer (RFC 8628 section
3.5)."""
_SLOWER: Final = frozenset(["slow_down", "no_reply", "unreachable"])
STORE_TRIES: Final = 8
"""A code is spent with the tokens that it gave: a store that is away is asked again before they are given up."""


@dataclass(frozen=True, slots=True)
class Connected:
    """What came of it: the record's version, whose account it is ("" if unknown), what was not granted, and
    what the provider told for the record's `vars`."""

    version: int
    account: str
    missing: tuple[str, ...]
    learned: Mapping[str, str]


class Consent:
    """One consent. `path` is where the record goes; `expect` is the account that it must be for, "" for any;
    `show` tells the person what to do; `sleep` waits for so many seconds."""

    def __init__(
        self,
        wanted: Plan,
        store: Store,
        path: str,
        endpoints: TokenEndpoints,
        expect: str,
        show: Callable[[str], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._plan = wanted
        self._store = store
        self._path = path
        self._endpoints = endpoints
        self._expect = expect
        self._show = show
        self._sleep = sleep
        self._connected: Connected | None = None

    async def in_browser(self, port: int, seconds: float, browse: Callable[[str], None]) -> Connected:
        """Authorization code with PKCE and an exact loopback redirect. Raises ConsentError."""
        if not self._plan.authorization_endpoint:
            raise ConsentError("neither the catalogue nor the app's record names an authorization_endpoint")
        verifier = Secret(secrets.token_urlsafe(48))
        loopback = Loopback(lambda code, query: self._redeem(code, query, loopback.redirect, verifier), port)
        url = authorization_url(
            self._plan.client,
            self._plan.authorization_endpoint,
            loopback.redirect,
            loopback.state,
            verifier,
            self._plan.scopes,
            self._plan.authorization_parameters,
        )
        self._show(f"Open this link in a browser on this machine:\n\n  {url}\n")
        browse(url)
        await loopback.wait(seconds)
        assert self._connected is not None
        return self._connected

    async def on_device(self) -> Connected:
        """A code that the person enters elsewhere (RFC 8628). Raises ConsentError."""
        if not self._plan.device_endpoint:
            raise ConsentError("neither the catalogue nor the app's record names a device_endpoint")
        asked = device_authorization(
            self._plan.client, self._plan.device_endpoint, self._plan.scopes, time.time(), _nonce()
        )
        shown = await self._run(asked)
        self._show(f"Go to {shown.verification_uri} and enter the code {shown.user_code}")
        return await self._store_grant(await self._agreed(shown))

    async def _agreed(self, shown: DeviceAuthorization) -> Issued:
        end, pause = time.monotonic() + shown.expires_in, shown.interval
        while time.monotonic() < end:
            await self._sleep(pause)
            try:
                grant = device_code(self._plan.client, shown.device_code, time.time(), _nonce())
                return await self._endpoints.ask(grant, self._plan.app.networks)
            except TokenRefused as refusal:
                if refusal.error in _SLOWER:
                    pause += SLOWER
                elif refusal.error != "authorization_pending":
                    raise ConsentError(_reason(refusal)) from None
        raise ConsentError("nobody entered the code in time")

    async def _redeem(self, code: Secret, query: Mapping[str, str], redirect: str, verifier: Secret) -> str:
        grant = authorization_code(
            self._plan.client, code, redirect, verifier, time.time(), _nonce(), variant=self._plan.variant
        )
        issued = await self._run(grant)
        told = labels(query, {name: (parameter,) for name, parameter in self._plan.redirect_learns.items()})
        connected = await self._store_grant(replace(issued, learned={**issued.learned, **told}))
        self._connected = connected
        return success_page(self._plan.app.provider or self._plan.app.name, connected.account)

    async def _run(self, grant: Generator[Step, Answer, T]) -> T:
        try:
            return await self._endpoints.ask(grant, self._plan.app.networks)
        except TokenRefused as refusal:
            raise ConsentError(_reason(refusal)) from None
        except ValueError as error:
            raise ConsentError(f"apps/{self._plan.app.name}: {error}") from None

    async def _store_grant(self, issued: Issued) -> Connected:
        account = await self._account(issued)
        version = await self._written(lambda stored: self._record(stored, issued, account))
        return Connected(version, account, missing_scopes(self._plan, issued), issued.learned)

    def _record(self, stored: Mapping[str, Any], issued: Issued, account: str) -> dict[str, Any]:
        """What is stored over what is there. Raises ConsentError when it is another account than the expected one."""
        expect = self._expect or str(stored.get("expect_account", ""))
        if expect and account != expect:
            found = f"is {account!r}" if account else "is not known"
            raise ConsentError(f"the account that agreed {found}, and {expect!r} is expected")
        return record_of(stored, self._plan, issued, renewed_fields(issued), account)

    async def _account(self, issued: Issued) -> str:
        """Whose account the token is for, by the provider's own word."""
        if not self._plan.identity_endpoint:
            return ""
        headers = {"Authorization": f"Bearer {issued.access_token.reveal()}", "Accept": "application/json"}
        request = TokenRequest(self._plan.identity_endpoint, {**headers, "User-Agent": "sluicegate"}, b"", method="GET")
        try:
            reply = await self._endpoints.send(request, self._plan.app.networks)
            document = json.loads(reply.body) if reply.status == 200 else None
        except (TokenRefused, ValueError):
            return ""
        found = document.get(self._plan.identity_field) if isinstance(document, Mapping) else None
        return str(found)[:200] if isinstance(found, str | int) else ""

    async def _stored(self) -> Stored:
        try:
            return await self._store.read(self._path)
        except NotFound:
            return Stored({}, 0)

    async def _written(self, make: Callable[[Mapping[str, Any]], dict[str, Any]]) -> int:
        """Write by compare-and-set: a proxy may be renewing the old grant just now. Raises ConsentError."""
        fault: SluicegateError = Conflict(self._path)
        for number in range(STORE_TRIES):
            try:
                stored = await self._stored()
                return await self._store.write(self._path, make(stored.fields), stored.version)
            except Conflict:
                continue
            except StoreError as error:
                fault = error
                await self._sleep(0.1 * 2.0**number)
        raise ConsentError(f"the grant could not be stored: {fault}")


def _nonce() -> str:
    return secrets.token_hex(16)


def _reason(refusal: TokenRefused) -> str:
    return f"the provider's token endpoint gave no token ({refusal.error})"
