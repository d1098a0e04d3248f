"""How traffic comes in and goes out: listeners, limits, routes and the outside world."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from proxy.settings.base import BindAddress, FilePath, IpAddress, IpNetwork, Section, as_written
from proxy.settings.identity import IdentityChain

Seconds = Annotated[float, Field(gt=0, le=86400)]


class ListenerTls(Section):
    """TLS on a listener's own socket."""

    cert: FilePath = Field(description="Certificate chain, PEM.")
    key: FilePath = Field(description="Private key, PEM, readable by its owner only.")
    client_ca: FilePath | None = Field(None, description="Bundle that client certificates must chain to.")


class NameStub(Section):
    """Answers name queries that the firewall redirects: names that a rule could allow exist, no others."""

    bind: BindAddress = Field(description="HOST:PORT, UDP, on loopback and of the listener's own IP version.")
    addresses: tuple[IpAddress, ...] = Field(
        as_written(["198.18.0.1", "100::1"]),
        description="Synthetic addresses given for every name that exists; nothing is ever sent there.",
        min_length=1,
    )
    records: dict[str, tuple[IpAddress, ...]] = Field(
        as_written({}), description="Names of `firewall.direct` destinations, with the addresses that they have."
    )


class Listener(Section):
    """One socket that agents connect to."""

    kind: Literal["proxy", "base-url", "tools", "transparent"] = Field(
        description="`proxy`: absolute-form and CONNECT. `base-url`: `/{provider}/…`, `/{rule}/…`. `transparent`: "
        "connections that `sluicegate firewall` redirected. `tools`: the catalogue's tools by name and arguments."
    )
    bind: BindAddress = Field(description="HOST:PORT; a host that is not loopback needs `tls`.")
    tls: ListenerTls | None = Field(None, description="TLS on this socket.")
    identity: IdentityChain | None = Field(None, description="Replaces the top-level `identity` on this listener.")
    names: NameStub | None = Field(None, description="`transparent` only: the stub for name queries; null for none.")

    @model_validator(mode="after")
    def _transparent_stays_in_the_pod(self) -> Listener:
        transparent = self.kind == "transparent"
        if self.names is not None and not transparent:
            raise ValueError("names belongs to a transparent listener")
        if transparent and (self.tls is not None or not self.bind.loopback):
            raise ValueError("a transparent listener listens on loopback, without tls: the firewall redirects to it")
        if self.names is not None and (not self.names.bind.loopback or self.names.bind.version != self.bind.version):
            raise ValueError(f"names.bind must be a loopback address of the IP version of {self.bind}")
        return self

    @model_validator(mode="after")
    def _tools_stay_on_the_machine(self) -> Listener:
        if self.kind == "tools" and (self.tls is not None or not self.bind.loopback):
            raise ValueError("a tools listener listens on loopback, without tls")
        return self

    @model_validator(mode="after")
    def _cleartext_stays_on_the_machine(self) -> Listener:
        if self.tls is None and not self.bind.loopback:
            raise ValueError(f"{self.bind} can be reached from other machines, so it needs tls: {{cert, key}}")
        return self


class DirectEgress(Section):
    """One exception of the firewall."""

    to: IpNetwork = Field(description="Network or address.")
    protocol: Literal["tcp", "udp"] = Field("tcp", description="Protocol.")
    ports: tuple[Annotated[int, Field(ge=1, le=65535)], ...] = Field(description="Ports.", min_length=1)
    reason: str = Field(
        description="Why it need not go through the proxy, for who reviews it.", pattern=r"^[^\"\\\x00-\x1f]{1,100}$"
    )


class FirewallSettings(Section):
    """What `sluicegate firewall` renders. Everything of other users is closed but what stands here."""

    user: int = Field(64100, ge=0, le=4294967294, description="UID of the proxy, whose traffic passes.")
    direct: tuple[DirectEgress, ...] = Field((), description="Traffic that passes by the proxy, each with its reason.")


class Limits(Section):
    """Bounds that keep one caller from exhausting the process."""

    request_target: int = Field(16384, ge=256, description="Bytes of a request target; over it 414.")
    head: int = Field(65536, ge=1024, description="Bytes of a request's or reply's head; over it 431 (502).")
    header_lines: int = Field(256, ge=8, description="Header lines of one message.")
    chunk_line: int = Field(1024, ge=16, description="Bytes of a chunk's size line with its extensions.")
    trailers: int = Field(8192, ge=0, description="Bytes of a trailer section.")
    interim_replies: int = Field(16, ge=1, description="1xx replies before the final one.")
    client_connections: int = Field(4096, ge=1, description="Client connections of the whole process.")
    in_flight: int = Field(2048, ge=1, description="Calls running at once; over it 503 `overloaded`.")
    buffered_bytes: int = Field(
        64 * 1024 * 1024,
        ge=1,
        description="Bytes of request bodies waiting in memory, in all; over it 503 `overloaded`.",
    )
    request_head_seconds: Seconds = Field(4, description="For a request's head, from its first byte.")
    stalled_body_seconds: Seconds = Field(4, description="Longest gap before 16 KB of a request body have come.")
    request_body_seconds: Seconds = Field(60, description="Longest gap between two pieces of a request body.")
    keepalive_seconds: Seconds = Field(300, description="For an idle client connection.")
    grace_seconds: Seconds = Field(25, description="After SIGTERM, for running exchanges to end.")


class Timeouts(Section):
    """Seconds for each phase of an exchange with an upstream."""

    connect: Seconds = Field(
        10, description="TCP and TLS handshake, each; wait for a free connection. By host or `*` only."
    )
    head: Seconds = Field(300, description="From the request's last byte to the reply's head.")
    read: Seconds = Field(300, description="Longest gap between two pieces of a reply body.")
    idle: Seconds = Field(60, description="How long an unused connection is kept. By host or `*` only.")


class Retries(Section):
    """Repeats of calls that are safe to repeat."""

    attempts: int = Field(3, ge=1, le=10, description="Attempts in all; 1 turns repeats off.")
    max_wait: float = Field(10, ge=0, le=300, description="Seconds waited between attempts, all together.")


class Pool(Section):
    """Connections to one destination. By host or `*` only: connections belong to no provider."""

    connections: int = Field(256, ge=1, description="Connections at most.")
    waiting: int = Field(1024, ge=0, description="Calls that may wait for one; over it 503 `overloaded`.")


class RouteSettings(Section):
    """Operational choices for a provider or a host."""

    timeouts: Timeouts = Field(as_written({}), description="Phases of an exchange.")
    retries: Retries = Field(as_written({}), description="Repeats.")
    pool: Pool = Field(as_written({}), description="Connections.")


class Upstream(Section):
    """How this instance reaches the outside."""

    extra_ca_file: FilePath | None = Field(None, description="Roots trusted beside the system's, PEM.")
    client_certificates: FilePath | None = Field(
        None,
        description="Folder of client certificates: `TENANT/NAME` are the files that an `mtls` record of TENANT names.",
    )
    proxy: str | None = Field(None, description="Parent proxy for every outbound connection: http://HOST:PORT.")

    @field_validator("proxy")
    @classmethod
    def _proxy_url(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            parts = urlsplit(value)
            ok = parts.scheme == "http" and bool(parts.hostname) and bool(parts.port) and parts.path in {"", "/"}
        except ValueError:
            ok = False
        if not ok or parts.username is not None or parts.query or parts.fragment:
            raise ValueError("must be http://HOST:PORT and hold no user or password")
        return value.rstrip("/")
