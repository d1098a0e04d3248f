"""One stored mapping into a typed record, without I/O. Faults name the record and the field, never the value.

Kinds: bearer (token), api_key (value), basic (username, password), headers (headers: {Name: value}), those that sign
requests (signers/table.py, with their fields; aws may name roles to assume instead), mtls (whose fields may also stand
under `mtls` in a record of another kind: proxy.credentials.tls_record), and the grants of
`proxy.credentials.grant_record`. Beside those every record may hold `kind`, `hosts`, `vars`, `fields`, `disabled` and
`expires_at`; what else it holds is kept in the store and ignored here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

import idna

from proxy.credentials.faults import RecordError
from proxy.credentials.grant_kinds import GRANT_KINDS, holds_grant
from proxy.credentials.tls_record import MTLS, Kept, TlsSource, parse_tls
from signers.secret import Secret
from signers.table import SIGNERS

if TYPE_CHECKING:
    from proxy.credentials.grant_record import GrantRecord

Value = Secret | Mapping[str, Secret]

FIELDS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "bearer": ("token",),
    "api_key": ("value",),
    "basic": ("username", "password"),
    "headers": ("headers",),
    **{kind: row.fields for kind, row in SIGNERS.items() if row.fields},
}
OPTIONAL_FIELDS_OF: Final[Mapping[str, tuple[str, ...]]] = {kind: row.optional for kind, row in SIGNERS.items()}
KINDS: Final = (*FIELDS_OF, MTLS, *GRANT_KINDS)
MAX_VALUE: Final = 16 * 1024
"""Characters of one value: more than any provider issues, less than a request head may hold."""
LATEST_EXPIRY: Final = 253_402_300_800.0
"""Start of the year 10000: a later `expires_at` is a mistake, and is read as "not known"."""

# RFC 9110 section 5.6.2.
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
# RFC 1123 section 2.1; lower case only, since hosts are compared in lower case.
_LABEL: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
# Headers that decide framing, routing or the connection: no credential stands in them.
_FORBIDDEN_HEADERS: Final = frozenset(
    [
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ]
)


@dataclass(frozen=True, slots=True)
class Record:
    """One credential as its owner stored it.

    kind      one of KINDS
    fields    the kind's fields, each a Secret (`headers`: a mapping of them); none for a grant
    hosts     lower-case IDNA hosts it may go to; empty: those of its provider
    vars      placeholders of the provider's host template, each one DNS label
    disabled  switched off by its owner
    expires   epoch seconds; None when not known
    grant     where tokens are issued by the provider, what is needed for that
    tls       the client certificate that goes with it, or where that comes from
    """

    kind: str
    fields: Mapping[str, Value]
    hosts: frozenset[str] = frozenset()
    vars: Mapping[str, str] = field(default_factory=dict)
    disabled: bool = False
    expires: float | None = None
    grant: GrantRecord | None = None
    tls: TlsSource | None = None


def parse_record(name: str, stored: Mapping[str, Any]) -> Record:
    """The record `name` (its path, for faults) from its stored fields. Raises RecordError."""
    if is_tombstone(stored):
        return Record(str(stored.get("kind", "")), {}, disabled=True)
    mapped = map_fields(name, stored)
    kind = _kind(name, mapped)
    granted = holds_grant(kind, mapped)
    tls = parse_tls(name, kind, mapped)
    return Record(
        kind=kind,
        fields={wanted: _value(name, kind, wanted, mapped) for wanted in _fields(kind, mapped, granted)},
        hosts=_hosts(name, stored.get("hosts")),
        vars=_vars(name, stored.get("vars")),
        disabled=_disabled(name, stored.get("disabled")),
        expires=_soonest(expiry(stored), tls),
        grant=_grant(name, kind, mapped) if granted else None,
        tls=tls,
    )


def _grant(name: str, kind: str, mapped: Mapping[str, Any]) -> GrantRecord:
    from proxy.credentials.grant_record import parse_grant

    return parse_grant(name, kind, mapped)


def is_tombstone(stored: Mapping[str, Any]) -> bool:
    """Whether this is what `sluicegate disconnect` leaves: switched off for good, its secrets gone."""
    return "disconnected_at" in stored and stored.get("disabled") is True


def expiry(stored: Mapping[str, Any]) -> float | None:
    """`expires_at` in epoch seconds, from a number or a string of one; None when absent or not to be believed."""
    raw = stored.get("expires_at")
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        return None
    try:
        seconds = float(raw)
    except (ValueError, OverflowError):
        return None
    return seconds if isfinite(seconds) and 0 < seconds < LATEST_EXPIRY else None


def _soonest(stated: float | None, tls: TlsSource | None) -> float | None:
    """A certificate in the record ends by itself, whatever the record says."""
    ends = tls.certificate.expires if isinstance(tls, Kept) else None
    return min((end for end in (stated, ends) if end is not None), default=None)


def canonical_host(text: str) -> str:
    """A host as Destination.host spells it: lower-case IDNA, no trailing dot. Raises ValueError if it is none."""
    host = text.removesuffix(".").lower()
    if not host.isascii():
        host = idna.encode(host, uts46=True).decode("ascii")
    labels = host.split(".")
    if ":" in host:
        return _canonical_address(host)
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError("not a host name")
    return host


def _canonical_address(host: str) -> str:
    from ipaddress import IPv6Address

    return str(IPv6Address(host.removeprefix("[").removesuffix("]")))


def map_fields(name: str, stored: Mapping[str, Any]) -> Mapping[str, Any]:
    """The record with our names for the fields that its own `fields` maps. Raises RecordError."""
    layout = stored.get("fields")
    if layout is None:
        return stored
    if not isinstance(layout, Mapping):
        raise RecordError(name, "fields", "must map a field of ours to a path, such as {token: data.apiKey}")
    return {**stored, **{str(ours): _look_up(name, str(ours), stored, path) for ours, path in layout.items()}}


def _look_up(name: str, ours: str, stored: Mapping[str, Any], path: object) -> object:
    """The value at a dotted path. A key that holds dots itself wins: layouts that exist have such names too."""
    if not isinstance(path, str):
        raise RecordError(name, f"fields.{ours}", "must be a path such as data.apiKey")
    if path in stored:
        return stored[path]
    value: object = stored
    for step in path.split("."):
        if not isinstance(value, Mapping) or step not in value:
            raise RecordError(name, f"fields.{ours}", f"names {path!r}, and the record has nothing there")
        value = value[step]
    return value


def _kind(name: str, mapped: Mapping[str, Any]) -> str:
    explicit = mapped.get("kind")
    if explicit is not None:
        if not isinstance(explicit, str) or explicit not in KINDS:
            raise RecordError(name, "kind", f"must be one of {', '.join(KINDS)}")
        return explicit
    possible = [kind for kind, wanted in FIELDS_OF.items() if all(field in mapped for field in wanted)]
    if not possible and ("role_arn" in mapped or "roles" in mapped):
        return "aws"
    if len(possible) != 1:
        fault = f"could be {' or '.join(possible)}" if possible else "has the fields of no kind we know"
        raise RecordError(name, "", f"{fault}; add kind: one of {', '.join(KINDS)}, with its fields")
    return possible[0]


def _fields(kind: str, mapped: Mapping[str, Any], granted: bool) -> list[str]:
    """The fields of a kind: those it needs, unless a grant brings them, and those it may have and the record gives."""
    given = [field for field in OPTIONAL_FIELDS_OF.get(kind, ()) if mapped.get(field) not in (None, "")]
    return given if granted else [*FIELDS_OF.get(kind, ()), *given]


def _value(name: str, kind: str, field: str, mapped: Mapping[str, Any]) -> Value:
    if field not in mapped:
        raise RecordError(name, field, f"is missing; kind {kind} needs it")
    raw = mapped[field]
    if kind == "headers":
        return _header_values(name, raw)
    if kind == "basic":
        return _basic_value(name, field, raw)
    return Secret(_line_value(name, field, raw))


def _header_values(name: str, raw: object) -> Mapping[str, Secret]:
    if not isinstance(raw, Mapping) or not raw:
        raise RecordError(name, "headers", "must map header names to values, at least one")
    for header in raw:
        if not isinstance(header, str) or not _TOKEN.fullmatch(header) or header.lower() in _FORBIDDEN_HEADERS:
            raise RecordError(name, "headers", "holds a name that cannot carry a credential")
    if len({header.lower() for header in raw}) != len(raw):
        raise RecordError(name, "headers", "holds the same header twice")
    return {header: Secret(_line_value(name, f"headers.{header}", value)) for header, value in raw.items()}


def _basic_value(name: str, field: str, raw: object) -> Secret:
    text = _text(name, field, raw, may_be_empty=field == "password")
    if field == "username" and ":" in text:
        raise RecordError(name, field, "holds a colon, which ends a user name in Basic (RFC 7617 section 2)")
    return Secret(text)


def _line_value(name: str, field: str, raw: object) -> str:
    """A value that travels in a header line as it is: visible ASCII, spaces only inside (RFC 9110 section 5.5)."""
    text = _text(name, field, raw)
    if not text.isascii():
        raise RecordError(name, field, "holds a character that is not ASCII")
    if text != text.strip():
        raise RecordError(name, field, "begins or ends with a space")
    return text


def _text(name: str, field: str, raw: object, *, may_be_empty: bool = False) -> str:
    """A string within bounds, one trailing line ending dropped: editors and `echo` add it, and nobody means it."""
    if not isinstance(raw, str):
        raise RecordError(name, field, "must be a string")
    text = raw.removesuffix("\n").removesuffix("\r") if raw.endswith("\n") else raw
    if not text and not may_be_empty:
        raise RecordError(name, field, "is empty")
    if len(text) > MAX_VALUE:
        raise RecordError(name, field, f"is longer than {MAX_VALUE} characters")
    if _CONTROL.search(text):
        raise RecordError(name, field, "holds a control character")
    try:
        text.encode("latin-1")
    except UnicodeEncodeError:
        raise RecordError(name, field, "holds a character outside latin-1") from None
    return text


def _hosts(name: str, raw: object) -> frozenset[str]:
    if raw is None:
        return frozenset()
    # A KV editor that only knows strings writes them in one line.
    items = [item.strip() for item in raw.split(",")] if isinstance(raw, str) else raw
    if not isinstance(items, list) or not items or not all(isinstance(item, str) for item in items):
        raise RecordError(name, "hosts", "must be a list of exact host names")
    try:
        return frozenset(map(canonical_host, items))
    except ValueError:
        fault = "must hold exact host names only: no scheme, port, path or wildcard"
        raise RecordError(name, "hosts", fault) from None


def _vars(name: str, raw: object) -> Mapping[str, str]:
    if raw is None:
        return {}
    if not isinstance(raw, Mapping):
        raise RecordError(name, "vars", "must map names to DNS labels")
    labels = {str(key): value.lower() if isinstance(value, str) else "" for key, value in raw.items()}
    for key, label in labels.items():
        if not _LABEL.fullmatch(label):
            raise RecordError(name, f"vars.{key}", "must be one DNS label: letters, digits, inner hyphens")
    return labels


def _disabled(name: str, raw: object) -> bool:
    """Anything but a clear yes or no is a fault: a switch that is misread must not leave the credential on."""
    if raw in (None, False, "false", ""):
        return False
    if raw in (True, "true"):
        return True
    raise RecordError(name, "disabled", "must be true or false")
