"""The whole configuration. Every key has a default, so that the smallest file is an identity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PrivateAttr, ValidationInfo, field_validator, model_validator

from policies.terms import LimitDocument
from proxy.credentials.paths import check_path
from proxy.errors import Fault
from proxy.settings.audit import Audit, OtlpAudit
from proxy.settings.base import Bind, BindAddress, FilePath, NameOrStar, Section, as_written
from proxy.settings.collector import Collector
from proxy.settings.identity import IdentityChain
from proxy.settings.ledger import Ledger
from proxy.settings.store import Store
from proxy.settings.tracing import Tracing
from proxy.settings.traffic import FirewallSettings, Limits, Listener, RouteSettings, Upstream
from proxy.settings.yaml_document import YamlDocument


class Policies(Section):
    """Where the policy files are and what holds without them."""

    floor: FilePath | None = Field(None, description="The operator's own folder; its denies hold whatever others say.")
    dirs: tuple[FilePath, ...] = Field(as_written(["./policies"]), description="Folders of policy files.")
    default: Literal["deny", "warn"] = Field(
        "deny", description="`warn` lets refused calls pass without a credential and records `would_deny`."
    )


class CertificateAuthority(Section):
    """The authority whose certificates are shown inside intercepted tunnels."""

    dir: FilePath = Field(as_written("./ca"), description="Folder of ca.crt and ca.key.")
    required: bool = Field(False, description="Never make an authority; refuse to start without one.")


class State(Section):
    """Where what outlives a call is kept, encrypted: refreshed credentials that the store could not
    take yet, and the replies of calls under an idempotency key."""

    dir: FilePath = Field(as_written("./state"), description="Folder, made when it is needed.")
    key_file: FilePath = Field(as_written("./state.key"), description="Its key, 0600, made when it is needed.")
    durability: Literal["disk", "memory"] = Field(
        "disk", description="`memory` says that the volume is lost with the pod: metric and log then warn of it."
    )


class Blocks(Section):
    """Blocks for the whole fleet, read from one record of the store again and again."""

    path: str = Field(description="The record, such as sluicegate/blocks; it holds `blocks`, a list.")
    every: float = Field(15, ge=1, le=50, description="Seconds between two looks.")

    @field_validator("path")
    @classmethod
    def _record_path(cls, value: str) -> str:
        return check_path(value)


class Quota(Section):
    """A limit for every call, counted in this process: `requests` or `bytes` in `every` seconds, or `concurrent`."""

    requests: int | None = Field(None, ge=1, le=10_000_000, description="Calls.")
    bytes: int | None = Field(None, ge=1, description="Bytes of bodies, both ways together.")
    concurrent: int | None = Field(None, ge=1, le=1_000_000, description="Calls at once.")
    every: int | None = Field(None, ge=1, le=86400, description="Seconds; not with `concurrent`.")
    by: tuple[Literal["tenant", "agent", "actor", "provider"], ...] = Field(
        ("tenant", "agent"), description="For each of these by itself.", min_length=1
    )

    @model_validator(mode="after")
    def _as_in_a_rule(self) -> Quota:
        self.limit()
        return self

    def limit(self) -> LimitDocument:
        """The same as a rule would write it. Raises ValueError."""
        return LimitDocument(**self.model_dump())


class Log(Section):
    """Diagnostics, to standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least severe level shown.")
    format: Literal["auto", "json", "human"] = Field("auto", description="`auto`: human on a terminal, else JSON.")


def _socket_path(value: object, info: ValidationInfo) -> object:
    if isinstance(value, str):
        if not value.startswith("unix:") or value == "unix:":
            raise ValueError("must be unix:PATH or null")
        return value.removeprefix("unix:")
    return value


ControlSocket = Annotated[FilePath, BeforeValidator(_socket_path)]

_DEFAULT_LISTENERS = (
    {"kind": "proxy", "bind": "127.0.0.1:18400"},
    {"kind": "base-url", "bind": "127.0.0.1:18401"},
)


