"""One EgressPolicy document: its keys, their types and what each may hold.

The models check each key alone; `policies.checks` checks keys against each other and against the catalogue.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag

from policies.base import Strict
from policies.matchers import host_pattern, network, path_pattern
from policies.names import Header, Parameter
from policies.placeholders import MAX_POSITIONS, PlaceholderPosition
from policies.terms import HeaderGlob, LimitDocument
from policies.tls_terms import TlsDocument

DEFAULT_TUNNEL_BYTES: Final = 1 << 30
"""How many bytes an uninspected tunnel may carry, both ways together, where its rule gives no `max_bytes`."""

FEATURES: Final = (
    "access", "agent-credentials", "compressed", "content-types", "errors", "headers", "labels", "limits", "mask",
    "max-body", "max-response", "namespace", "networks", "operations", "path-templates", "paths", "per-actor",
    "placeholders", "plaintext", "presigned", "query", "set-cookie", "tls", "token-endpoint", "tunnel", "warn", "when",
)  # fmt: skip
"""What a document may list under `requires`: a proxy that does not know one of them refuses the document."""

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
_SUBJECT: Final = re.compile(r"[^\s*\x00-\x1f\x7f]{0,255}\*?")
_METHOD: Final = re.compile(r"[A-Z][A-Z0-9-]{0,31}")
_AWS_NAME: Final = re.compile(r"[A-Za-z0-9-]{1,63}")
_LABEL: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,251}[A-Za-z0-9])?")
_MEDIA_TYPE: Final = re.compile(r"[a-z0-9!#$&^_.+*-]{1,64}/[a-z0-9!#$&^_.+*-]{1,64}")
_TUNNEL: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^:\s]+)(?::(?P<port>[0-9]{1,5}))?")


def _name(text: str) -> str:
    if not _NAME.fullmatch(text) or text in {".", ".."}:
        raise ValueError("a name has 1 to 128 letters, digits, dots, underscores or hyphens")
    return text


def _subject(text: str) -> str:
    if not text or not _SUBJECT.fullmatch(text):
        raise ValueError('write a name, "*", or the beginning of names followed by one "*", such as "team-*"')
    return text


def _feature(text: str) -> str:
    if text not in FEATURES:
        raise ValueError(f'this version does not know the feature "{text}"; it knows {", ".join(FEATURES)}')
    return text


def _host(text: str) -> str:
    return host_pattern(text).text


def _path(text: str) -> str:
    path_pattern(text)
    return text


def _glob(text: str) -> str:
    if not text or not text.isprintable() or " " in text or "**" in text:
        raise ValueError('write an operation\'s name, in which "*" may stand for any run of characters')
    return text


def _method(text: str) -> str:
    if text == "*":
        return text
    if not _METHOD.fullmatch(text):
        raise ValueError(f'"{text}" is not a method: methods are written in capitals, "*" is any')
    if text in {"CONNECT", "TRACE"}:
        raise ValueError(f"{text} cannot be named here: a tunnel has its own key, TRACE is always refused")
    return text


def _network(text: str) -> str:
    try:
        return str(network(text))
    except ValueError as error:
        raise ValueError(f"{error}; write an address block such as 10.2.0.0/16") from None


def split_tunnel(text: str) -> tuple[str, int | None]:
    """HOST[:PORT] of a `tunnel:`, the host canonical, the port None where none is written. Raises ValueError."""
    match = _TUNNEL.fullmatch(text)
    if match is None:
        raise ValueError(f'"{text}" is not HOST or HOST:PORT')
    port = int(match["port"]) if match["port"] else None
    if port is not None and not 0 < port < 65536:
        raise ValueError(f'"{text}": a port is a number from 1 to 65535')
    return host_pattern(match["host"]).text, port


def _tunnel(text: str) -> str:
    split_tunnel(text)
    return text


def _format(text: str) -> str:
    if text.count("{value}") != 1 or not text.isprintable():
        raise ValueError('a format holds "{value}" once, and no control character')
    return text


def _label(text: str) -> str:
    if not _LABEL.fullmatch(text):
        raise ValueError("a label's name has letters, digits, dots, underscores, hyphens or a slash inside")
    return text


def _media_type(text: str) -> str:
    if not _MEDIA_TYPE.fullmatch(text):
        raise ValueError(
            f'"{text}" is not a media type: write application/json in lower case, "*" is any run, no parameters'
        )
    return text


def _value_glob(text: str) -> str:
    if not text.isprintable():
        raise ValueError('write a decoded value, in which "*" may stand for any run of characters')
    return text


def _aws_name(text: str) -> str:
    if not _AWS_NAME.fullmatch(text):
        raise ValueError("that is not the name of an AWS region or service")
    return text


Name = Annotated[str, AfterValidator(_name)]
SubjectPattern = Annotated[str, AfterValidator(_subject)]
Host = Annotated[str, AfterValidator(_host)]
Path = Annotated[str, AfterValidator(_path)]
OperationGlob = Annotated[str, AfterValidator(_glob)]
Method = Annotated[str, AfterValidator(_method)]
Network = Annotated[str, AfterValidator(_network)]
QueryName = Annotated[str, Field(min_length=1, max_length=128)]
ValueGlobs = Annotated[tuple[Annotated[str, AfterValidator(_value_glob)], ...], Field(min_length=1)]
MediaType = Annotated[str, AfterValidator(_media_type)]
Port = Annotated[int, Field(ge=1, le=65535)]


class Metadata(Strict):
    name: Name
    description: str = ""


class Subject(Strict):
    """Who is meant: every key given must match. A key left out matches anyone."""

    agent: SubjectPattern | None = None
    tenant: SubjectPattern | None = None
    actor: SubjectPattern | None = None
    namespace: SubjectPattern | None = None
    labels: Annotated[dict[Annotated[str, AfterValidator(_label)], SubjectPattern], Field(min_length=1)] | None = None
    """Every label given must be there and match; "*" is any value."""


class Impersonate(Strict):
    """For whom a service account acts: the call's actor, as an account of one domain (Google's delegation)."""

    from_: Annotated[Literal["actor"], Field(alias="from")]
    domain: Annotated[str, Field(pattern=r"^[a-z0-9-]+(\.[a-z0-9-]+)+$")]
    allow: Annotated[tuple[OperationGlob, ...], Field(min_length=1)]
    """Globs over the account's local part; "*" for everyone of the domain."""


