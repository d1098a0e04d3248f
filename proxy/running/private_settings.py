"""The configuration of a private instance: the operator's, on ports of its own and with an audit file (pure)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, TypeAlias

from proxy.errors import ConfigurationError, Fault
from proxy.settings import Settings
from proxy.settings.audit import FileAudit
from proxy.settings.loading import DEFAULT_FILE
from proxy.settings.traffic import Listener

AUDIT_FILE: Final = "run.jsonl"
Level: TypeAlias = Literal["debug", "info", "warning", "error"]


def user_file(environment: Mapping[str, str]) -> Path:
    """The user's own configuration file.

    Never one of the working directory: that may be a repository whose author is not to say what leaves. A relative
    XDG_CONFIG_HOME counts as unset, as the XDG base directory specification wants. Raises ConfigurationError.
    """
    file = _base(environment, "XDG_CONFIG_HOME", ".config") / "sluicegate" / DEFAULT_FILE
    if not file.exists():
        raise ConfigurationError(
            [Fault(str(file), 0, "not found; make it, or name a configuration with --config FILE")]
        )
    return file


def private_settings(settings: Settings, environment: Mapping[str, str]) -> Settings:
    """`settings` with a proxy and a base-URL listener on free loopback ports and nothing else that others can reach.

    Audit lines go to the configured file, else to one in the user's state directory: standard output is the command's.
    """
    listeners = tuple(Listener.model_validate({"kind": kind, "bind": "127.0.0.1:0"}) for kind in ("proxy", "base-url"))
    audit = settings.audit if isinstance(settings.audit, FileAudit) else _audit(environment)
    return settings.model_copy(update={"listeners": listeners, "ops": None, "control": None, "audit": audit})


def log_level(settings: Settings) -> Level:
    """The level that the file names; without one only warnings share the command's standard error."""
    return settings.log.level if "level" in settings.log.model_fields_set else "warning"


def _audit(environment: Mapping[str, str]) -> FileAudit:
    folder = _base(environment, "XDG_STATE_HOME", ".local/state") / "sluicegate"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return FileAudit.model_validate({"sink": "file", "path": folder / AUDIT_FILE}, context={"folder": folder})


def _base(environment: Mapping[str, str], variable: str, default: str) -> Path:
    named = environment.get(variable, "")
    return Path(named) if os.path.isabs(named) else Path(environment.get("HOME") or Path.home()) / default
