"""Requests to Vault: several addresses, bounded answers, deadlines, and never a redirect.

This module imports hvac and requests, which take 200 ms and 10 MB, so only threads that talk to a Vault import it.
hvac's API classes build the requests and `VaultAdapter` sends them: hvac's own adapters know one address and
read answers of any length.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import requests
import urllib3
from hvac.adapters import Adapter
from requests.adapters import HTTPAdapter

from proxy.credentials.stores.vault_errors import VaultRefusal, VaultUnreachable
from signers.secret import Secret

ANOTHER_ADDRESS: Final = frozenset((301, 302, 303, 307, 308, 472, 473, *range(500, 600)))
"""Answers after which another node may do better: standbys, sealed nodes, and those that point elsewhere."""
CHUNK: Final = 16 * 1024
CALL_ID: Final = "Sluicegate-Call-Id"


@dataclass(frozen=True, slots=True)
class TransportLimits:
    """Seconds, and bytes of one answer. `deadline` bounds one request over all addresses."""

    connect: float = 2.0
    read: float = 5.0
    deadline: float = 10.0
    answer: int = 1024 * 1024


class VaultTransport:
    """Sends requests to the first of `addresses` that can answer; threads share it.

    addresses           URLs such as https://vault.example:8200; the one that answered last is asked first
    namespace           sent with every request, for Vault Enterprise and OpenBao namespaces
    ca_file             PEM roots instead of the default ones
    client_certificate  (certificate file, key file)
    connections         kept connections for each address
    """

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        namespace: str | None = None,
        ca_file: Path | None = None,
        client_certificate: tuple[Path, Path] | None = None,
        limits: TransportLimits | None = None,
        connections: int = 8,
    ) -> None:
        self._addresses = tuple(address.rstrip("/") for address in addresses)
        self._preferred = 0
        self._namespace = namespace
        self._verify = str(ca_file) if ca_file else True
        self._cert: tuple[bytes | str, bytes | str] | None = None
        if client_certificate is not None:
            self._cert = str(client_certificate[0]), str(client_certificate[1])
        self._limits = limits or TransportLimits()
        self._session = requests.Session()
        # Neither proxies nor .netrc of the environment: they would see the token.
        self._session.trust_env = False
        for scheme in ("https://", "http://"):
            self._session.mount(scheme, HTTPAdapter(pool_maxsize=connections, max_retries=0))

    def send(
        self,
        method: str,
        path: str,
        token: Secret | None,
        body: object,
        query: Mapping[str, str],
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Vault's JSON answer to one request, None for one without a body.

        `headers` are further ones, beside those that every request has.

        Raises VaultRefusal for an error status, VaultUnreachable when no address gave an answer.
        """
        started = time.monotonic()
        prepared = requests.Request(
            method, path, headers={**self._headers(token), **(headers or {})}, json=body, params=dict(query)
        )
        order = self._order()
        for position, index in enumerate(order):
            last = position == len(order) - 1
            try:
                answer = self._ask(self._addresses[index], prepared, started)
            except VaultUnreachable as failure:
                self._preferred = (index + 1) % len(self._addresses)
                late = time.monotonic() - started >= self._limits.deadline
                if last or late or (failure.sent and method != "GET"):
                    raise
            except VaultRefusal as refusal:
                if last or refusal.status not in ANOTHER_ADDRESS:
                    raise
            else:
                self._preferred = index
                return answer
        raise VaultUnreachable("no Vault address is configured")

    def close(self) -> None:
        self._session.close()

    def _order(self) -> list[int]:
        count = len(self._addresses)
        return [(self._preferred + step) % count for step in range(count)]

    def _ask(self, address: str, request: requests.Request, started: float) -> Any:
        path = request.url
        what = f"{request.method} {path}"
        prepared = self._session.prepare_request(
            requests.Request(
                request.method, f"{address}{path}", headers=request.headers, json=request.json, params=request.params
            )
        )
        left = max(0.05, started + self._limits.deadline - time.monotonic())
        timeout = (min(self._limits.connect, left), min(self._limits.read, left))
        try:
            # The session's own `send` would read a redirect's body whole, however long it is.
            response = self._session.get_adapter(prepared.url or "").send(
                prepared, stream=True, timeout=timeout, verify=self._verify, cert=self._cert, proxies={}
            )
            with response:
                content = _read(response, self._limits.answer, started + self._limits.deadline)
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise VaultUnreachable(f"{address}: {what} failed ({_reason(error)})", sent=_was_sent(error)) from None
        return _judge(address, what, response.status_code, content)

    def _headers(self, token: Secret | None) -> dict[str, str]:
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", "X-Vault-Request": "true"}
        if token is not None:
            headers["X-Vault-Token"] = token.reveal()
        if self._namespace:
            headers["X-Vault-Namespace"] = self._namespace
        return headers


