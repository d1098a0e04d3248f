"""Reads policy files into a PolicySet, or says everything that is wrong with them at once, by file and line."""

from __future__ import annotations

import difflib
import gc
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from policies.checks import document_findings, rules_findings
from policies.conflicts import conflicts
from policies.document import AllowRule, DenyRule, EgressPolicy
from policies.facts import ProviderFacts
from policies.policy_set import PolicySet
from policies.rules import Document, Rule, compile_document
from policies.source import Fault, Source, read
from policies.tls_terms import authorities_of

MAX_CONFLICTS: Final = 50
TEST_SUFFIXES: Final = ("_test.yaml", "_test.yml")
R = TypeVar("R", bound=BaseModel)


class PolicyError(Exception):
    """Policy files cannot be used. `faults` are (file, line, message), in the order of files and lines."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = sorted(set(faults))
        super().__init__("\n".join(str(fault) for fault in self.faults))


def load(
    dirs: Sequence[Path],
    floor: Path | None,
    providers: Mapping[str, ProviderFacts],
    default: Literal["deny", "warn"] = "deny",
) -> PolicySet:
    """All documents of the directories (or single files) and of the operator's floor.

    Raises PolicyError with every fault found. Subdirectories, hidden files and `*_test.yaml` are not policy.
    """
    with _without_collector():
        return _load(dirs, floor, providers, default)


def _load(
    dirs: Sequence[Path], floor: Path | None, providers: Mapping[str, ProviderFacts], default: Literal["deny", "warn"]
) -> PolicySet:
    faults: list[Fault] = []
    read_documents = [
        found
        for directory, is_floor in [*((directory, False) for directory in dirs), *([(floor, True)] if floor else [])]
        for path in policy_files(directory, faults)
        for source in read(path, faults)
        if (found := _document(source, is_floor, providers, faults)) is not None
    ]
    faults.extend(_duplicates(read_documents))
    faults.extend(_conflicts(read_documents))
    if faults:
        raise PolicyError(faults)
    documents = [found.document for found in read_documents]
    return PolicySet(documents, providers, warn=default == "warn", digest=_digest(read_documents, default))


@contextmanager
def _without_collector() -> Iterator[None]:
    """A large set makes hundreds of thousands of small objects, none of them garbage: collecting meanwhile triples the
    time and frees nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def policy_files(directory: Path, faults: list[Fault]) -> list[Path]:
    """The policy files of a directory, by name. A mounted ConfigMap's links into `..data` are files like any other."""
    if directory.is_file():
        return [directory]
    try:
        entries = sorted(directory.iterdir())
    except OSError as error:
        faults.append(Fault(str(directory), 0, f"cannot be read: {error.strerror}"))
        return []
    return [
        path
        for path in entries
        if path.suffix in {".yaml", ".yml"}
        and not path.name.startswith(".")
        and not path.name.endswith(TEST_SUFFIXES)
        and not path.is_dir()
    ]


@dataclass(frozen=True, slots=True)
class _Read:
    """A document that is valid in itself. Of its file only the lines are kept: the text's tree is many times larger."""

    document: Document
    name_line: int
    rule_lines: Mapping[str, tuple[int, ...]]
    content: bytes
    """Digest of what it says."""

    def line(self, rule: Rule) -> int:
        key, index = rule.position
        return self.rule_lines[key][index]


def _document(source: Source, floor: bool, providers: Mapping[str, ProviderFacts], faults: list[Fault]) -> _Read | None:
    """One document, checked; its faults are added to `faults`, those of its valid rules even when others are not."""
    before = len(faults)
    try:
        policy = EgressPolicy.model_validate(source.value)
    except ValidationError as error:
        faults.extend(type_faults(source, error))
        findings = rules_findings(_valid(source, "allow", AllowRule), _valid(source, "deny", DenyRule), providers)
        faults.extend(Fault(source.file, source.line(place), message) for place, message in findings)
        return None
    rules = rules_findings(dict(enumerate(policy.allow)), dict(enumerate(policy.deny)), providers)
    for place, message in (*document_findings(policy), *rules):
        faults.append(Fault(source.file, source.line(place), message))
    authorities = _authorities(source, policy, faults)
    if len(faults) > before:
        return None
    return _Read(
        compile_document(policy, source.file, floor=floor, providers=providers, authorities=authorities),
        source.line(("metadata", "name")),
        {key: source.item_lines(key) for key in ("allow", "deny")},
        _content(policy, floor, authorities),
    )


