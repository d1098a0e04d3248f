"""The keys that check an issuer's tokens, as they rotate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from proxy.identity.identifier import misconfigured
from proxy.identity.jwk import SYMMETRIC, Key, parse_key_set
from proxy.identity.source import Reloading, Source
from signers.secret import Secret

# Anybody can send a token that names an unknown key; the issuer must not be asked each time.
URL_SECONDS: Final = 30.0
FILE_SECONDS: Final = 1.0


class Keys(Protocol):
    """Where a verifier looks keys up."""

    @property
    def current(self) -> Sequence[Key]:
        """The keys known now."""

    @property
    def loaded(self) -> bool:
        """False until the keys were read for the first time."""

    async def look_again(self, now: float) -> None:
        """Called for a token whose key is unknown; may find a new set."""

    def subscribe(self, changed: Callable[[], None]) -> None:
        """`changed` is called when the keys have changed."""


class KeySet(Reloading[tuple[Key, ...]]):
    """A JWK set from a file or URL. The application runs `start` once and `keep_fresh` beside the proxy."""

    def __init__(self, source: Source) -> None:
        super().__init__(source, parse_key_set, ())
        self._interval = FILE_SECONDS if source.local else URL_SECONDS
        self._asked: float | None = None

    @property
    def current(self) -> Sequence[Key]:
        return self.value

    async def look_again(self, now: float) -> None:
        """Reads the source again, at most once in 30 s for a URL (1 s for a file); joins a read under way."""
        if self._running is None:
            if self._asked is not None and 0 <= now - self._asked < self._interval:
                return
            self._asked = now
        await self.refresh()


class SharedSecret:
    """One symmetric key, configured on purpose: for a proxy that mints its own tokens. Never read from a JWK set."""

    loaded = True

    def __init__(self, secret: Secret, algorithm: str = "HS256") -> None:
        """Raises ConfigurationError for another algorithm or a secret shorter than its hash (RFC 7518 section 3.2)."""
        raw = secret.reveal().encode()
        if algorithm not in SYMMETRIC:
            raise misconfigured("a symmetric key goes with HS256, HS384 or HS512 only")
        if len(raw) * 8 < int(algorithm[2:]):
            raise misconfigured(f"a symmetric key for {algorithm} needs at least {int(algorithm[2:]) // 8} bytes")
        self.current: Sequence[Key] = (Key(None, frozenset({algorithm}), raw),)

    async def look_again(self, now: float) -> None:
        """Nothing to look at: the key never changes."""

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Never calls: the key never changes."""
