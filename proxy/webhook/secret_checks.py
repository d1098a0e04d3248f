"""Secrets that a pod's author hands to an application and that look like a cloud's credentials: each is refused.

Pure. A Secret's content is not in the pod, so names and keys are judged; what says nothing by its name passes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from proxy.webhook.app_containers import CLOUD_VARIABLES
from proxy.webhook.names import Json

_CLOUD: Final = "aws|gcp|gcloud|gke|azure|azuread|entra|aks|eks"
_BRAND: Final = "amazon|s3|google"
"""Of more than clouds: the key for a map, or of an upload, is none of these."""
_CREDENTIAL: Final = "cred|creds|credential|credentials|accesskey|sa|serviceaccount|keyfile"
_SECRET: Final = "key|keys|secret|token|login"
_NAMES: Final = re.compile(
    rf"(^|[-_.])(({_CLOUD})([-_.].*)?[-_.]({_CREDENTIAL}|{_SECRET})|({_BRAND})([-_.].*)?[-_.]({_CREDENTIAL})"
    rf"|({_BRAND})([-_.](access|account|cloud|secret|service))*[-_.]({_SECRET}))([-_.]|$)",
    re.IGNORECASE,
)
_KEYS: Final = frozenset(
    {"application_default_credentials.json", "azureprofile.json", "accesstokens.json", "kubeconfig"}
)
_FOLDERS: Final = re.compile(r"/(\.aws|\.azure|\.config/gcloud|\.kube)(/|$)")
_PREFIXES: Final = ("AWS_", "AZURE_", "GOOGLE_", "CLOUDSDK_")
_INSTEAD: Final = "an agent's calls get their credentials from the proxy"


def given_volumes(spec: Json) -> Iterator[str]:
    """A sentence for each volume with such a Secret, or with a part of it."""
    for volume in spec.get("volumes") or ():
        sources = [volume, *((volume.get("projected") or {}).get("sources") or ())]
        for secret in (source.get("secret") for source in sources):
            if secret and (found := _telling(secret)):
                yield f"Remove the Secret from the volume {volume.get('name')} ({found}): {_INSTEAD}."


def given_to(container: Json) -> Iterator[str]:
    """A sentence for each variable, set of variables and mount of the container that brings such a Secret."""
    who = f"Container {container.get('name')}"
    for one in container.get("env") or ():
        reference = (one.get("valueFrom") or {}).get("secretKeyRef") or {}
        # A variable under a cloud's own name is removed; here its value comes under another.
        if one.get("name") not in CLOUD_VARIABLES and (found := _telling({**reference, "items": [reference]})):
            yield f"{who} must not take {one.get('name')} from a cloud's credential ({found}): {_INSTEAD}."
    for one in container.get("envFrom") or ():
        reference = one.get("secretRef") or {}
        if found := _telling({**reference, "items": []}):
            yield f"{who} must not take its variables from a cloud's credential ({found}): {_INSTEAD}."
        elif str(one.get("prefix") or "").upper().startswith(_PREFIXES):
            yield f"{who} must not make variables that begin with {one['prefix']}: {_INSTEAD}."
    for mount in container.get("volumeMounts") or ():
        if _FOLDERS.search(str(mount.get("mountPath", ""))):
            yield f"{who} must not mount {mount.get('name')} where a cloud's SDK looks for credentials: {_INSTEAD}."


def _telling(secret: Json) -> str:
    """The name or key that looks like a cloud's credential; empty where none does."""
    names = (str(secret.get("secretName") or secret.get("name") or ""),)
    keys = [str(item.get("key") or "") for item in secret.get("items") or ()]
    found = [name for name in (*names, *keys) if _NAMES.search(name)]
    found += [key for key in keys if key.upper().replace("-", "_") in CLOUD_VARIABLES or key.lower() in _KEYS]
    return found[0] if found else ""
