"""`sluicegate ca`, for the configured authority."""

from __future__ import annotations

from pathlib import Path

from proxy.ca_cli import AuthoritySettings, ca_group
from proxy.settings import load


def _settings_of(config: Path | None) -> AuthoritySettings:
    settings = load(config)
    return AuthoritySettings(settings.ca.dir, settings.ca.required, settings.upstream.extra_ca_file)


ca = ca_group(_settings_of)
