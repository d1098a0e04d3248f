"""One provider, as the stages see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Literal, NamedTuple

from proxy.catalog.hosts import HostPattern
from proxy.catalog.inside import Selector
from proxy.catalog.operations import Operation, OperationIndex, told_apart
from proxy.catalog.probe import Probe
from proxy.dialect import Dialect
from signers.hmac_template import HmacTemplate
from signers.placement import Placement

if TYPE_CHECKING:
    from proxy.catalog.token import TokenFacts
    from proxy.catalog.tool import Tool


class Site(NamedTuple):
    """A host of a provider and the path below which it is that provider's ("/", or without a slash at the end)."""

    host: HostPattern
    base_path: str


class Revocation(NamedTuple):
    """How a token is ended at the provider: what the fields mean stands in proxy.credentials.revocation."""

    endpoint: str
    style: Literal["rfc7009", "json", "bearer", "credentials"]
    success: str
    authentication: Literal["", "basic", "post", "none"]
    tokens: Literal["", "access_token", "refresh_token"]
    invalid_token: Literal["ended", "unknown"]
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class Provider:
    """What one file of the catalogue says, compiled. Compared by identity: a reloaded catalogue has new ones.

    sites       every (host, base path) at which a call is this provider's
    auth        default placement of each record kind the provider takes
    signed      record kinds it takes that sign each request
    hmac        how it wants requests signed with an `hmac` record
    positions   every placement in which the provider accepts a credential, cleared before one is injected
    pins        version headers (name, value), each added when the caller sent none of that name
    env         variables that SDKs want set, with values of the right shape that are no secrets
    variables   what each variable of a host template means, for the operator
    dialect     how it answers: errors, waits, pages
    watched     some 2xx of it has to be looked at: errors inside successes and streams, cursors
    token       its token endpoint and how that is spoken to; None where the catalogue does not know
    renews_on_401  whether a 401 means that the credential has to be renewed
    account_headers  headers that go with a credential, templates over its record's vars
    selector    tells operations apart that share method and path
    tools       operations that agents may call by name
    probes      calls that tell whether it still answers as its file says
    verified    the day on which the file was last compared with `sources`
    """

    name: str
    title: str
    sites: tuple[Site, ...]
    base_path: str
    auth: Mapping[str, Placement]
    positions: tuple[Placement, ...]
    pins: tuple[tuple[bytes, bytes], ...]
    env: Mapping[str, str]
    operations: tuple[Operation, ...]
    variables: Mapping[str, str]
    verified: date
    sources: tuple[str, ...]
    dialect: Dialect = field(default_factory=Dialect)
    revocation: Revocation | None = None
    token: TokenFacts | None = None
    renews_on_401: bool = True
    signed: tuple[str, ...] = ()
    hmac: HmacTemplate | None = None
    account_headers: Mapping[str, str] = field(default_factory=dict)
    selector: Selector | None = None
    probes: tuple[Probe, ...] = ()
    tools: tuple[Tool, ...] = ()
    hosts: tuple[str, ...] = field(init=False)
    """Exact hosts and templates, as written."""
    exact_hosts: frozenset[str] = field(init=False)
    first_host: str = field(init=False)
    """The exact host that its file names first; "" when all are templates."""
    operation_names: frozenset[str] = field(init=False)
    watched: bool = field(init=False)
    _index: OperationIndex = field(init=False, repr=False)

    def __post_init__(self) -> None:
        hosts = dict.fromkeys(site.host.text for site in self.sites)
        object.__setattr__(self, "hosts", tuple(hosts))
        object.__setattr__(self, "exact_hosts", frozenset(s.host.text for s in self.sites if s.host.exact))
        object.__setattr__(self, "first_host", next((host for host in hosts if host in self.exact_hosts), ""))
        object.__setattr__(self, "operation_names", frozenset(operation.name for operation in self.operations))
        dialect = self.dialect
        object.__setattr__(self, "watched", dialect.looks_into_successes)
        object.__setattr__(self, "_index", OperationIndex(told_apart(self.operations, self.selector)))

    def matches(self, host: str) -> bool:
        """Whether a canonical host is one of this provider's, by name or by template."""
        return host in self.exact_hosts or any(site.host.matches(host) for site in self.sites)

    def hosts_for(self, variables: Mapping[str, str]) -> frozenset[str]:
        """The exact hosts, and those that a record's `vars` make of the templates they fill completely.

        Raises ValueError naming a variable that is not one DNS label.
        """
        filled = (site.host.filled(variables) for site in self.sites)
        return frozenset(host for host in filled if host is not None)

    def headers_for(self, variables: Mapping[str, str]) -> dict[str, str]:
        """The account headers whose variable a record's `vars` give."""
        known = {f"{{{name}}}": value for name, value in variables.items()}
        return {header: known[text] for header, text in self.account_headers.items() if text in known}

    def placement_for(self, kind: str) -> Placement | HmacTemplate | None:
        """Where a record of this kind goes; None when the provider takes no such kind or it places itself."""
        return self.hmac if kind == "hmac" else self.auth.get(kind)

    def operation(self, method: str, path: str | None) -> Operation | None:
        """The operation of a decoded path; None when it is unknown or the path is ambiguous (None)."""
        return None if path is None else self._index.find(method, path)
