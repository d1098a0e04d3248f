"""The webhook's certificate: files that others renew, or one of its own in a Secret that all replicas share.

A rotation of our own never leaves a moment in which the API server does not trust what is served: the new authority
is written beside the last one, both are told to the API server, and only at the next look is the new leaf served.
"""

from __future__ import annotations

import base64
import logging
import ssl
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Protocol

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from proxy.cluster import ClusterError
from proxy.listeners.certificates import Authority, authority_certificate, generate_key, leaf_certificate
from proxy.webhook.configuration import SelfManaged
from proxy.webhook.names import Json
from proxy.wire.key_files import load_chain

log = logging.getLogger("sluicegate.webhook")
DUE: Final = 12 * 3_600.0
"""Seconds before a leaf's end at which it is replaced: half of its life."""
_GROUP: Final = "/apis/admissionregistration.k8s.io/v1/"
_CONFIGURATIONS: Final = {"mutating": "mutatingwebhookconfigurations", "validating": "validatingwebhookconfigurations"}


class Api(Protocol):
    """The part of proxy.cluster.Cluster that is needed. Raises ClusterError."""

    async def request(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json"
    ) -> dict[str, Any]: ...


class Served:
    """A TLS context whose certificate is replaced while it serves: each handshake takes the newest."""

    def __init__(self) -> None:
        self._current: ssl.SSLContext | None = None
        self.expires: float | None = None
        """Epoch seconds of the served leaf's end."""
        self.context = _context()
        self.context.sni_callback = self._newest  # asked in every handshake, with or without a name

    @property
    def usable(self) -> bool:
        return self._current is not None

    def take(self, pem: bytes) -> None:
        """Serves this key and chain from now on. Raises ssl.SSLError and keeps the last one when they are no pair."""
        context = _context()
        load_chain(context, pem)
        if self._current is None:
            load_chain(self.context, pem)
        self._current = context
        self.expires = x509.load_pem_x509_certificates(pem)[0].not_valid_after_utc.timestamp()

    def _newest(self, connection: Any, _name: str | None, _context: ssl.SSLContext) -> None:
        if self._current is not None:
            connection.context = self._current


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


class Pair(NamedTuple):
    """What the Secret holds: leaf and key, PEM, and the authorities to trust, the newest first."""

    certificate: bytes
    key: bytes
    authorities: bytes

    def ends(self) -> float:
        """Epoch seconds of the leaf's end; 0 for what is no certificate."""
        try:
            return x509.load_pem_x509_certificate(self.certificate).not_valid_after_utc.timestamp()
        except ValueError:
            return 0.0


def made(host: str, last: Pair | None, now: float) -> Pair:
    """A new authority and leaf for `host`; the authority's key is kept by nobody. The last authority stays trusted."""
    key, leaf_key = generate_key(), generate_key()
    certificate = authority_certificate(key, now)
    leaf = leaf_certificate(host, leaf_key, Authority(certificate, key, (certificate,)), now)
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    return Pair(
        leaf.public_bytes(serialization.Encoding.PEM),
        leaf_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
        pem + _newest_authority(last, now),
    )


def _newest_authority(last: Pair | None, now: float) -> bytes:
    if last is None:
        return b""
    try:
        newest = x509.load_pem_x509_certificates(last.authorities)[0]
    except (ValueError, IndexError):
        return b""
    expired = newest.not_valid_after_utc <= datetime.fromtimestamp(now, UTC)
    return b"" if expired else newest.public_bytes(serialization.Encoding.PEM)


class Keeper:
    """Keeps the Secret, the API server's trust and what is served in step. Every replica runs one."""

    def __init__(self, wanted: SelfManaged, api: Api, served: Served) -> None:
        self._wanted = wanted
        self._api = api
        self._served = served
        self._path = f"/api/v1/namespaces/{wanted.namespace}/secrets"
        self._taken: Pair | None = None

    async def look(self, now: float) -> None:
        """One round; to be called again and again. Raises the API's error, and nothing has changed for the worse."""
        pair = await self._pair(now)
        told = await self._tell(pair.authorities)
        if pair != self._taken and (not told or not self._served.usable):
            self._served.take(pair.key + pair.certificate)
            self._taken = pair
            log.info("the webhook's certificate is served", extra={"until": datetime.fromtimestamp(pair.ends(), UTC)})

    async def _pair(self, now: float) -> Pair:
        """The Secret's pair; made anew where it is missing or due. A replica that was faster is believed."""
        found, version = await self._read()
        if found is not None and found.ends() - now > DUE:
            return found
        new = made(f"{self._wanted.service}.{self._wanted.namespace}.svc", found, now)
        try:
            await self._write(new, version)
        except ClusterError as error:
            if error.status != 409:
                raise
            found, _ = await self._read()
            if found is None:
                raise
            return found
        return new

    async def _read(self) -> tuple[Pair | None, str]:
        try:
            secret = await self._api.request("GET", f"{self._path}/{self._wanted.secret}")
        except ClusterError as error:
            if error.status == 404:
                return None, ""
            raise
        stored = secret.get("data") or {}
        version = str((secret.get("metadata") or {}).get("resourceVersion") or "")
        try:
            return Pair(*(base64.b64decode(stored[name]) for name in ("tls.crt", "tls.key", "ca.crt"))), version
        except (KeyError, ValueError):
            return None, version

    async def _write(self, pair: Pair, version: str) -> None:
        metadata: Json = {"name": self._wanted.secret, "namespace": self._wanted.namespace}
        body: Json = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": {**metadata, "resourceVersion": version} if version else metadata,
            "data": {
                name: base64.b64encode(value).decode()
                for name, value in zip(("tls.crt", "tls.key", "ca.crt"), pair, strict=True)
            },
        }
        if version:
            await self._api.request("PUT", f"{self._path}/{self._wanted.secret}", body)
        else:
            await self._api.request("POST", self._path, body)

    async def _tell(self, authorities: bytes) -> bool:
        """Writes the authorities into every configuration that has others; whether any had."""
        bundle, told = base64.b64encode(authorities).decode(), False
        for named in self._wanted.configurations:
            kind, _, name = named.partition("/")
            path = f"{_GROUP}{_CONFIGURATIONS[kind]}/{name}"
            webhooks = (await self._api.request("GET", path)).get("webhooks") or []
            changes = [
                {"op": "add", "path": f"/webhooks/{number}/clientConfig/caBundle", "value": bundle}
                for number, webhook in enumerate(webhooks)
                if (webhook.get("clientConfig") or {}).get("caBundle") != bundle
            ]
            if changes:
                await self._api.request("PATCH", path, changes, "application/json-patch+json")
                told = True
        return told
