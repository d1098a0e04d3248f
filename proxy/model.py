"""The values that travel along a call's path: Call, Caller, Route, Material, SignedRequest, AuditRecord.

Each stage takes the value of the one before. They are made once for each call and never changed, except AuditRecord,
which is filled while the call runs and closed after its last byte.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from policies.traits import NO_TRAITS, Traits

if TYPE_CHECKING:
    from proxy.catalog import Operation, Provider
    from signers.client_certificate import ClientCertificate
    from signers.placement import Injection
    from signers.secret import Secret
    from signers.signing import Signing

DEFAULT_PORTS = {"https": 443, "http": 80}
Headers = list[tuple[bytes, bytes]]
ListenerKind = Literal["proxy", "base-url", "tools", "transparent"]


class Destination(NamedTuple):
    """Where a call goes: the one name that policy, credential, dial, SNI, certificate check and log share.

    `scheme` is "https" or "http"; `host` is lower-case IDNA without trailing dot, or an IP literal in canonical
    spelling without brackets; `port` is the effective port.
    """

    scheme: str
    host: str
    port: int

    @property
    def bracketed(self) -> str:
        """The host as it stands in a URL or Host header (RFC 3986 section 3.2.2)."""
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def authority(self) -> str:
        """Host header value: the port only when it is not the scheme's default (RFC 9110 section 7.2)."""
        if self.port == DEFAULT_PORTS[self.scheme]:
            return self.bracketed
        return f"{self.bracketed}:{self.port}"

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.authority}"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is calling, from configuration or signed claims only. `expires` is epoch seconds, None for never."""

    tenant: str
    agent: str
    actor: str = ""
    expires: float | None = None
    source: str = "static"
    token_id: str = ""
    """Digest of the token that proved it, for revocation; never the token."""
    jti: str = ""
    """The token's own id (RFC 7519 section 4.1.7), for revocation; empty without one."""
    subject_token: Secret | None = field(default=None, compare=False)
    """The caller's own verified token, where a later stage exchanges it (caller_jwt, RFC 8693)."""
    traits: Traits = NO_TRAITS
    """Namespace and labels, where its identity tells them."""


class Presented(NamedTuple):
    """The places of one call in which a token may stand, as received (design section 6)."""

    session: bytes | None = None
    proxy_authorization: bytes | None = None
    authorization: bytes | None = None
    certificate: bytes | None = None
    """The client's certificate, DER, where the listener asked for one."""


class Wishes(NamedTuple):
    """Values of Idempotency-Key and Sluicegate-Cursor as received; empty without."""

    key: bytes = b""
    cursor: bytes = b""


class HeaderSection:
    """What one request's header section says, derived once and kept with the connection while it repeats.

    kept        (comparable name, name, value) of the end-to-end lines in order, Host among them; the comparable name is
                lower-case with hyphens for underscores, as servers behind CGI-like gateways would read it
    host        Host as received; None in HTTP/1.0 without one
    length      Content-Length; None without one
    chunked     the body is chunked
    close       the client asked for the connection to be closed
    keep_alive  an HTTP/1.0 client asked for it to be kept
    expect      `Expect: 100-continue` stands among the lines
    websocket   an upgrade to websocket is asked for
    wishes      what the caller asks of us besides: an idempotency key, a cursor; None for neither
    timeout     seconds that the caller gives the call (Sluicegate-Timeout); 0 without
    origin      Origin as received, which browsers send for the page that calls; None without
    suspects    some value may be a session token and has to be looked at before it leaves
    memo        the last rendering: (what it depends on …, what came of it); see rendering.py, sealing.py in upstream
    """

    __slots__ = (
        "chunked",
        "close",
        "expect",
        "host",
        "keep_alive",
        "kept",
        "length",
        "memo",
        "origin",
        "presented",
        "suspects",
        "timeout",
        "websocket",
        "wishes",
    )

    def __init__(self) -> None:
        self.kept: list[tuple[bytes, bytes, bytes]] = []
        self.host: bytes | None = None
        self.origin: bytes | None = None
        self.length: int | None = None
        self.chunked = False
        self.close = False
        self.keep_alive = False
        self.expect = False
        self.websocket = False
        self.timeout = 0.0
        self.wishes: Wishes | None = None
        self.suspects = False
        self.presented = Presented()
        self.memo: tuple[object, object, object, object, Any] | None = None

    def having(self, kept: list[tuple[bytes, bytes, bytes]]) -> HeaderSection:
        """A copy with these lines, for one call; the connection's own stays as it is."""
        copy = HeaderSection()
        for name in HeaderSection.__slots__:
            setattr(copy, name, getattr(self, name))
        copy.kept, copy.memo = kept, None
        return copy


