"""`store:` where the tenants' credentials are kept."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from proxy.settings.base import FilePath, OneOrMore, Section, as_written


class FileStore(Section):
    """The embedded store: one encrypted file."""

    kind: Literal["file"] = "file"
    path: FilePath = Field(as_written("./secrets.enc"), description="The encrypted records.")
    key_file: FilePath = Field(
        as_written("./secrets.key"), description="The key, 0600; the first `secrets set` makes it."
    )


class TokenAuth(Section):
    """A Vault token kept in a file, read again when it changes."""

    kind: Literal["token"]
    token_file: FilePath = Field(description="File with the token.")


class AppRoleAuth(Section):
    """Vault's AppRole login."""

    kind: Literal["approle"]
    role_id: str = Field(description="The role id (not secret).", min_length=1)
    secret_id_file: FilePath | None = Field(None, description="File with the secret id; null if the role needs none.")
    mount: str = Field("approle", description="Mount of the login method.")


class JwtAuth(Section):
    """Vault's JWT login with a token from a file."""

    kind: Literal["jwt"]
    role: str = Field(description="Role to log in to.", min_length=1)
    token_file: FilePath = Field(description="File with the JWT, read at each login.")
    mount: str = Field("jwt", description="Mount of the login method.")


class KubernetesAuth(Section):
    """Vault's Kubernetes login with the pod's service-account token."""

    kind: Literal["kubernetes"]
    role: str = Field(description="Role to log in to.", min_length=1)
    token_file: FilePath = Field(
        as_written("/var/run/secrets/kubernetes.io/serviceaccount/token"),
        description="Projected token, read at each login.",
    )
    mount: str = Field("kubernetes", description="Mount of the login method.")


VaultAuth = Annotated[TokenAuth | AppRoleAuth | JwtAuth | KubernetesAuth, Field(discriminator="kind")]


class VaultTimeouts(Section):
    """Seconds for each request to Vault."""

    connect: float = Field(2, gt=0, le=60, description="TCP and TLS handshake.")
    read: float = Field(5, gt=0, le=60, description="Longest gap in an answer.")


class VaultStore(Section):
    """HashiCorp Vault or OpenBao, secrets engine KV version 2."""

    kind: Literal["vault"]
    address: OneOrMore = Field(description="Base URL, or a list of them tried in order.", min_length=1)
    mount: str = Field("secret", description="Mount of the KV engine.")
    kv: Literal[2] = Field(2, description="Version of the KV engine.")
    path: str = Field("tenants/{tenant}/{credential}", description="Where a tenant's record stands below the mount.")
    ttl: float = Field(60, gt=0, le=86400, description="Seconds for which a record read is used without asking again.")
    stale: float = Field(600, ge=0, le=86400, description="Seconds for which it is still used while Vault is down.")
    namespace: str | None = Field(None, description="Namespace of Vault Enterprise.", min_length=1)
    ca_file: FilePath | None = Field(None, description="Roots for Vault's certificate, instead of the system's; PEM.")
    timeouts: VaultTimeouts = Field(as_written({}), description="Of each request.")
    auth: VaultAuth = Field(description="How to log in.")

    @field_validator("address")
    @classmethod
    def _base_urls(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for address in value:
            if not _plain_base_url(address):
                raise ValueError("must be http(s)://HOST[:PORT] without user, query or fragment")
        return tuple(address.rstrip("/") for address in value)

    @field_validator("path")
    @classmethod
    def _names_tenant_and_credential(cls, value: str) -> str:
        segments = value.split("/")
        if "{tenant}" not in segments or "{credential}" not in segments:
            raise ValueError("must have {tenant} and {credential} as whole segments, or tenants would share records")
        return value


def _plain_base_url(address: str) -> bool:
    try:
        parts = urlsplit(address)
        ok = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return ok and not (parts.query or parts.fragment or parts.username or parts.password)


Store = Annotated[FileStore | VaultStore, Field(discriminator="kind")]
