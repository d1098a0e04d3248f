"""The `probes:` of a provider file: calls that only read, and what their answers look like."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from proxy.catalog.base import OneLine, Strict
from proxy.catalog.probe import Probe
from proxy.dialect import place
from proxy.errors import Kind

Type = Literal["string", "number", "boolean", "array", "object", "null"]


def _checked_types(text: str) -> str:
    for name in text.split("|"):
        if name not in Type.__args__:  # type: ignore[attr-defined]
            raise ValueError(f"{name!r} is none of {', '.join(Type.__args__)}")  # type: ignore[attr-defined]
    return text


def _checked_place(text: str) -> str:
    if not text.startswith("$"):
        raise ValueError(f"{text!r} is no place in a JSON body")
    place(text)
    return text


class ProbeDocument(Strict):
    """A call that reads, and what its answer looks like: for `sluicegate contract`."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,59}$")]
    method: Literal["GET", "HEAD", "POST"] = "GET"
    path: Annotated[str, Field(pattern=r"^/[!-~]{0,300}$")] = Field(description="with its query; no credential in it")
    headers: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,60}$")], OneLine] = Field({})
    body: dict[str, Any] | None = Field(None, description="sent as JSON")
    status: int = Field(200, ge=200, le=299)
    expect: dict[Annotated[str, AfterValidator(_checked_place)], Annotated[str, AfterValidator(_checked_types)]] = (
        Field({}, description="place: type, or types joined by |")
    )
    answers: list[OneLine] = Field([], description="names of headers that the answer has")
    kind: Kind | None = Field(None, description="the failure that is expected, with the provider's code")
    code: OneLine | None = None

    @model_validator(mode="after")
    def _expects_one_thing(self) -> ProbeDocument:
        if (self.kind is None) != (self.code is None) or (self.kind is not None and self.expect):
            raise ValueError("expect a success with its places, or a failure with kind and code")
        return self

    def probe(self) -> Probe:
        shape = tuple((place(at), at, frozenset(types.split("|"))) for at, types in self.expect.items())
        return Probe(
            self.name, self.method, self.path, tuple(self.headers.items()), self.body, self.status, shape,
            tuple(self.answers), self.kind or "", self.code or "",
        )  # fmt: skip


def probe_faults(probes: list[ProbeDocument]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """(location, message) of each name that stands twice."""
    seen: set[str] = set()
    for number, probe in enumerate(probes):
        if probe.name in seen:
            yield ("probes", number, "name"), f"probe {probe.name!r} stands here twice"
        seen.add(probe.name)
