"""docs/providers.md, written from the catalogue: `python -m proxy.catalog.page > docs/providers.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from proxy.catalog.lookup import Catalog
from proxy.catalog.operations import Operation
from proxy.catalog.provider import Provider
from proxy.dialect import Dialect, ErrorRow
from proxy.errors import KINDS
from signers.placement import Placement

_HEAD = """\
# Providers

Written from `providers/*.yaml` by `python -m proxy.catalog.page`; a test compares the two. How to add one:
[adding-a-provider.md](adding-a-provider.md).

An operation's name is what a policy rule lists under `operations` and what the audit line says. *Repeatable* means that
sending the call twice has the effect of sending it once, so a failed attempt may be repeated. A call that matches no
operation counts as a write. Where GraphQL is spoken, the type and root fields of every operation in the document are
judged, never the name that the client gives: `other` stands for fields that are not listed, and a document that cannot
be read, a persisted one above all, is none of these operations and so a write.
"""


def providers_page(providers: Iterable[Provider]) -> str:
    """The page as Markdown, providers in the order given."""
    listed = list(providers)
    index = (f"- [{provider.title}](#{provider.name}): `{provider.name}`" for provider in listed)
    sections = ("\n".join(_section(provider)) for provider in listed)
    return "\n".join([_HEAD, *index, "", "\n\n".join(sections), ""])


def _section(provider: Provider) -> Iterator[str]:
    yield f'<a id="{provider.name}"></a>'
    yield f"## {provider.title}\n"
    yield f"Verified {provider.verified.isoformat()} against {_joined(f'<{source}>' for source in provider.sources)}.\n"
    yield f"- Hosts: {_joined(_site(site.host.text, site.base_path) for site in provider.sites)}"
    yield from (f"- `{{{name}}}` (a record's `vars`): {meaning}" for name, meaning in provider.variables.items())
    yield from (f"- Record kind `{kind}`: {_written(placement)}" for kind, placement in provider.auth.items())
    yield from (f"- Record kind `{kind}`: every request is signed" for kind in provider.signed)
    yield from (f"- With the credential: `{name}: {text}`" for name, text in provider.account_headers.items())
    if provider.positions:
        yield f"- Cleared from the caller's request: {_joined(_place(place) for place in provider.positions)}"
    for name, value in provider.pins:
        yield f"- Version: `{name.decode()}: {value.decode()}`, unless the caller names one"
    if provider.env:
        yield f"- Dummies for SDKs: {_joined(f'`{name}={value}`' for name, value in provider.env.items())}"
    if provider.operations:
        yield from _operation_table(provider.operations)
    yield from _answers(provider.dialect)


def _operation_table(operations: Iterable[Operation]) -> Iterator[str]:
    """One row for each operation; those that the request itself names share rows."""
    yield "\n| operation | method | path | effect | repeatable |\n|---|---|---|---|---|"
    rows: dict[tuple[str, bool, bool], list[Operation]] = {}
    for operation in operations:
        own = "" if _named_inside(operation) else operation.name
        rows.setdefault((own, operation.write, operation.idempotent), []).append(operation)
    for (_, write, idempotent), same in rows.items():
        names, methods, paths = (dict.fromkeys(each) for each in zip(*map(_cells, same), strict=True))
        effect, repeatable = "write" if write else "read", "yes" if idempotent else "no"
        yield f"| {_joined(names)} | {_joined(methods)} | {_joined(paths)} | {effect} | {repeatable} |"


def _named_inside(operation: Operation) -> bool:
    """Whether it is called what the request calls it: an action, or a root field of GraphQL."""
    select = operation.select
    return bool(select) and (operation.name == select or ("." in str(select) and operation.name.endswith(f".{select}")))


def _cells(operation: Operation) -> tuple[str, str, str]:
    told = f"`{operation.path}`"
    if operation.select and not _named_inside(operation):
        told += f" with `{operation.select}`"
    return f"`{operation.name}`", operation.method, told


def _answers(dialect: Dialect) -> Iterator[str]:
    """How it answers: the error map by kind, and what else is declared."""
    if dialect.codes or dialect.rows:
        yield "\n| kind | the provider's codes |\n|---|---|"
    for kind in KINDS:
        codes = [_code(row) for row in dialect.rows if row.kind == kind]
        if codes:
            yield f"| {kind} | {_joined(dict.fromkeys(codes))} |"
    notes = [
        ("errors stand inside successes too", bool(dialect.signs)),
        ("failed items of a success are named in `Sluicegate-Partial`", bool(dialect.partial)),
        ("`errors: native` has its own shape", dialect.native is not None),
        ("next pages are offered as `Sluicegate-Next-Cursor`", bool(dialect.pagination)),
    ]
    if any(holds for _, holds in notes):
        yield f"\nAlso: {'; '.join(note for note, holds in notes if holds)}."
    yield from _waits(dialect)
    if dialect.idempotency is not None:
        form = dialect.idempotency
        where = {"header": "", "query": "the parameter ", "field": "the body's "}[form.place]
        which = f" of {_joined(f'`{name}`' for name in form.operations)}" if form.operations else ""
        kept = f" and is kept for {form.retention / 3600:.3g} h" if form.retention is not None else ""
        yield f"\n`Idempotency-Key`{which} goes out as {where}`{form.name}`{kept}."


def _waits(dialect: Dialect) -> Iterator[str]:
    """Where it says how long to wait, and in which unit."""
    hints = [(hint.place.text, hint.unit) for hint in dialect.waits if hint.place is not None]
    if hints:
        yield f"\nWaits: {_joined(f'`{where}` ({_unit(unit)})' for where, unit in hints)}."
    if dialect.request_id:
        yield f"\nIts own id of a request: {_joined(f'`{at.text}`' for at in dialect.request_id)}."


def _unit(unit: str) -> str:
    return "seconds or a date" if unit == "auto" else unit.replace("_", " ")


def _code(row: ErrorRow) -> str:
    named = row.code or row.name or "any"
    return f"`{named}`" + (f" at {', '.join(map(str, sorted(row.statuses)))}" if row.statuses else "")


def _site(host: str, base_path: str) -> str:
    return f"`{host}`" if base_path == "/" else f"`{host}` below `{base_path}`"


def _place(placement: Placement) -> str:
    kind = "query parameter" if placement.kind == "query" else placement.kind
    return f"{kind} `{placement.name}`"


def _written(placement: Placement) -> str:
    form = placement.format.replace("{value}", "…")
    return f"`{placement.name}: {form}`" if placement.kind == "header" else f"{_place(placement)} as `{form}`"


def _joined(parts: Iterable[str]) -> str:
    return ", ".join(parts)


if __name__ == "__main__":
    sys.stdout.write(providers_page(Catalog.load(Catalog.builtin_dir()).providers.values()))
