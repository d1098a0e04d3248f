"""Ways to log in to Vault. Each is a few settings and one request; files are read again at every login."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from proxy.credentials.stores.private_file import NOT_WORLD, read_private
from proxy.credentials.stores.vault_errors import VaultUnreachable
from proxy.credentials.stores.vault_wrapping import unwrap
from proxy.errors import StoreError
from signers.secret import Secret

if TYPE_CHECKING:
    from proxy.credentials.stores.vault_transport import VaultTransport

MAX_FILE = 64 * 1024


class Grant(NamedTuple):
    """A token, its remaining life in seconds (0: it never ends), and whether it can be renewed."""

    token: Secret
    ttl: float
    renewable: bool


class Login(Protocol):
    """One way to get a token. Called in a thread; raises StoreError."""

    def __call__(self, transport: VaultTransport) -> Grant: ...


@dataclass(frozen=True, slots=True)
class TokenLogin:
    """A token that something else keeps in a file, such as the sink of a Vault Agent."""

    token_file: Path

    def __call__(self, transport: VaultTransport) -> Grant:
        from hvac.api.auth_methods import Token

        from proxy.credentials.stores.vault_transport import VaultAdapter

        token = read_token(self.token_file)
        answer = Token(VaultAdapter(transport, token)).lookup_self()
        found = _mapping(answer, "data")
        return Grant(token, _seconds(found.get("ttl")), found.get("renewable") is True)


@dataclass(frozen=True, slots=True)
class AppRoleLogin:
    """AppRole: a role id, and a secret id from a file unless the role is bound in another way.

    wrapped_by   the role's name, when the file holds a wrapping token instead of the secret id. It is exchanged once
                 and the secret id then kept in memory, until the file holds another token.
    """

    role_id: str
    secret_id_file: Path | None = None
    mount: str = "approle"
    wrapped_by: str | None = None
    _unwrapped: dict[str, Secret] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __call__(self, transport: VaultTransport) -> Grant:
        from hvac.api.auth_methods import AppRole

        from proxy.credentials.stores.vault_transport import VaultAdapter

        secret_id = self._secret_id(transport)
        login = AppRole(VaultAdapter(transport, None)).login
        return granted(
            login(
                self.role_id,
                secret_id=secret_id.reveal() if secret_id else None,
                use_token=False,
                mount_point=self.mount,
            )
        )

    def _secret_id(self, transport: VaultTransport) -> Secret | None:
        if self.secret_id_file is None:
            return None
        content = read_token(self.secret_id_file)
        if self.wrapped_by is None:
            return content
        mark = hashlib.sha256(content.reveal().encode()).hexdigest()
        if mark not in self._unwrapped:
            found = unwrap(transport, content, f"auth/{self.mount}/role/{self.wrapped_by}/secret-id").get("secret_id")
            if not isinstance(found, str):
                raise VaultUnreachable("what the wrapping token stood for is no secret id")
            self._unwrapped.clear()
            self._unwrapped[mark] = Secret(found)
        return self._unwrapped[mark]


@dataclass(frozen=True, slots=True)
class JwtLogin:
    """A JWT from a file, for the `jwt` and the `kubernetes` method alike: their login requests are the same.

    Kubernetes rotates projected tokens in place and mounts them readable to the pod's user, so others are not checked.
    """

    role: str
    token_file: Path
    mount: str = "jwt"

    def __call__(self, transport: VaultTransport) -> Grant:
        from hvac.api.auth_methods import JWT

        from proxy.credentials.stores.vault_transport import VaultAdapter

        jwt = read_token(self.token_file, refused=0).reveal()
        login = JWT(VaultAdapter(transport, None)).jwt_login
        return granted(login(self.role, jwt, use_token=False, path=self.mount))


def renew(transport: VaultTransport, token: Secret) -> Grant:
    """Renew `token` for its own period. Raises StoreError."""
    from hvac.api.auth_methods import Token

    from proxy.credentials.stores.vault_transport import VaultAdapter

    return granted(Token(VaultAdapter(transport, token)).renew_self())


def granted(answer: object) -> Grant:
    """The `auth` part of a login's or renewal's answer. Raises StoreError when it has none."""
    auth = _mapping(answer, "auth")
    token = auth.get("client_token")
    if not isinstance(token, str) or not token:
        raise VaultUnreachable("the login's answer holds no token")
    return Grant(Secret(token), _seconds(auth.get("lease_duration")), auth.get("renewable") is True)


def read_token(path: Path, refused: int = NOT_WORLD) -> Secret:
    """A token from a file, white space around it dropped. Raises StoreError naming the file."""
    try:
        content, _ = read_private(path, refused, MAX_FILE)
        token = content.decode("ascii").strip()
    except FileNotFoundError:
        raise StoreError(f"{path}: no such file") from None
    except UnicodeDecodeError:
        raise StoreError(f"{path}: holds something else than a token") from None
    if not token or not token.isprintable() or " " in token:
        raise StoreError(f"{path}: holds no token, or more than one")
    return Secret(token)


def _mapping(answer: object, part: str) -> Mapping[str, Any]:
    found = answer.get(part) if isinstance(answer, Mapping) else None
    if not isinstance(found, Mapping):
        raise VaultUnreachable(f"the login's answer has no {part!r} part")
    return found


def _seconds(raw: object) -> float:
    return float(raw) if isinstance(raw, int | float) and not isinstance(raw, bool) and raw > 0 else 0.0