class Settings(Section):
    """sluicegate.yaml, checked, with every path made absolute-or-relative to the file's folder."""

    identity: IdentityChain = Field(description="Who is calling.")
    listeners: tuple[Listener, ...] = Field(
        as_written(_DEFAULT_LISTENERS), description="Where agents connect.", min_length=1
    )
    ops: BindAddress | None = Field(
        as_written("127.0.0.1:18490"), description="/healthz, /readyz and /metrics; null for none."
    )
    control: ControlSocket | None = Field(
        as_written("unix:./run/control.sock"), description="The operator's socket, unix:PATH; null for none."
    )
    tenants: tuple[NameOrStar, ...] = Field(("*",), description="Tenants this instance serves; `*` means all.")
    store: Store = Field(as_written({"kind": "file"}), description="Where credentials are kept.")
    blocks: Blocks | None = Field(None, description="Fleet-wide blocks; null for none.")
    policies: Policies = Field(as_written({}), description="What may leave.")
    providers: tuple[FilePath, ...] = Field((), description="Folders of provider files beside the built-in ones.")
    ca: CertificateAuthority = Field(as_written({}), description="Interception.")
    state: State = Field(as_written({}), description="What outlives a call.")
    ledger: Ledger | None = Field(
        as_written({"kind": "sqlite"}),
        description="Idempotency keys; null for none: a call that needs one is then refused.",
    )
    upstream: Upstream = Field(as_written({}), description="The way out.")
    routes: dict[str, RouteSettings] = Field(as_written({}), description="By provider or host; `*` for all the others.")
    firewall: FirewallSettings = Field(as_written({}), description="What `sluicegate firewall` leaves open.")
    limits: Limits = Field(as_written({}), description="Bounds of the process.")
    quotas: tuple[Quota, ...] = Field((), description="Limits that hold for every call, beside those of rules.")
    audit: Audit = Field(as_written({"sink": "stdout"}), description="One line for each call.")
    tracing: Tracing | None = Field(None, description="Spans of calls; null for none.")
    log: Log = Field(as_written({}), description="Diagnostics.")

    _document: YamlDocument = PrivateAttr(default=YamlDocument("sluicegate.yaml", {}, None))

    @property
    def file(self) -> Path:
        """The file these settings were read from."""
        return Path(self._document.file)

    def fault(self, place: Sequence[str | int], message: str) -> Fault:
        """A fault at the line of the setting at `place`, such as ("listeners", 0, "bind")."""
        return Fault(self._document.file, self._document.line(place), message)

    def collectors(self) -> Iterator[tuple[str, Collector]]:
        """The collectors that something is sent to, each with the key that it stands under."""
        if self.tracing is not None:
            yield "tracing", self.tracing
        if isinstance(self.audit, OtlpAudit):
            yield "audit", self.audit

    def identity_of(self, listener: Listener) -> IdentityChain:
        """The chain that holds on a listener."""
        return listener.identity or self.identity

    def route(self, provider: str | None, host: str) -> RouteSettings:
        """Operational settings of a destination: the host's entry, else the provider's, else `*`, taken whole."""
        for name in (host, provider, "*"):
            if name is not None and name in self.routes:
                return self.routes[name]
        return RouteSettings.model_validate({})

    @model_validator(mode="after")
    def _addresses_are_distinct(self) -> Settings:
        taken: set[Bind] = set()
        for bind in [listener.bind for listener in self.listeners] + ([self.ops] if self.ops else []):
            if bind.port and bind in taken:
                raise ValueError(f"two listeners share the address {bind}")
            taken.add(bind)
        return self

    @model_validator(mode="after")
    def _names_have_a_caller(self) -> Settings:
        for listener in self.listeners:
            if listener.names is not None and self.identity_of(listener).chain[0].kind != "static":
                raise ValueError(
                    f"names on {listener.bind} needs a static identity there: a name query carries no token"
                )
        return self

    @model_validator(mode="after")
    def _certificates_are_asked_for(self) -> Settings:
        for listener in self.listeners:
            asks = listener.tls is not None and listener.tls.client_ca is not None
            wants = any(member.kind == "client_certificate" for member in self.identity_of(listener).chain)
            if wants and not asks:
                raise ValueError(f"client_certificate on {listener.bind} needs tls: {{client_ca}} there")
        return self
