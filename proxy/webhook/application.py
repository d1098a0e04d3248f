"""The webhook's HTTP side: /inject and /verify for pods, /policies for ConfigMaps, health beside them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from policies.facts import ProviderFacts
from proxy.webhook import review as reviews
from proxy.webhook.configuration import Injection
from proxy.webhook.injection import Dummies, Refused, patch
from proxy.webhook.names import Json
from proxy.webhook.policy_maps import faults

if TYPE_CHECKING:
    from aiohttp import web

log = logging.getLogger("sluicegate.webhook")
LARGEST: Final = 8 * 1024 * 1024
"""Bytes of a review: an object of etcd's largest size, old and new, escaped."""
Judge = Callable[[reviews.Review], Json]


class Webhook:
    """Judges reviews. `injection` may be replaced at any time; a review uses the one that it finds."""

    def __init__(self, injection: Injection, dummies: Dummies, providers: Mapping[str, ProviderFacts]) -> None:
        self.injection = injection
        self._dummies = dummies
        self._providers = providers

    def inject(self, review: reviews.Review) -> Json:
        """A pod that is made: changed so that the proxy stands beside it, or refused."""
        if not _makes_a_pod(review):
            return reviews.allowed(review)
        try:
            return reviews.allowed(review, self._patch(review))
        except Refused as refused:
            return _refused(review, str(refused))

    def verify(self, review: reviews.Review) -> Json:
        """A pod as it came out of every other webhook: refused when one of them has undone what matters."""
        if not _makes_a_pod(review):
            return reviews.allowed(review)
        try:
            changes = self._patch(review)
        except Refused as refused:
            return _refused(review, str(refused))
        if changes:
            places = ", ".join(sorted(change["path"] for change in changes))
            return _refused(review, f"Another webhook changed the pod after the proxy was put beside it ({places}).")
        return reviews.allowed(review)

    def policies(self, review: reviews.Review) -> Json:
        """A ConfigMap with policies that is written: refused when a pod could not load them."""
        if review.kind != "ConfigMap" or review.operation not in ("CREATE", "UPDATE"):
            return reviews.allowed(review)
        found = faults(review.object, self.injection.floor, self._providers)
        return _refused(review, "Policies are not right. " + "; ".join(found)) if found else reviews.allowed(review)

    def _patch(self, review: reviews.Review) -> list[Json]:
        return patch(review.object, review.namespace, self.injection, self._dummies)


def _makes_a_pod(review: reviews.Review) -> bool:
    return review.kind == "Pod" and review.operation == "CREATE" and not review.subresource


def _refused(review: reviews.Review, message: str) -> Json:
    log.info("refused", extra={"reason": message[:300]})
    return reviews.denied(review, message)


Count = Callable[[str, str], None]
"""Path and result of a review."""


def application(webhook: Webhook, count: Count) -> web.Application:
    """POST /inject, /verify and /policies. An error of our own is a 500: the API server then fails closed."""
    from aiohttp import web

    def answering(judge: Judge) -> Callable[[web.Request], object]:
        async def answer(request: web.Request) -> web.Response:
            try:
                review = reviews.read(await request.read())
            except reviews.BadReview as fault:
                count(request.path, "malformed")
                return web.Response(status=400, text=f"{fault}\n")
            try:
                found = await asyncio.to_thread(judge, review)
            except Exception:
                count(request.path, "failed")
                raise
            count(request.path, "allowed" if found["response"]["allowed"] else "refused")
            return web.Response(body=msgspec.json.encode(found), content_type="application/json")

        return answer

    app = web.Application(client_max_size=LARGEST)
    for path, judge in (("/inject", webhook.inject), ("/verify", webhook.verify), ("/policies", webhook.policies)):
        app.router.add_post(path, answering(judge))  # type: ignore[arg-type]
    return app
