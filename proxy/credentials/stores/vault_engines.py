"""What Vault does for us beside keeping records: it signs with keys that never leave it, and issues certificates.

https://developer.hashicorp.com/vault/api-docs/secret/transit#sign-data and …/secret/pki#generate-certificate-and-key
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from proxy.credentials.paths import check_path
from proxy.credentials.stores.vault_errors import VaultUnreachable
from proxy.credentials.stores.vault_session import VaultSession
from proxy.errors import StoreError
from signers.secret import Secret

if TYPE_CHECKING:
    from proxy.credentials.stores.vault_transport import VaultAdapter


class _Scheme(NamedTuple):
    """How transit is asked for a JWS algorithm (RFC 7518 section 3.1, RFC 8037). "" leaves a parameter out."""

    hash: str
    signature: str = ""
    marshaling: str = ""


_SCHEMES: Final[Mapping[str, _Scheme]] = {
    **{f"RS{bits}": _Scheme(f"sha2-{bits}", "pkcs1v15") for bits in (256, 384, 512)},
    **{f"PS{bits}": _Scheme(f"sha2-{bits}", "pss") for bits in (256, 384, 512)},
    **{f"ES{bits}": _Scheme(f"sha2-{bits}", marshaling="jws") for bits in (256, 384, 512)},
    "EdDSA": _Scheme(""),
}


class TransitKey:
    """A signing key in Vault's transit engine. `name` is the key's; the token needs `update` on `sign/{name}`."""

    def __init__(self, session: VaultSession, name: str, mount: str = "transit") -> None:
        self._session = session
        self._path = f"/v1/{check_path(mount)}/sign/{check_path(name)}"

    async def sign(self, message: bytes, algorithm: str) -> bytes:
        """The signature of `message` as JWS wants it: for ES* the two numbers side by side (RFC 7518 section 3.4).

        Raises StoreError, and ValueError for an algorithm that is none of RS, PS, ES with 256, 384, 512 or EdDSA.
        """
        scheme = _SCHEMES.get(algorithm)
        if scheme is None:
            raise ValueError(f"{algorithm!r} is no algorithm to sign with: {', '.join(_SCHEMES)}")
        body = {"input": base64.b64encode(message).decode()}
        if scheme.hash:
            body["hash_algorithm"] = scheme.hash
        if scheme.signature:
            body["signature_algorithm"] = scheme.signature
            # RFC 7518 section 3.5: the salt is as long as the hash.
            body |= {"salt_length": "hash"} if scheme.signature == "pss" else {}
        if scheme.marshaling:
            body["marshaling_algorithm"] = scheme.marshaling
        answer = await self._session.run(lambda adapter: _post(adapter, self._path, body))
        return _signature(answer.get("signature"))


@dataclass(frozen=True, slots=True, repr=False)
class Issued:
    """A certificate just made. `chain` is PEM, the leaf first; `expires` is epoch seconds."""

    chain: str
    private_key: Secret
    serial: str
    expires: float

    def __repr__(self) -> str:
        return f"Issued(serial={self.serial}, expires={self.expires})"


class PkiRole:
    """A role of Vault's PKI engine; the token needs `update` on `issue/{role}`."""

    def __init__(self, session: VaultSession, role: str, mount: str = "pki") -> None:
        self._session = session
        self._path = f"/v1/{check_path(mount)}/issue/{quote(check_path(role))}"

    async def issue(
        self, common_name: str, ttl: float, *, dns_names: Sequence[str] = (), uris: Sequence[str] = ()
    ) -> Issued:
        """A certificate with a key of its own, for `ttl` seconds or what the role allows. Raises StoreError."""
        body = {
            "common_name": common_name,
            "ttl": f"{int(ttl)}s",
            "alt_names": ",".join(dns_names),
            "uri_sans": ",".join(uris),
        }
        answer = await self._session.run(lambda adapter: _post(adapter, self._path, body))
        try:
            chain = [answer["certificate"], *(answer.get("ca_chain") or [answer["issuing_ca"]])]
            return Issued(
                "\n".join(part.strip() for part in chain) + "\n",
                Secret(answer["private_key"]),
                str(answer["serial_number"]),
                float(answer["expiration"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise VaultUnreachable("the answer of the PKI engine holds no certificate") from None


def _post(adapter: VaultAdapter, path: str, body: object) -> Mapping[str, Any]:
    answer = adapter.request("post", path, json=body)
    found = answer.get("data") if isinstance(answer, Mapping) else None
    if not isinstance(found, Mapping):
        raise VaultUnreachable(f"{path}: the answer holds no data")
    return found


def _signature(raw: object) -> bytes:
    """`vault:v1:…` without what says which version of the key signed; base64 in either alphabet."""
    text = raw.rsplit(":", 1)[-1] if isinstance(raw, str) and raw.startswith("vault:v") else ""
    try:
        signature = base64.b64decode(text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4), validate=True)
    except binascii.Error:
        signature = b""
    if not signature:
        raise StoreError("the answer of the transit engine holds no signature")
    return signature
