"""Vault tokens of the callers: each caller's own token logs in, so that Vault's policies decide what that caller reads.

The tokens are kept by the digest of what they were bought with, the least recently used one goes first, and none is
renewed: a caller that comes back logs in again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from proxy.credentials.stores.vault_login import Grant, granted
from proxy.credentials.stores.vault_token import VaultToken
from proxy.errors import StoreError
from proxy.model import Caller
from signers.secret import Secret

if TYPE_CHECKING:
    from proxy.credentials.stores.vault_transport import VaultTransport

MOST_CALLERS: Final = 10_000


@dataclass(frozen=True, slots=True)
class CallerLogin:
    """The role of Vault's `jwt` method that callers log in to with the token they showed us."""

    role: str
    mount: str = "jwt"

    def __call__(self, transport: VaultTransport, subject: Secret) -> Grant:
        from hvac.api.auth_methods import JWT

        from proxy.credentials.stores.vault_transport import VaultAdapter

        login = JWT(VaultAdapter(transport, None)).jwt_login
        return granted(login(self.role, subject.reveal(), use_token=False, path=self.mount))


class CallerTokens:
    """One VaultToken for each caller, at most `most` of them. Threads share it; logins of different callers overlap."""

    def __init__(
        self,
        login: CallerLogin,
        transport: Callable[[], VaultTransport],
        clock: Callable[[], float],
        random: Callable[[], float],
        most: int = MOST_CALLERS,
    ) -> None:
        self._login = login
        self._transport = transport
        self._clock = clock
        self._random = random
        self._most = most
        self._lock = threading.Lock()
        self._tokens: OrderedDict[str, VaultToken] = OrderedDict()

    def of(self, caller: Caller) -> VaultToken:
        """The caller's token, not logged in yet when the caller is new. Raises StoreError when it showed us none."""
        subject = caller.subject_token
        if subject is None or not caller.token_id:
            raise StoreError(
                "this caller showed no token that could log in to Vault; its identity must be one of tokens"
            )
        with self._lock:
            kept = self._tokens.get(caller.token_id)
            if kept is None:
                kept = self._tokens[caller.token_id] = self._new(subject)
                if len(self._tokens) > self._most:
                    self._tokens.popitem(last=False)
            self._tokens.move_to_end(caller.token_id)
            return kept

    def __len__(self) -> int:
        return len(self._tokens)

    def _new(self, subject: Secret) -> VaultToken:
        return VaultToken(lambda: self._login(self._transport(), subject), _never_renewed, self._clock, self._random)


def _never_renewed(token: Secret) -> Grant:
    raise StoreError("a caller's token is replaced, not renewed")