class VaultAdapter(Adapter):  # type: ignore[misc]
    """What hvac's API classes send through: our transport, with one token (None: a login).

    `call_id` names the call that the request is for; Vault keeps it in its audit log when told to (docs/vault.md).
    """

    def __init__(self, transport: VaultTransport, token: Secret | None, call_id: str = "") -> None:
        self._transport = transport
        self._own_token = token
        self._headers = {CALL_ID: call_id} if call_id else {}

    def request(
        self, method: str, url: str, headers: object = None, raise_exception: bool = True, **kwargs: Any
    ) -> Any:
        query = {str(name): str(value) for name, value in (kwargs.get("params") or {}).items()}
        if method == "list":
            # The same by Vault's API, and understood by what stands between (LIST is no method of HTTP).
            method, query = "get", {**query, "list": "true"}
        return self._transport.send(method.upper(), url, self._own_token, kwargs.get("json"), query, self._headers)

    def get_login_token(self, response: Any) -> str:
        return str(response["auth"]["client_token"])


class _AnswerTooLong(ValueError):
    pass


def _read(response: requests.Response, limit: int, deadline: float) -> bytes:
    """The body as it came, at most `limit` bytes, before `deadline` however slowly it drips."""
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise ValueError("encoded without being asked")
    content = bytearray()
    while chunk := response.raw.read1(CHUNK):
        content += chunk
        if len(content) > limit:
            raise _AnswerTooLong(f"longer than {limit} bytes")
        if time.monotonic() > deadline:
            raise TimeoutError
    return bytes(content)


def _judge(address: str, what: str, status: int, content: bytes) -> Any:
    try:
        answer = json.loads(content) if content else None
    except ValueError:
        answer = None
        if status == 200:
            raise VaultUnreachable(f"{address}: {what} failed (its answer is not JSON)") from None
    if status in (200, 204):
        return answer
    raise VaultRefusal(address, what, status, answer if isinstance(answer, dict) else {})


def _was_sent(error: Exception) -> bool:
    """Whether the request may have reached Vault: not when the connection or its TLS never came to be."""
    if isinstance(error, requests.exceptions.ConnectTimeout | requests.exceptions.SSLError):
        return False
    cause = error.args[0] if isinstance(error, requests.exceptions.ConnectionError) and error.args else None
    return not isinstance(cause, urllib3.exceptions.MaxRetryError)


def _reason(error: Exception) -> str:
    """Why a request failed, by kind of exception: their texts may hold headers or bodies."""
    reasons: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str], ...] = (
        (_AnswerTooLong, "its answer is too long"),
        (requests.exceptions.SSLError, "its certificate or TLS is not accepted"),
        ((requests.exceptions.ConnectTimeout, requests.exceptions.ReadTimeout, TimeoutError), "timed out"),
        (urllib3.exceptions.TimeoutError, "timed out"),
        (urllib3.exceptions.HTTPError, "its answer was cut short"),
        (requests.exceptions.ConnectionError, "cannot connect"),
    )
    return next((text for kind, text in reasons if isinstance(error, kind)), type(error).__name__)
