"""What the webhook counts, as Prometheus reads it: reviews by result, and when its certificate ends."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

PATHS: Final = ("/inject", "/verify", "/policies")
RESULTS: Final = ("allowed", "refused", "malformed", "failed")
"""`malformed`: no review could be read; `failed`: an error of our own, which the API server takes for a refusal."""


class WebhookMetrics(Collector):
    """`expires` tells the epoch second at which the served certificate ends; None while there is none."""

    def __init__(self, expires: Callable[[], float | None], wall_clock: Callable[[], float] = time.time) -> None:
        # From zero on: a counter that appears with its first failure would show no increase.
        self._reviews = Counter(dict.fromkeys(product(PATHS, RESULTS), 0))
        self._expires = expires
        self._wall_clock = wall_clock
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def count(self, path: str, result: str) -> None:
        """Note one review's end."""
        self._reviews[path, result] += 1

    def collect(self) -> Iterator[Metric]:
        reviews = CounterMetricFamily("sluicegate_webhook_reviews", "Reviews answered.", labels=("path", "result"))
        for labels, number in self._reviews.items():
            reviews.add_metric(labels, number)
        yield reviews
        expiry = GaugeMetricFamily(
            "sluicegate_certificate_expiry_seconds", "Until the end of a certificate of our own.", labels=("use",)
        )
        end = self._expires()
        if end is not None:
            expiry.add_metric(("webhook",), end - self._wall_clock())
        yield expiry

    def render(self, accept: str) -> tuple[bytes, str]:
        """(body, content type) for an Accept header, which may be empty."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type
