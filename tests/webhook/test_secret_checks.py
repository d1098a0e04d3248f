"""Secrets that look like a cloud's credentials are refused where the pod shows them."""

from __future__ import annotations

import pytest

from proxy.webhook.pod_checks import refusals
from tests.webhook.pods import Json, container, pod


def secret_variable(name: str, secret: str, key: str) -> Json:
    return {"env": [{"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}]}


def mounted(path: str) -> Json:
    return {"volumeMounts": [{"name": "home", "mountPath": path}]}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"envFrom": [{"secretRef": {"name": "aws-credentials"}}]}, "aws-credentials"),
        ({"envFrom": [{"secretRef": {"name": "prod-gcp-sa"}}]}, "prod-gcp-sa"),
        ({"envFrom": [{"secretRef": {"name": "azure.client.secret"}}]}, "azure.client.secret"),
        ({"envFrom": [{"prefix": "AWS_", "secretRef": {"name": "plain"}}]}, "AWS_"),
        ({"envFrom": [{"prefix": "AZURE_", "configMapRef": {"name": "plain"}}]}, "AZURE_"),
        (secret_variable("KEY", "plain", "AWS_SECRET_ACCESS_KEY"), "AWS_SECRET_ACCESS_KEY"),
        (secret_variable("KEY", "plain", "aws-secret-access-key"), "aws-secret-access-key"),
        (secret_variable("KEY", "google-service-key", "value"), "google-service-key"),
        (mounted("/root/.aws"), "SDK looks"),
        (mounted("/home/bot/.config/gcloud/"), "SDK looks"),
        (mounted("/home/bot/.azure/msal_token_cache.json"), "SDK looks"),
        (mounted("/home/bot/.kube"), "SDK looks"),
    ],
)
@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_a_container_with_a_clouds_credential_is_refused(fields: Json, said: str, kind: str) -> None:
    (found,) = refusals(pod(**{kind: [container(name="c", **fields)]}))
    assert said in found
    assert found.startswith("Container c must not ")


@pytest.mark.parametrize(
    "volume",
    [
        {"secret": {"secretName": "aws-creds"}},
        {"secret": {"secretName": "plain", "items": [{"key": "application_default_credentials.json", "path": "x"}]}},
        {"projected": {"sources": [{"secret": {"name": "gcp-key"}}]}},
        {"projected": {"sources": [{"secret": {"name": "p", "items": [{"key": "AZURE_CLIENT_SECRET", "path": "x"}]}}]}},
    ],
)
def test_so_is_a_volume_with_one(volume: Json) -> None:
    (found,) = refusals(pod(volumes=[{"name": "v", **volume}]))
    assert found.startswith("Remove the Secret from the volume v (")


@pytest.mark.parametrize(
    "fields",
    [
        {"envFrom": [{"secretRef": {"name": "database"}}, {"configMapRef": {"name": "aws-regions"}}]},
        {"envFrom": [{"prefix": "APP_", "secretRef": {"name": "bot-settings"}}]},
        secret_variable("DATABASE_PASSWORD", "postgres", "password"),
        secret_variable("AWS_SECRET_ACCESS_KEY", "plain", "AWS_SECRET_ACCESS_KEY"),
        mounted("/srv/aws"),
    ],
)
def test_other_secrets_pass_and_variables_that_are_removed_anyway(fields: Json) -> None:
    assert list(refusals(pod(containers=[container(**fields)]))) == []


@pytest.mark.parametrize(
    "name",
    ["s3-access-key", "s3.secret", "prod-google-sa", "google-bigquery-credentials", "AWS_BOT_KEY"],
)
def test_names_that_mean_a_clouds_identity_are_refused(name: str) -> None:
    (found,) = refusals(pod(containers=[container(envFrom=[{"secretRef": {"name": name}}])]))
    assert name in found


@pytest.mark.parametrize("name", ["s3-upload-key", "google-maps-key", "jaws-key", "s3-bucket"])
def test_names_of_a_brands_other_keys_pass(name: str) -> None:
    assert list(refusals(pod(containers=[container(envFrom=[{"secretRef": {"name": name}}])]))) == []


def test_a_volume_with_another_secret_passes() -> None:
    volumes = [{"name": "v", "secret": {"secretName": "postgres-tls"}}, {"name": "w", "emptyDir": {}}]
    assert list(refusals(pod(volumes=volumes))) == []
