"""Reference pages made from the code, docs/errors.md and docs/configuration.md: `python -m proxy.documentation`."""

from __future__ import annotations

import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import msgspec
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from proxy.errors import CODES, KINDS, Code
from proxy.settings import Bind, Settings
from proxy.settings.base import one_or_more

NOTICE: Final = "<!-- Made by `python -m proxy.documentation`; change the code it is made from. -->"

_KINDS: Final = {
    "bad_input": "The request itself is wrong; sent again unchanged it fails the same way.",
    "auth": "A credential or an identity is missing or no longer accepted; somebody has to act.",
    "permission": "The caller is known, and this is not allowed.",
    "not_found": "The thing asked for is not there.",
    "rate_limit": "Too many calls; wait as long as `Retry-After` says.",
    "unavailable": "Something on the way does not work now.",
}

_EXAMPLE: Final = """\
listeners:
  - {kind: proxy, bind: 127.0.0.1:18400}
  - {kind: base-url, bind: 127.0.0.1:18401}
identity: [{kind: static, tenant: acme, agent: support-bot}]
store: {kind: file, path: ./secrets.enc, key_file: ./secrets.key}
policies: {dirs: [./policies]}
routes:
  openai: {timeouts: {head: 600}}
  "*": {retries: {attempts: 2}}
"""


def errors_page() -> str:
    """docs/errors.md: the six kinds and every refusal of our own."""
    rows = [_row("Kind", "Meaning"), _row("---", "---"), *(_row(f"`{kind}`", _KINDS[kind]) for kind in KINDS)]
    return "\n".join([
        "# Errors",
        "",
        NOTICE,
        "",
        "Every failed call is one of six kinds, whoever refused it. The kind stands in the body's `kind` and in the",
        "header `Sluicegate-Error-Kind`.",
        "",
        *rows,
        "",
        "## Refusals by the proxy",
        "",
        "These have `source: gateway`. A status after the first is used where the listener or the fault asks for it.",
        "`if safe` means that the call may be repeated when its method is GET, HEAD or OPTIONS, or when the catalogue",
        "declares the operation idempotent. `blame` is the word under which the call is counted and recorded.",
        "",
        _row("Code", "Kind", "Status", "Retryable", "Blame", "What the agent is told to do"),
        _row("---", "---", "---", "---", "---", "---"),
        *(_code_row(code) for code in CODES.values()),
        "",
    ])  # fmt: skip


def configuration_page() -> str:
    """docs/configuration.md: every key, its type, default and meaning."""
    return "\n".join([
        "# Configuration",
        "",
        NOTICE,
        "",
        "One YAML file, named by `--config FILE`, else by `$SLUICEGATE_CONFIG`, else `./sluicegate.yaml`. A relative",
        "path in it starts at the file's own folder. Keys that are not listed here are refused, and so is a key that",
        "stands twice. `sluicegate check` names every fault with its line. Only `identity` has no default:",
        "",
        "```yaml",
        _EXAMPLE + "```",
        "",
        "Proxy variables of the environment are not read; a parent proxy is named by `upstream.proxy`.",
        "In `routes` the entry of the host wins over the provider's, and that over `*`; entries are not merged.",
        "",
        *_sections(Settings, "", "Top level", {}),
    ])  # fmt: skip


def sections(model: type[BaseModel], title: str) -> Iterator[str]:
    """A table for a model and one for each section below it."""
    yield from _sections(model, "", title, {})


def write(folder: Path) -> None:
    """Write both pages into `folder`."""
    folder.mkdir(exist_ok=True)
    (folder / "errors.md").write_text(errors_page(), "utf-8")
    (folder / "configuration.md").write_text(configuration_page(), "utf-8")


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _code_row(code: Code) -> str:
    statuses = ", ".join(map(str, code.statuses))
    return _row(f"`{code.name}`", code.kind, statuses, code.retry, code.blame, code.advice)


def _sections(model: type[BaseModel], path: str, title: str, seen: dict[type[BaseModel], str]) -> Iterator[str]:
    """A heading and a table for a model, then the same for the models of its fields; one met before is referred to."""
    yield from [f"## {title}", ""]
    if path:
        yield from [" ".join((model.__doc__ or "").split()), ""]
    if model in seen:
        yield from [f"The keys are those of `{seen[model]}`.", ""]
        return
    seen[model] = path
    yield from [_row("Key", "Type", "Default", "Meaning"), _row("---", "---", "---", "---")]
    for name, field in model.model_fields.items():
        yield _row(f"`{name}`", _field_type(field), _default(field), field.description or "Chooses this form.")
    yield ""
    for name, field in model.model_fields.items():
        inner = f"{path}.{name}" if path else name
        for found in _models(field.annotation):
            yield from _sections(found, inner, f"`{inner}`{_variant(found)}", seen)


def _field_type(field: FieldInfo) -> str:
    """The type with its bounds."""
    found = _type(field.annotation)
    if any(getattr(mark, "func", None) is one_or_more for mark in field.metadata):
        found = f"text or {found}"
    bounds = [f"{word} {value}" for name, word in _BOUNDS.items() if (value := _bound(field, name)) is not None]
    return ", ".join([found, *bounds])


_BOUNDS: Final = {"gt": "over", "ge": "at least", "le": "at most"}


def _bound(field: FieldInfo, name: str) -> object:
    return next((getattr(mark, name) for mark in field.metadata if hasattr(mark, name)), None)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        if get_origin(annotation) is not Literal:
            yield from _models(argument)


def _variant(model: type[BaseModel]) -> str:
    """What chooses this model among others at the same place: ", kind: static"."""
    for name in ("kind", "sink"):
        field = model.model_fields.get(name)
        if field is not None and len(get_args(field.annotation)) == 1:
            return f", {name}: {get_args(field.annotation)[0]}"
    return ""


_NAMES: Final = {str: "text", int: "integer", float: "number", bool: "true or false", Path: "path", Bind: "HOST:PORT"}


def _type(annotation: Any) -> str:
    """A type as an operator would say it."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is type(None):
        return "null"
    if origin is Annotated:
        return _type(arguments[0])
    if origin is Literal:
        return " or ".join(f"`{value}`" if value != "" else "empty" for value in arguments)
    if origin in {Union, types.UnionType}:
        return " or ".join(dict.fromkeys(_type(argument) for argument in arguments))
    if origin is tuple:
        return f"list of {_type(arguments[0])}"
    if origin is dict:
        return f"mapping of name to {_type(arguments[1])}"
    return _NAMES.get(annotation, "section")


def _default(field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        return "required"
    if field.default is None:
        return "null"
    if field.default == {}:
        return "see below"
    return f"`{_yaml(field.default)}`"


def _yaml(value: Any) -> str:
    """A default on one line, as it would stand in the file."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_yaml(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_yaml, value)) + "]"
    if isinstance(value, str):
        return f'"{value}"' if value in {"", "*"} else value
    return msgspec.json.encode(value).decode()


if __name__ == "__main__":
    from proxy.charting.schema import write as write_chart  # the chart's values take the same settings

    write(Path(__file__).resolve().parent.parent / "docs")
    write_chart(Path(__file__).resolve().parent.parent / "helm" / "sluicegate")
