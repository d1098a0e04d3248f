"""The `token_review` identity, wired to the cluster that it asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from proxy.cluster import Cluster, ClusterError
from proxy.identity.service_account import ServiceAccountRule
from proxy.identity.token_review import TokenReview
from proxy.settings.identity import TokenReviewIdentity

_PATH = "/apis/authentication.k8s.io/v1/tokenreviews"


def token_review(wanted: TokenReviewIdentity, rules: Sequence[ServiceAccountRule]) -> TokenReview:
    """The member of a chain. Raises ConfigurationError."""
    cluster = Cluster(wanted.address, wanted.token_file, wanted.ca_file)

    async def review(token: str) -> Mapping[str, Any]:
        question = {"token": token, "audiences": list(wanted.audience)}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": question}
        try:
            answer = await cluster.request("POST", _PATH, body)
        except ClusterError as error:
            raise OSError(str(error)) from None
        status = answer.get("status")
        return status if isinstance(status, dict) else {}

    return TokenReview(wanted.issuer, wanted.audience, rules, review, wanted.ttl)
