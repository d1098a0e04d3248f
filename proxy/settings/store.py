"""`store:` where the tenants' credentials are kept."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from proxy.credentials.paths import PathTemplates, actor_template, check_path
from proxy.settings.base import FilePath, OneOrMore, Section, as_written


class FileStore(Section):
    """The embedded store: one encrypted file."""

    kind: Literal["file"] = "file"
    path: FilePath = Field(as_written("./secrets.enc"), description="The encrypted records.")
    key_file: FilePath = Field(
        as_written("./secrets.key"), description="The key, 0600; the first `secrets set` makes it."
    )


class DirectoryStore(Section):
    """Records that something else puts into a folder: a mounted Secret, a CSI volume, a Vault Agent's templates."""

    kind: Literal["directory"]
    path: FilePath = Field(description="The folder; a record is the file or volume at its path below it.")


class TokenAuth(Section):
    """A Vault token kept in a file, read again when it changes."""

    kind: Literal["token"]
    token_file: FilePath = Field(description="File with the token.")


class AppRoleAuth(Section):
    """Vault's AppRole login."""

    kind: Literal["approle"]
    role_id: str = Field(description="The role id (not secret).", min_length=1)
    secret_id_file: FilePath | None = Field(None, description="File with the secret id; null if the role needs none.")
    wrapped_by: str | None = Field(
        None, description="The role's name, if the file holds a wrapping token made by it.", min_length=1
    )
    mount: str = Field("approle", description="Mount of the login method.")

    @model_validator(mode="after")
    def _wrapped_in_a_file(self) -> AppRoleAuth:
        if self.wrapped_by is not None and self.secret_id_file is None:
            raise ValueError("wrapped_by needs secret_id_file, which holds the wrapping token")
        return self


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


OwnAuth = Annotated[TokenAuth | AppRoleAuth | JwtAuth | KubernetesAuth, Field(discriminator="kind")]


class CallerJwtAuth(Section):
    """Each caller's own session or service-account token logs in, so that Vault decides what that caller may read."""

    kind: Literal["caller_jwt"]
    role: str = Field(description="Role of the callers.", min_length=1)
    mount: str = Field("jwt", description="Mount of the login method.")
    own: OwnAuth | None = Field(
        None, description="The proxy's own login, for what no caller asks for: blocks, stored refreshes, `secrets`."
    )


VaultAuth = Annotated[TokenAuth | AppRoleAuth | JwtAuth | KubernetesAuth | CallerJwtAuth, Field(discriminator="kind")]


class ClientCertificate(Section):
    """What is shown to a Vault that asks for a certificate."""

    cert: FilePath = Field(description="PEM, with its chain.")
    key: FilePath = Field(description="PEM, not encrypted, 0600.")


class VaultTimeouts(Section):
    """Seconds for each request to Vault."""

    connect: float = Field(2, gt=0, le=60, description="TCP and TLS handshake.")
    read: float = Field(5, gt=0, le=60, description="Longest gap in an answer.")


class VaultStore(Section):
    """HashiCorp Vault or OpenBao, key-value engine."""

    kind: Literal["vault"]
    address: OneOrMore = Field(description="Base URL, or a list of them tried in order.", min_length=1)
    mount: str = Field("secret", description="Mount of the KV engine; may hold {tenant} or {agent} as a segment.")
    kv: Literal[1, 2] = Field(2, description="Version of the KV engine; version 1 cannot compare and set.")
    path: str = Field("tenants/{tenant}/{credential}", description="Where a tenant's record stands below the mount.")
    actor_path: str | None = Field(
        None, description="The same for `per: actor`; null: `actors/{actor}` follows the tenant in `path`."
    )
    app_path: str = Field(
        "apps/{app}", description="Where an application's record stands; with a mount template it begins with a mount."
    )
    ttl: float = Field(60, gt=0, le=86400, description="Seconds for which a record read is used without asking again.")
    stale: float = Field(600, ge=0, le=86400, description="Seconds for which it is still used while Vault is down.")
    namespace: str | None = Field(None, description="Namespace of Vault Enterprise or OpenBao.", min_length=1)
    ca_file: FilePath | None = Field(None, description="Roots for Vault's certificate, instead of the system's; PEM.")
    client_certificate: ClientCertificate | None = Field(None, description="For a Vault that asks for one.")
    timeouts: VaultTimeouts = Field(as_written({}), description="Of each request.")
    login_spread: float = Field(
        1,
        ge=0,
        le=60,
        description="Logins wait up to so many seconds by chance, so that a fleet does not come at once.",
    )
    auth: VaultAuth = Field(description="How to log in.")

    @field_validator("address")
    @classmethod
    def _base_urls(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for address in value:
            if not _plain_base_url(address):
                raise ValueError("must be http(s)://HOST[:PORT] without user, query or fragment")
        return tuple(address.rstrip("/") for address in value)

    @field_validator("mount")
    @classmethod
    def _mount_path(cls, value: str) -> str:
        stripped = value.strip("/")
        for segment in stripped.split("/"):
            if segment not in ("{tenant}", "{agent}"):
                check_path(segment)
        return stripped

    @model_validator(mode="after")
    def _one_record_for_each_path(self) -> VaultStore:
        self.templates()
        return self

    def templates(self) -> PathTemplates:
        """Where records stand. Raises ValueError when two of them could be one."""
        actor = self.actor_path if self.actor_path is not None else actor_template(self.path)
        return PathTemplates(self.path, actor, self.app_path, self.mount if self.mount_segments else "")

    @property
    def mount_segments(self) -> int:
        """How many segments of a record's path are the engine's; 0 when the engine is one for all."""
        return len(self.mount.split("/")) if "{" in self.mount else 0


def _plain_base_url(address: str) -> bool:
    try:
        parts = urlsplit(address)
        ok = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return ok and not (parts.query or parts.fragment or parts.username or parts.password)


Store = Annotated[FileStore | VaultStore | DirectoryStore, Field(discriminator="kind")]
