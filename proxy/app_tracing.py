"""Tracing as the configuration wants it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from proxy import __version__
from proxy.hardening import read_private
from proxy.served import Served
from proxy.settings.tracing import Tracing

if TYPE_CHECKING:
    from proxy.audit.spans import Spans


def open_tracing(settings: Tracing) -> Spans:
    """The spans' way to the collector. Raises ConfigurationError when the token cannot be read."""
    from proxy.audit.spans import Spans, exporter

    token = read_private(settings.token_file).decode().strip() if settings.token_file else ""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    sender = exporter(settings.endpoint, headers, str(settings.ca_file) if settings.ca_file else None)
    return Spans(sender, settings.sample, settings.service_name, __version__)


def traced(spans: Spans) -> Callable[..., Served]:
    """What calls are made of."""
    from proxy.tracing import Traced

    return partial(Traced, spans=spans)
