"""`tls` of a rule: what the host of its calls has to show, beyond what the system's roots vouch for."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from policies.base import Strict
from policies.matchers import host_pattern

MAX_AUTHORITIES: Final = 1 << 20
"""Bytes of a file of authorities."""
_PEM: Final = "-----BEGIN CERTIFICATE-----"
_PIN: Final = re.compile(r"(?:sha256/{1,2})?([A-Za-z0-9+/]{43}=)")


def _pin(text: str) -> str:
    found = _PIN.fullmatch(text)
    if found is None:
        raise ValueError("write sha256/ and the base64 of the SHA-256 of the key's SubjectPublicKeyInfo")
    return found[1]


def _server_name(text: str) -> str:
    name = host_pattern(text)
    if name.kind != "exact":
        raise ValueError("write one exact host name")
    return name.text


class TlsDocument(Strict):
    """Every key may be left out; what is given narrows what is accepted."""

    ca: Annotated[str, Field(min_length=1)] | None = None
    """The only authorities that may have signed: PEM text, or a file relative to the policy's."""
    server_name: Annotated[str, AfterValidator(_server_name)] | None = None
    """The name asked for and verified in the host's place."""
    pins: Annotated[tuple[Annotated[str, AfterValidator(_pin)], ...], Field(min_length=1)] | None = None
    min_version: Literal["1.2", "1.3"] = "1.2"


@dataclass(frozen=True, slots=True)
class TlsTerms:
    """The same, read: `ca` is PEM text ("" for the usual roots), `pins` are base64 SHA-256 of the host's key."""

    ca: str = ""
    server_name: str = ""
    pins: frozenset[str] = frozenset()
    min_version: str = "1.2"


def tls_terms(document: TlsDocument | None, authorities: str) -> TlsTerms | None:
    """A rule's terms; `authorities` is the PEM text that its `ca` stands for."""
    if document is None:
        return None
    return TlsTerms(authorities, document.server_name or "", frozenset(document.pins or ()), document.min_version)


def read_authorities(text: str, folder: Path) -> str:
    """The PEM text that a `ca` stands for. Raises ValueError saying what is wrong with it."""
    pem = text if _PEM in text else _file(folder / text)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem)
    except (ssl.SSLError, ValueError):
        raise ValueError("it holds no certificates in PEM form") from None
    return pem


def _file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_AUTHORITIES + 1)
        if len(raw) > MAX_AUTHORITIES:
            raise ValueError("the file is larger than 1 MiB")
        return raw.decode("ascii")
    except OSError as error:
        raise ValueError(f"the file cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError("it holds no certificates in PEM form") from None


def authorities_of(rules: Mapping[int, TlsDocument | None], folder: Path) -> Iterator[tuple[int, str, str]]:
    """(index of the rule, its PEM text, fault) for each rule with a `ca`; one of the last two is empty."""
    for index, document in rules.items():
        if document is not None and document.ca is not None:
            try:
                yield index, read_authorities(document.ca, folder), ""
            except ValueError as error:
                yield index, "", f"ca: {error}"