def _authorities(source: Source, policy: EgressPolicy, faults: list[Fault]) -> dict[int, str]:
    """The PEM text of each allow's `tls.ca`; those that cannot be read are faults."""
    found = {}
    folder = Path(source.file).parent
    for index, pem, fault in authorities_of({index: rule.tls for index, rule in enumerate(policy.allow)}, folder):
        if fault:
            faults.append(Fault(source.file, source.line(("allow", index, "tls", "ca")), fault))
        found[index] = pem
    return found


def _valid(source: Source, key: str, model: type[R]) -> dict[int, R]:
    """The rules of a faulty document that are valid alone, so that one fault does not hide another."""
    items = source.value.get(key) if isinstance(source.value, dict) else None
    found: dict[int, R] = {}
    for index, item in enumerate(items if isinstance(items, tuple) else ()):
        try:
            found[index] = model.model_validate(item)
        except ValidationError:
            continue
    return found


def _own_errors(error: ValidationError) -> list[ErrorDetails]:
    """Without "too short" for a list that only seems empty because its items are wrong."""
    details = error.errors(include_input=False, include_url=False)
    inside = {detail["loc"][:length] for detail in details for length in range(len(detail["loc"]))}
    return [detail for detail in details if detail["type"] != "too_short" or detail["loc"] not in inside]


_TYPE_MESSAGES: Final = {
    "string_type": "must be text; put it in quotes",
    "tuple_type": "must be a list",
    "model_type": "must be a mapping of keys to values",
    "model_attributes_type": "must be a mapping of keys to values",
    "int_type": "must be a whole number",
    "bool_type": "must be true or false",
    "too_short": "must not be empty",
}


def type_faults(source: Source, error: ValidationError) -> Iterator[Fault]:
    """What is wrong with the types of a file's keys, each with its line, in words of this language."""
    for detail in _own_errors(error):
        place = [part for part in detail["loc"] if part not in {"record", "none"}]
        yield Fault(source.file, source.line(place), _type_message(detail, place))


def _type_message(detail: ErrorDetails, place: Sequence[str | int]) -> str:
    key = next((part for part in reversed(place) if isinstance(part, str)), "the document")
    kind, values = detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        return f'unknown key "{key}"{_closest(key, place)}'
    if kind == "missing":
        return f"{key} is missing"
    if kind == "literal_error":
        return f"{key} must be {values['expected']}"
    if kind == "value_error":
        return f"{key}: {values['error']}"
    return f"{key} {_TYPE_MESSAGES[kind]}" if kind in _TYPE_MESSAGES else f"{key}: {detail['msg']}"


def _closest(key: str, place: Sequence[str | int]) -> str:
    model: Any = {"allow": AllowRule, "deny": DenyRule}.get(str(place[0]), EgressPolicy)
    close = difflib.get_close_matches(key, list(model.model_fields), n=1)
    return f'; did you mean "{close[0]}"?' if close else ""


def _duplicates(documents: Sequence[_Read]) -> Iterator[Fault]:
    first: dict[str, _Read] = {}
    for found in documents:
        name = found.document.name
        earlier = first.setdefault(name, found)
        if earlier is not found:
            where = f"{earlier.document.file}:{earlier.name_line}"
            yield Fault(found.document.file, found.name_line, f'a document named "{name}" already stands at {where}')


def _conflicts(documents: Sequence[_Read]) -> Iterator[Fault]:
    read_as = {id(found.document): found for found in documents}
    for pair in islice(conflicts([found.document for found in documents]), MAX_CONFLICTS):
        located = ((document.file, read_as[id(document)].line(rule), rule) for document, rule in pair)
        (file, line, rule), (other_file, other_line, other) = sorted(located, key=lambda item: item[:2])
        yield Fault(
            other_file,
            other_line,
            f'"{other.name}" and "{rule.name}" ({file}:{line}) can allow the same call equally specifically, with '
            "different credentials or TLS terms: narrow one of them (host, path, operations, methods, subjects)",
        )


def _content(policy: EgressPolicy, floor: bool, authorities: Mapping[int, str]) -> bytes:
    """Digest of one document; remarks, the order of its rules and what equals a default do not count."""
    ordered = policy.model_copy(
        update={
            "allow": tuple(sorted(policy.allow, key=lambda rule: rule.name)),
            "deny": tuple(sorted(policy.deny, key=lambda rule: rule.name)),
        }
    )
    text = ordered.model_dump_json(exclude_defaults=True).encode()
    files = "".join(sorted(authorities.values())).encode()
    return hashlib.sha256((b"floor\0" if floor else b"\0") + text + files).digest()


def _digest(documents: Sequence[_Read], default: str) -> str:
    """12 hexadecimal digits over what all documents say, whatever their files."""
    contents = sorted(found.content for found in documents)
    return hashlib.sha256(default.encode() + b"".join(contents)).hexdigest()[:12]