class Credential(Strict):
    """Which record of the store is used and where its value stands (default: where the provider wants it)."""

    name: Name
    per: Literal["tenant", "actor"] = "tenant"
    header: Header | None = None
    query: Parameter | None = None
    cookie: Parameter | None = None
    format: Annotated[str, AfterValidator(_format)] | None = None
    region: Annotated[str, AfterValidator(_aws_name)] = ""
    """What an aws credential signs for, where host and record do not say or say something else."""
    service: Annotated[str, AfterValidator(_aws_name)] = ""
    impersonate: Impersonate | None = None
    placeholders: Annotated[tuple[PlaceholderPosition, ...], Field(min_length=1, max_length=MAX_POSITIONS)] | None = (
        None
    )
    """Where the client writes a placeholder, instead of a place that the proxy writes to."""


def _credential_form(value: Any) -> str:
    return "none" if isinstance(value, str) else "record"


CredentialChoice = Annotated[
    Annotated[Credential, Tag("record")] | Annotated[Literal["none"], Tag("none")], Discriminator(_credential_form)
]


class Match(Strict):
    """The keys that say which calls a rule is about. Every key given must match."""

    name: Name
    provider: str | None = None
    operations: Annotated[tuple[OperationGlob, ...], Field(min_length=1)] | None = None
    access: Literal["read", "write"] | None = None
    """Only calls that read, or only calls that write, as the catalogue or else the method says."""
    host: Host | None = None
    port: Port | None = None
    methods: Annotated[tuple[Method, ...], Field(min_length=1)] | None = None
    paths: Annotated[tuple[Path, ...], Field(min_length=1)] | None = None
    query: Annotated[dict[QueryName, ValueGlobs], Field(min_length=1)] | None = None
    """Parameters of the query, decoded, with the values that match."""
    content_types: Annotated[tuple[MediaType, ...], Field(min_length=1)] | None = None
    when: str | None = None
    """A condition in CEL."""
    plaintext: bool | None = None
    tunnel: Annotated[str, AfterValidator(_tunnel)] | None = None
    reason: str = ""


class AllowRule(Match):
    """Calls that may leave, and how."""

    max_body: Annotated[int, Field(ge=0)] | None = None
    """Only calls whose body has at most so many bytes."""
    credential: CredentialChoice | None = None
    networks: tuple[Network, ...] = ()
    tls: TlsDocument | None = None
    presigned: Literal["allow", "refuse"] = "refuse"
    token_endpoint: Literal["allow", "refuse"] = "refuse"
    """Whether these calls may ask a token endpoint; the tokens in its answer are covered."""
    errors: Literal["problem", "native", "annotate"] = "problem"
    mask: bool = True
    max_bytes: Annotated[int, Field(ge=1)] | None = None
    limits: tuple[LimitDocument, ...] = ()
    headers: Annotated[tuple[HeaderGlob, ...], Field(min_length=1)] | None = None
    """The caller's headers that leave; what frames or describes the message always does."""
    agent_credentials: Literal["strip", "refuse"] | None = None
    """What becomes of a credential that the caller sent; by default it is stripped where the rule has one."""
    max_response: Annotated[int, Field(ge=0)] | None = None
    """Bytes of a reply's body."""
    set_cookie: Literal["pass", "drop"] = "pass"
    compressed: Literal["decode", "identity"] = "decode"
    """Compressed replies are inflated to be searched for the credential, or the provider is asked for plain ones."""


class DenyRule(Match):
    """Calls that must not leave, whatever any allow says."""


class EgressPolicy(Strict):
    """A whole document."""

    apiVersion: Literal["sluicegate/v1"]
    kind: Literal["EgressPolicy"]
    metadata: Metadata
    mode: Literal["enforce", "warn"] = "enforce"
    requires: tuple[Annotated[str, AfterValidator(_feature)], ...] = ()
    subjects: Annotated[tuple[Subject, ...], Field(min_length=1)]
    allow: tuple[AllowRule, ...] = ()
    deny: tuple[DenyRule, ...] = ()
