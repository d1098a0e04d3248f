"""Pods as the API server hands them to a webhook, and patches applied as it applies them."""

from __future__ import annotations

import base64
import copy
import json
from pathlib import Path
from typing import Any

import yaml

from proxy.webhook.configuration import Injection, WebhookSettings
from proxy.webhook.injection import patch

Json = dict[str, Any]
_DUMMIES = {"slack": {"SLACK_BOT_TOKEN": "xoxb-dummy"}, "aws-s3": {"AWS_ACCESS_KEY_ID": "AKIADUMMY"}}
STORE = {
    "kind": "vault",
    "address": "https://vault.example:8200",
    "auth": {"kind": "kubernetes", "role": "agents", "token_file": "/var/run/secrets/sluicegate/vault"},
}
PROFILES: Json = {
    "default": {"settings": {"store": STORE}, "placeholders": ["slack", "aws-s3"]},
    "explicit": {"settings": {"store": STORE}, "firewall": False, "transparent": False, "namespaces": ["tools"]},
}
FLOOR = """\
apiVersion: sluicegate/v1
kind: EgressPolicy
metadata: {name: floor}
subjects: [{agent: "*"}]
deny: [{name: no-deletes, methods: [DELETE]}]
"""
DOCUMENT: Json = {
    "tls": {"kind": "files", "cert": "tls.crt", "key": "tls.key"},
    "image": {"name": "registry.example/sluicegate@sha256:" + "0" * 64},
    "profiles": PROFILES,
}


def dummies(provider: str) -> dict[str, str]:
    return _DUMMIES.get(provider, {})


def injection(**changes: Any) -> Injection:
    return Injection(WebhookSettings.model_validate({**DOCUMENT, **changes}), {"floor.yaml": FLOOR})


def pod(**spec: Any) -> Json:
    """A pod after the API server's own admission: the account's token is mounted."""
    token = {
        "name": "kube-api-access-x7k2p",
        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
        "readOnly": True,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "bot-", "labels": {"sluicegate.io/inject": "enabled"}},
        "spec": {
            "serviceAccountName": "bot",
            "terminationGracePeriodSeconds": 30,
            "containers": [{"name": "app", "image": "bot:1", "volumeMounts": [token]}],
            "volumes": [
                {
                    "name": "kube-api-access-x7k2p",
                    "projected": {"sources": [{"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}}]},
                }
            ],
            **spec,
        },
    }


def container(**fields: Any) -> Json:
    return {"name": "app", "image": "bot:1", **fields}


def annotated(given: Json, **annotations: str) -> Json:
    named = {f"sluicegate.io/{name}": value for name, value in annotations.items()}
    return {**given, "metadata": {**given["metadata"], "annotations": named}}


def applied(document: Json, operations: list[Json]) -> Json:
    """RFC 6902, as far as objects and `add` or `replace` go."""
    result = copy.deepcopy(document)
    for operation in operations:
        *parents, last = operation["path"].strip("/").split("/")
        target = result
        for parent in parents:
            target = target[parent]
        assert (last in target) == (operation["op"] == "replace"), operation
        target[last] = copy.deepcopy(operation["value"])
    return result


def inject(given: Json, namespace: str = "agents", with_: Injection | None = None) -> Json:
    return applied(given, patch(given, namespace, with_ or injection(), dummies))


def named(items: list[Json]) -> dict[str, Json]:
    return {item["name"]: item for item in items}


def files(injected: Json) -> dict[str, str]:
    """What the first init container writes."""
    (variable,) = named(injected["spec"]["initContainers"])["sluicegate-prepare"]["env"]
    found: dict[str, str] = json.loads(variable["value"])
    return found


def settings_of(injected: Json) -> Json:
    found: Json = yaml.safe_load(files(injected)["sluicegate.yaml"])
    return found


def review(
    given: Json, *, namespace: str = "agents", operation: str = "CREATE", kind: str = "Pod", **more: Any
) -> bytes:
    request = {
        "uid": "u-1", "kind": {"group": "", "version": "v1", "kind": kind}, "namespace": namespace,
        "operation": operation, "object": given, **more,
    }  # fmt: skip
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def operations_of(answer: Json) -> list[Json]:
    found: list[Json] = json.loads(base64.b64decode(answer["response"].get("patch", b"W10=")))
    return found


def write_configuration(folder: Path, **changes: Any) -> Path:
    (folder / "floor").mkdir(exist_ok=True)
    (folder / "floor" / "floor.yaml").write_text(FLOOR)
    file = folder / "webhook.yaml"
    file.write_text(yaml.safe_dump({**DOCUMENT, "floor": "./floor", **changes}))
    return file
