"""Reviews in, reviews out: pods, policies, and what is neither."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.catalog import Catalog
from proxy.rules import provider_facts
from proxy.webhook import review as reviews
from proxy.webhook.application import Webhook, application
from proxy.webhook.metrics import WebhookMetrics
from tests.webhook.pods import FLOOR, Json, applied, dummies, inject, injection, named, operations_of, pod, review

GOOD = """\
apiVersion: sluicegate/v1
kind: EgressPolicy
metadata: {name: bot}
subjects: [{agent: bot}]
allow: [{name: post, provider: slack, operations: [chat.postMessage]}]
"""


@pytest.fixture(scope="module")
def webhook() -> Webhook:
    return Webhook(injection(), dummies, provider_facts(Catalog.load(Catalog.builtin_dir(), ())))


def config_map(**data: str) -> Json:
    return {
        "kind": "ConfigMap",
        "metadata": {"name": "p"},
        "data": {f"{name}.yaml": text for name, text in data.items()},
    }


def judged(webhook: Webhook, given: Json, **more: Any) -> Json:
    answer = webhook.policies(reviews.read(review(given, kind="ConfigMap", **more)))
    found: Json = answer["response"]
    return found


def test_a_pod_is_answered_with_a_patch(webhook: Webhook) -> None:
    answer = webhook.inject(reviews.read(review(pod())))
    assert answer["apiVersion"] == "admission.k8s.io/v1"
    assert answer["response"]["uid"] == "u-1"
    assert answer["response"]["patchType"] == "JSONPatch"
    assert applied(pod(), operations_of(answer)) == inject(pod())


def test_a_dry_run_is_answered_the_same(webhook: Webhook) -> None:
    assert webhook.inject(reviews.read(review(pod(), dryRun=True))) == webhook.inject(reviews.read(review(pod())))


def test_a_refusal_is_a_sentence_that_kubectl_prints(webhook: Webhook) -> None:
    response = webhook.inject(reviews.read(review(pod(hostNetwork=True))))["response"]
    assert response["allowed"] is False
    assert response["status"]["code"] == 403
    assert response["status"]["message"].startswith("Remove hostNetwork: ")


@pytest.mark.parametrize(
    "more", [{"operation": "DELETE"}, {"operation": "UPDATE", "subResource": "status"}, {"kind": "Job"}]
)
def test_what_makes_no_pod_passes_unchanged(webhook: Webhook, more: Json) -> None:
    response = webhook.inject(reviews.read(review(pod(hostNetwork=True), **more)))["response"]
    assert response == {"uid": "u-1", "allowed": True}


def test_a_pod_that_another_webhook_changed_afterwards_is_refused(webhook: Webhook) -> None:
    good = inject(pod())
    assert webhook.verify(reviews.read(review(good)))["response"]["allowed"] is True
    for spoil in (
        lambda spec: spec["initContainers"].pop(1),
        lambda spec: named(spec["initContainers"])["sluicegate"].update(image="evil"),
        lambda spec: spec["containers"][0]["volumeMounts"].append({"name": "sluicegate-tokens", "mountPath": "/t"}),
        lambda spec: spec["containers"].append({"name": "mesh", "image": "m"}),
        lambda spec: spec.update(automountServiceAccountToken=True),
    ):
        bad = json.loads(json.dumps(good))
        spoil(bad["spec"])
        response = webhook.verify(reviews.read(review(bad)))["response"]
        assert response["allowed"] is False
        assert "Another webhook" in response["status"]["message"]
    assert webhook.verify(reviews.read(review(pod())))["response"]["allowed"] is False


def test_policies_that_pods_could_load_are_let_through(webhook: Webhook) -> None:
    assert judged(webhook, config_map(bot=GOOD)) == {"uid": "u-1", "allowed": True}
    assert judged(webhook, config_map())["allowed"] is True


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"bot": GOOD.replace("slack", "slakc")}, 'bot.yaml:5: the catalogue has no provider "slakc"; did you mean'),
        ({"bot": "allow: ["}, "bot.yaml:"),
        ({"bot": GOOD.replace("name: bot", "name: floor")}, "floor"),
        ({"bot": GOOD.replace("kind: E", "requires: [time-travel]\nkind: E")}, "bot.yaml:2: "),
    ],
)
def test_policies_that_they_could_not_are_refused_by_file_and_line(webhook: Webhook, data: Json, said: str) -> None:
    response = judged(webhook, config_map(**data))
    assert response["allowed"] is False
    assert said in response["status"]["message"]


def test_a_key_that_is_no_policy_file_is_refused(webhook: Webhook) -> None:
    for bad in (
        {"data": {"../x.yaml": GOOD}},
        {"data": {"notes.txt": "hello"}},
        {"binaryData": {"a.yaml": "AAAA"}},
    ):
        assert judged(webhook, bad)["allowed"] is False


def test_a_config_map_that_is_deleted_is_not_judged(webhook: Webhook) -> None:
    assert judged(webhook, config_map(bot="x"), operation="DELETE")["allowed"] is True


def test_the_published_fixture_is_read(webhook: Webhook, vectors: Path) -> None:
    body = (vectors / "k8s-testdata" / "admission.k8s.io.v1.AdmissionReview.json").read_bytes()
    found = reviews.read(body)
    assert found.uid == "uidValue"
    assert webhook.inject(found)["response"] == {"uid": "uidValue", "allowed": True}


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_no_body_makes_the_reading_fail_otherwise(body: bytes) -> None:
    try:
        reviews.read(body)
    except reviews.BadReview:
        pass


async def test_over_http_a_bad_body_is_400_and_nothing_else(webhook: Webhook, aiohttp_client: Any) -> None:
    metrics = WebhookMetrics(lambda: None)
    client = await aiohttp_client(application(webhook, metrics.count))
    for body in (b"", b"[]", b"{}", b'{"request": 1}', b"\xff", b"[" * 5000):
        reply = await client.post("/inject", data=body)
        assert reply.status == 400
    reply = await client.post("/policies", data=review(config_map(bot=FLOOR + "x"), kind="ConfigMap"))
    assert (await reply.json())["response"]["allowed"] is False
    assert (await client.get("/inject")).status == 405
    counted = metrics.render("")[0].decode()
    assert 'sluicegate_webhook_reviews_total{path="/inject",result="malformed"} 6.0' in counted
    assert 'sluicegate_webhook_reviews_total{path="/policies",result="refused"} 1.0' in counted
    assert 'sluicegate_webhook_reviews_total{path="/verify",result="failed"} 0.0' in counted


async def test_an_error_of_our_own_is_counted_and_fails_closed(
    webhook: Webhook, aiohttp_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> Json:
        raise ZeroDivisionError

    monkeypatch.setattr(webhook, "inject", broken)
    metrics = WebhookMetrics(lambda: None)
    client = await aiohttp_client(application(webhook, metrics.count))
    assert (await client.post("/inject", data=review(pod()))).status == 500
    assert 'path="/inject",result="failed"} 1.0' in metrics.render("")[0].decode()
