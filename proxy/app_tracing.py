"""Tracing as the configuration wants it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from proxy import __version__
from proxy.app_terms import shown_to
from proxy.served import Served
from proxy.settings.tracing import Tracing

if TYPE_CHECKING:
    from proxy.audit.spans import Spans


def open_tracing(settings: Tracing) -> Spans:
    """The spans' way to the collector. Raises ConfigurationError when the token cannot be read."""
    from proxy.audit.spans import Spans, exporter

    sender = exporter(settings.endpoint, shown_to(settings), str(settings.ca_file) if settings.ca_file else None)
    return Spans(sender, settings.sample, settings.service_name, __version__)


def traced(spans: Spans) -> Callable[..., Served]:
    """What calls are made of."""
    from proxy.tracing import Traced

    return partial(Traced, spans=spans)