class Place(NamedTuple):
    """What a listener read out of a request line and Host: where the call goes."""

    destination: Destination
    target: bytes
    """Origin-form request target as it will be sent, byte for byte."""
    path: str | None
    """Decoded path; None when it is ambiguous (policies.matchers.decode_path)."""
    suspect: bool = False
    """Some value of the target may be a session token and has to be looked at before it leaves."""
    segment: str = ""
    """Base-URL mode: the first path segment, so that Link and Location can point back."""
    rule: str = ""
    """Base-URL mode: the rule whose own host is the destination, filled in once the caller is known."""
    front: bytes = b""
    """Base-URL mode: scheme and authority under which the client reached us."""


class RequestLine:
    """A judged request line. Kept with the connection while it repeats, as agents call the same few endpoints.

    `target` is as received, whatever its form; `memo` is what a listener made of it: (what it depends on, Place).
    """

    __slots__ = ("memo", "method", "minor", "target")

    def __init__(self, method: str, target: bytes, minor: int) -> None:
        self.method = method
        self.target = target
        self.minor = minor
        self.memo: tuple[object, Place] | None = None


class RequestHead:
    """A request line with its header section, framing judged. `raw` are the bytes it was made from."""

    __slots__ = ("line", "line_raw", "raw", "section", "section_raw")

    def __init__(
        self, raw: bytes, line: RequestLine, line_raw: bytes, section: HeaderSection, section_raw: bytes
    ) -> None:
        self.raw = raw
        self.line = line
        self.line_raw = line_raw
        self.section = section
        self.section_raw = section_raw


class Call(msgspec.Struct, gc=False):
    """One request as received, with its canonical destination."""

    call_id: str
    listener: ListenerKind
    method: str
    destination: Destination
    place: Place
    section: HeaderSection
    started: float
    """Seconds of the monotonic clock."""
    minor: int
    """The client's HTTP/1.x."""
    presented: Presented
    """Tokens of this call; inside a tunnel those of its CONNECT, unless the call has its own."""
    tool: str = ""
    """The tool that the call is, where one was called by name."""


class Route(NamedTuple):
    """What the catalogue says of a call: pure look-up."""

    provider: Provider | None
    operation: Operation | None
    path: str | None
    """Decoded path; None when it is ambiguous (policies.matchers.decode_path)."""


@dataclass(frozen=True, slots=True)
class Material:
    """A credential usable now, prepared for the wire.

    `name` is "credential@version" for logs. `expires` is epoch seconds. `injection` holds the prepared header lines.
    """

    name: str
    hosts: frozenset[str]
    injection: Injection
    expires: float | None = None
    masks: object = None
    """What the reply is searched for, prepared by proxy/responses/masking.py."""
    issued: str = ""
    """Digest of the token, where a provider issued one; empty for what its owner stored."""
    signing: Signing | None = None
    """Signs each request as it is, for kinds that cannot be prepared once (signers/table.py)."""
    certificate: ClientCertificate | None = None
    """Shown in the TLS handshake."""


class AuditRecord(msgspec.Struct, gc=False, omit_defaults=False):
    """One line for each call (design section 10). Never a header value, query value, body or secret."""

    time: str
    call_id: str
    listener: str
    tenant: str = ""
    actor: str = ""
    agent: str = ""
    provider: str = ""
    operation: str = ""
    tool: str = ""
    method: str = ""
    host: str = ""
    path: str = ""
    status: int = 0
    outcome: str = ""
    kind: str = ""
    code: str = ""
    blame: str = "none"
    stage: str = ""
    rule: str = ""
    policy: str = ""
    policy_hash: str = ""
    credential: str = ""
    attempts: int = 0
    duration_ms: float = 0.0
    upstream_ms: float = 0.0
    bytes_in: int = 0
    bytes_out: int = 0
