"""`ledger:` what was sent under which Idempotency-Key, where the provider does not keep that itself."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Final, Literal
from urllib.parse import parse_qs, urlsplit

from pydantic import Field, field_validator

from proxy.settings.base import FilePath, Section

_ENCRYPTED: Final = frozenset({"require", "verify-ca", "verify-full"})


class SqliteLedger(Section):
    """A file in `state.dir`, for one process."""

    kind: Literal["sqlite"] = Field("sqlite", description="`sqlite`: a file in `state.dir`, for one process.")


class PostgresLedger(Section):
    """A database shared by pods that move; its tables are made and kept up to date by whichever starts first."""

    kind: Literal["postgres"]
    url: str = Field(
        description="postgresql://USER@HOST:PORT/DATABASE, or postgresql://USER@/DATABASE?host=/SOCKET/FOLDER; sslmode "
        "is verify-full for another machine unless the URL says require or verify-ca."
    )
    password_file: FilePath | None = Field(None, description="The password, 0600, read for each connection.")

    @field_validator("url")
    @classmethod
    def _complete(cls, value: str) -> str:
        parts, query = urlsplit(value), parse_qs(urlsplit(value).query)
        if parts.scheme not in ("postgresql", "postgres") or not parts.username or not parts.path.strip("/"):
            raise ValueError("must be postgresql://USER@HOST:PORT/DATABASE")
        if parts.password is not None or "password" in query:
            raise ValueError("must not hold the password: name a password_file")
        host = parts.hostname or query.get("host", [""])[0]
        if not host:
            raise ValueError("must name a host, or a socket's folder with ?host=/FOLDER")
        if _is_here(host):
            return value
        if "sslmode" not in query:
            return f"{value}{'&' if parts.query else '?'}sslmode=verify-full"
        if query["sslmode"][-1] not in _ENCRYPTED:
            raise ValueError("must use sslmode require, verify-ca or verify-full with another machine")
        return value

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port; None for a socket in the file system."""
        parts = urlsplit(self.url)
        return (parts.hostname, parts.port or 5432) if parts.hostname else None


def _is_here(host: str) -> bool:
    try:
        return host.startswith("/") or host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


Ledger = Annotated[SqliteLedger | PostgresLedger, Field(discriminator="kind")]
