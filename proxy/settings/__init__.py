"""The configuration: `load()` gives frozen, checked Settings. See docs/configuration.md."""

from proxy.settings.base import Bind
from proxy.settings.loading import load, settings_from
from proxy.settings.model import Settings

__all__ = ["Bind", "Settings", "load", "settings_from"]
