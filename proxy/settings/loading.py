"""Find, read and check the configuration file. No other module reads it or the process environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from proxy.errors import ConfigurationError, Fault
from proxy.settings.model import Settings
from proxy.settings.yaml_document import YamlDocument, parse

VARIABLE = "SLUICEGATE_CONFIG"
DEFAULT_FILE = "sluicegate.yaml"


def load(path: Path | str | None = None, environment: Mapping[str, str] | None = None) -> Settings:
    """Settings from `path`, else from $SLUICEGATE_CONFIG, else from ./sluicegate.yaml.

    Raises ConfigurationError with every fault of the file, each with its line.
    """
    file = _locate(path, os.environ if environment is None else environment)
    return settings_from(_read(file), file)


def settings_from(text: str, file: Path) -> Settings:
    """Settings from the text of `file`, which names the faults and the folder that relative paths start from."""
    document = parse(text, str(file))
    if not isinstance(document.value, dict):
        raise ConfigurationError([Fault(str(file), 0, "must be a mapping of settings, starting with identity:")])
    try:
        settings = Settings.model_validate(document.value, context={"folder": file.parent})
    except ValidationError as error:
        raise ConfigurationError(faults(error, document)) from None
    settings._document = document
    return settings


def faults(error: ValidationError, document: YamlDocument) -> list[Fault]:
    """One fault for each pydantic error, in the order of the file's lines."""
    details = error.errors(include_url=False, include_context=True, include_input=False)
    found = [
        Fault(document.file, document.line(detail["loc"]), f"{_dotted(detail)}: {_message(detail)}")
        for detail in details
        if not _follows_from_another(detail, details)
    ]
    return sorted(found, key=lambda fault: fault.line)


def _locate(path: Path | str | None, environment: Mapping[str, str]) -> Path:
    if path is not None:
        return Path(path)
    if environment.get(VARIABLE):
        return Path(environment[VARIABLE])
    if Path(DEFAULT_FILE).exists():
        return Path(DEFAULT_FILE)
    message = f"not found; name a configuration with --config FILE or ${VARIABLE}"
    raise ConfigurationError([Fault(DEFAULT_FILE, 0, message)])


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except OSError as error:
        raise ConfigurationError([Fault(str(file), 0, f"cannot be read: {error.strerror}")]) from None
    except UnicodeDecodeError:
        raise ConfigurationError([Fault(str(file), 0, "is not UTF-8 text")]) from None


def _follows_from_another(detail: ErrorDetails, details: list[ErrorDetails]) -> bool:
    """A list is also called too short when its only items are themselves at fault."""
    place = detail["loc"]
    return detail["type"] == "too_short" and any(
        other["loc"][: len(place)] == place and other is not detail for other in details
    )


def _dotted(detail: ErrorDetails) -> str:
    return ".".join(str(step) for step in detail["loc"]) or "configuration"


def _message(detail: ErrorDetails) -> str:
    if detail["type"] == "extra_forbidden":
        return "no such setting; see docs/configuration.md"
    if detail["type"] == "missing":
        return "is required"
    if detail["type"] == "too_short":
        return "needs at least one"
    return detail["msg"].removeprefix("Value error, ").removeprefix("Input ")
