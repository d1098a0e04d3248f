"""Reading directories of provider files into providers, with every fault found in any of them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from proxy.catalog import answers
from proxy.catalog.document import (
    AuthDocument,
    OperationDocument,
    PinDocument,
    PlacementDocument,
    ProviderDocument,
    RevocationDocument,
    SiteDocument,
)
from proxy.catalog.hmac import DigestDocument, HmacDocument
from proxy.catalog.hosts import HostPattern, hosts_meet, path_within
from proxy.catalog.located import LocatedDocument, Location, read_located
from proxy.catalog.probes import ProbeDocument
from proxy.catalog.provider import Provider, Revocation, Site
from proxy.catalog.token import AssertionDocument, StepDocument, SuccessDocument, TokenDocument
from proxy.catalog.tool import ToolDocument, ToolFieldDocument
from proxy.dialect import Dialect, ErrorRow
from proxy.errors import ConfigurationError, Fault
from signers.placement import Placement


@dataclass(frozen=True, slots=True)
class _Entry:
    """One readable file."""

    located: LocatedDocument
    document: ProviderDocument
    builtin: bool


def load_providers(builtin: Path, extra: Sequence[Path]) -> list[Provider]:
    """The providers of all files, by name; raises ConfigurationError with the faults of all files."""
    faults: list[Fault] = []
    entries = [*_read_directory(builtin, faults, builtin=True)]
    for directory in extra:
        entries += _read_directory(directory, faults, builtin=False)
    faults += _faults_between(entries)
    if faults:
        raise ConfigurationError(faults)
    chosen = {entry.document.name: entry for entry in entries}
    return [_provider(chosen[name].document) for name in sorted(chosen)]


def load_provider(path: Path) -> Provider:
    """The provider of one file by itself; raises ConfigurationError with its faults."""
    faults: list[Fault] = []
    entry = _read(path, faults, builtin=True)
    if entry is None or faults:
        raise ConfigurationError(faults)
    return _provider(entry.document)


def _read_directory(directory: Path, faults: list[Fault], *, builtin: bool) -> Iterator[_Entry]:
    if not directory.is_dir():
        faults.append(Fault(str(directory), 0, "is not a directory"))
        return
    faults += (Fault(str(path), 0, "is not read: call it *.yaml") for path in sorted(directory.glob("*.yml")))
    for path in sorted(directory.glob("*.yaml")):
        entry = _read(path, faults, builtin=builtin)
        if entry is not None:
            yield entry


def _read(path: Path, faults: list[Fault], *, builtin: bool) -> _Entry | None:
    located = read_located(path)
    document = _validated(located)
    faults += located.faults
    if document is None:
        return None
    faults += (located.fault(location, message) for location, message in document.faults())
    if document.name != path.stem:
        faults.append(located.fault(("name",), f"name {document.name!r} must be the file's, {path.stem!r}"))
    return _Entry(located, document, builtin)


def _validated(located: LocatedDocument) -> ProviderDocument | None:
    """The file's document; None, with the faults added to the file's, when it does not have the format."""
    if not isinstance(located.value, dict):
        if not located.faults:
            located.faults.append(Fault(located.file, 1, "must be a mapping of name, title, hosts, auth, …"))
        return None
    try:
        return ProviderDocument.model_validate(located.value)
    except ValidationError as error:
        for problem in error.errors(include_url=False, include_input=False):
            located.faults.append(located.fault(problem["loc"], _sentence(problem["type"], problem["loc"], problem)))
        return None


def _sentence(kind: str, location: Location, problem: Any) -> str:
    """A validation error as an operator reads it: which key, what is wrong with it."""
    key = str(location[-1]) if location else ""
    where = ".".join(str(part) for part in location if part != "[key]")
    if kind == "extra_forbidden":
        near = difflib.get_close_matches(key, [known for known in _KEYS if known != key], 1)
        return f"unknown key {key!r}" + (f"; did you mean {near[0]!r}?" if near else "")
    if kind == "missing":
        return f"{where} is missing"
    message = str(problem["msg"]).removeprefix("Value error, ")
    return f"{where}: {message}"


_KEYS = sorted(
    name
    for model in (
        ProviderDocument,
        SiteDocument,
        PlacementDocument,
        AuthDocument,
        HmacDocument,
        DigestDocument,
        PinDocument,
        ProbeDocument,
        OperationDocument,
        ToolDocument,
        ToolFieldDocument,
        answers.ErrorsDocument,
        answers.RowDocument,
        answers.SignDocument,
        answers.PartialDocument,
        answers.EventDocument,
        answers.WaitDocument,
        answers.PageDocument,
        answers.IdempotencyDocument,
        answers.PlaceDocument,
        RevocationDocument,
        TokenDocument,
        AssertionDocument,
        SuccessDocument,
        StepDocument,
    )
    for name in model.model_fields
)


def _provider(document: ProviderDocument) -> Provider:
    auth = document.auth.placements()
    return Provider(
        name=document.name,
        title=document.title,
        sites=tuple(Site(*site) for site in document.sites()),
        base_path=document.base_path,
        auth=auth,
        signed=document.auth.signed(),
        hmac=document.auth.hmac.compiled() if document.auth.hmac is not None else None,
        account_headers=dict(document.account_headers),
        positions=_positions([*auth.values(), *(position.placement() for position in document.positions)]),
        pins=tuple((pin.header.encode("ascii"), pin.value.encode("latin-1")) for pin in document.pins),
        env=dict(document.env),
        operations=tuple(document.all_operations()),
        probes=tuple(one.probe() for one in document.probes),
        tools=tuple(document.tools()),
        selector=document.selector.selector() if document.selector else None,
        variables=dict(document.vars),
        verified=document.verified,
        sources=tuple(document.source),
        dialect=_dialect(document),
        revocation=_revocation(document),
        token=document.token.compiled() if document.token else None,
        renews_on_401=document.unauthorized == "credential",
    )


def _dialect(document: ProviderDocument) -> Dialect:
    found = document.dialect(document.name, document.title)
    if document.unauthorized == "credential":
        return found
    return replace(found, rows=(*found.rows, ErrorRow("permission", statuses=frozenset({401}))))


def _revocation(document: ProviderDocument) -> Revocation | None:
    found = document.revocation
    if found is None:
        return None
    return Revocation(
        found.endpoint,
        found.style,
        found.success,
        found.authentication,
        found.tokens,
        found.invalid_token,
        found.headers,
    )


def _positions(placements: Iterable[Placement]) -> tuple[Placement, ...]:
    """One placement for each place: how the value is written there does not matter for clearing it."""
    places: dict[tuple[str, str], Placement] = {}
    for placement in placements:
        name = placement.name.lower() if placement.kind == "header" else placement.name
        places.setdefault((placement.kind, name), placement)
    return tuple(places.values())


def _faults_between(entries: Sequence[_Entry]) -> Iterator[Fault]:
    """What files contradict each other in: names, calls that two would claim, dummies of one variable."""
    for number, later in enumerate(entries):
        for earlier in entries[:number]:
            if later.document.name == earlier.document.name:
                yield from _faults_of_replacing(later, earlier)
            else:
                yield from _faults_of_claims(later, earlier)
                yield from _faults_of_dummies(later, earlier)


def _faults_of_replacing(later: _Entry, earlier: _Entry) -> Iterator[Fault]:
    name = later.document.name
    if not earlier.builtin or later.builtin:
        yield later.located.fault(("name",), f"provider {name!r} is defined in {earlier.located.file} already")
        return
    for number, site in enumerate(later.document.sites()):
        if not any(_inside(site, known) for known in earlier.document.sites()):
            yield later.located.fault(
                ("hosts", number), f"host {site[0].text!r} would widen the built-in provider {name!r}; take a new name"
            )


def _inside(site: tuple[HostPattern, str], known: tuple[HostPattern, str]) -> bool:
    same = site[0].text == known[0].text or (site[0].exact and known[0].matches(site[0].text))
    return same and path_within(site[1], known[1])


def _faults_of_claims(later: _Entry, earlier: _Entry) -> Iterator[Fault]:
    guarded = earlier.builtin and not later.builtin
    for number, site in enumerate(later.document.sites()):
        for known in earlier.document.sites():
            if _takes_from(site, known) if guarded else _same_claim(site, known):
                yield later.located.fault(
                    ("hosts", number),
                    f"host {site[0].text!r} with base path {site[1]} overlaps provider {earlier.document.name!r}",
                )


def _same_claim(site: tuple[HostPattern, str], known: tuple[HostPattern, str]) -> bool:
    """Whether look-up could not tell the two apart: it prefers an exact host to a template and a longer base path."""
    return site[0].exact == known[0].exact and hosts_meet(site[0], known[0]) and site[1] == known[1]


def _takes_from(site: tuple[HostPattern, str], known: tuple[HostPattern, str]) -> bool:
    """Whether a call that was a built-in provider's would become the new one's."""
    passes_by = known[0].exact and not site[0].exact
    return not passes_by and hosts_meet(site[0], known[0]) and path_within(site[1], known[1])


def _faults_of_dummies(later: _Entry, earlier: _Entry) -> Iterator[Fault]:
    for variable, value in later.document.env.items():
        if earlier.document.env.get(variable, value) != value:
            yield later.located.fault(
                ("env", variable), f"{variable} has another value in provider {earlier.document.name!r}"
            )
