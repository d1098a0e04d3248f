"""Profiles checked whole: what a pod would be given has to be a configuration that the proxy starts with."""

from __future__ import annotations

from pathlib import Path

import yaml

from proxy.catalog import Catalog
from proxy.errors import ConfigurationError, Fault
from proxy.rules import provider_facts
from proxy.settings import settings_from
from proxy.webhook.configuration import Injection, load_webhook
from proxy.webhook.names import CONFIG_DIR
from proxy.webhook.policy_maps import faults
from proxy.webhook.sidecar import configuration


def load_checked(file: Path) -> Injection:
    """As load_webhook, and every profile's configuration, the floor and the placeholders judged.

    Raises ConfigurationError naming profile and setting, or the floor's file and line.
    """
    injection = load_webhook(file)
    catalog = Catalog.load(Catalog.builtin_dir(), ())
    found = [Fault(str(file), 0, message) for message in _profile_faults(injection, catalog)]
    found += [
        Fault(str(file), 0, f"floor: {message}") for message in faults({}, injection.floor, provider_facts(catalog))
    ]
    if found:
        raise ConfigurationError(found)
    return injection


def _profile_faults(injection: Injection, catalog: Catalog) -> list[str]:
    found = []
    for name, profile in injection.settings.profiles.items():
        text = yaml.safe_dump(configuration(injection, profile, "namespace", "account"))
        try:
            settings_from(text, Path(CONFIG_DIR) / "sluicegate.yaml")
        except ConfigurationError as error:
            found += [f"profiles.{name}.settings: {fault.message}" for fault in error.faults]
        unknown = [provider for provider in profile.placeholders if provider not in catalog.outlines]
        found += [f"profiles.{name}.placeholders: there is no provider {provider!r}" for provider in unknown]
    return found
