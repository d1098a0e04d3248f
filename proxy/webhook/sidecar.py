"""The webhook's own containers and volumes, and the configuration that the sidecar runs with. Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import yaml

from proxy.webhook.configuration import Image, Injection, Profile, filled
from proxy.webhook.names import (
    BASE_PORT,
    CONFIG,
    CONFIG_DIR,
    CONFIG_FILE,
    FILES_VARIABLE,
    NAMES_PORT,
    OPS_PORT,
    POLICIES_DIR,
    PROXY_PORT,
    RUN,
    RUN_DIR,
    TENANT_POLICIES,
    TOKENS,
    TOKENS_DIR,
    TRANSPARENT_PORT,
    TRUST,
    TRUST_DIR,
    USER,
    Json,
)

_RESTRICTED: Final[Json] = {
    "runAsUser": USER,
    "runAsGroup": USER,
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
_NET_ADMIN: Final[Json] = {
    "runAsUser": 0,
    "runAsGroup": 0,
    "runAsNonRoot": False,
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
ROOTS: Final = "roots.pem"
_READ_ONLY: Final = {"name": CONFIG, "mountPath": CONFIG_DIR, "readOnly": True}


def configuration(injection: Injection, profile: Profile, namespace: str, account: str) -> dict[str, Any]:
    """The sidecar's sluicegate.yaml. The profile's own `settings` go over it: they are the operator's too."""
    tenant, agent = filled(profile.tenant, namespace, account), filled(profile.agent, namespace, account)
    return {
        "listeners": _listeners(profile),
        "ops": f"0.0.0.0:{OPS_PORT}",
        "control": f"unix:{RUN_DIR}/control/control.sock",
        "identity": [{"kind": "static", "tenant": tenant, "agent": agent}],
        "tenants": [tenant],
        "policies": {"dirs": [POLICIES_DIR], **({"floor": f"{CONFIG_DIR}/floor"} if injection.floor else {})},
        "ca": {"dir": f"{RUN_DIR}/ca"},
        "state": {"dir": f"{RUN_DIR}/state", "key_file": f"{RUN_DIR}/state.key", "durability": "memory"},
        "firewall": {"user": USER, "direct": [entry.model_dump(mode="json") for entry in profile.direct]},
        **({"upstream": {"extra_ca_file": f"{CONFIG_DIR}/{ROOTS}"}} if injection.roots else {}),
        **profile.settings,
    }


def _listeners(profile: Profile) -> list[Json]:
    listeners: list[Json] = [
        {"kind": "proxy", "bind": f"127.0.0.1:{PROXY_PORT}"},
        {"kind": "base-url", "bind": f"127.0.0.1:{BASE_PORT}"},
    ]
    for host in ("127.0.0.1", "[::1]") if profile.transparent else ():
        names = {"bind": f"{host}:{NAMES_PORT}"}
        listeners.append({"kind": "transparent", "bind": f"{host}:{TRANSPARENT_PORT}", "names": names})
    return listeners


def init_containers(injection: Injection, profile: Profile, namespace: str, account: str) -> list[Json]:
    """What runs before the pod's own containers, in order: files, firewall, the proxy itself."""
    settings = injection.settings
    found = [_prepare(injection, profile, namespace, account)]
    if profile.firewall:
        found.append(_firewall(settings.firewall_image or settings.image))
    return [*found, _proxy(settings.image, profile)]


def _base(name: str, image: Image, args: list[str], context: Json) -> Json:
    return {
        "name": name,
        "image": image.name,
        "imagePullPolicy": image.pull_policy,
        "args": args,
        "securityContext": context,
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }


def _prepare(injection: Injection, profile: Profile, namespace: str, account: str) -> Json:
    """Writes the configuration, which came in a variable since a pod cannot read another namespace's ConfigMaps."""
    files = {"sluicegate.yaml": yaml.safe_dump(configuration(injection, profile, namespace, account), sort_keys=False)}
    files |= {f"floor/{name}": text for name, text in injection.floor.items()}
    files |= {ROOTS: injection.roots} if injection.roots else {}
    return {
        **_base("sluicegate-prepare", injection.settings.image, ["prepare"], _RESTRICTED),
        "env": [{"name": FILES_VARIABLE, "value": msgspec.json.encode(files).decode()}],
        "resources": profile.resources,
        "volumeMounts": [
            {"name": CONFIG, "mountPath": CONFIG_DIR},
            {"name": RUN, "mountPath": RUN_DIR},
            {"name": TRUST, "mountPath": TRUST_DIR},
        ],
    }


def _firewall(image: Image) -> Json:
    args = ["firewall", "--apply", "--config", CONFIG_FILE]
    return {
        **_base("sluicegate-firewall", image, args, _NET_ADMIN),
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
        "volumeMounts": [_READ_ONLY],
    }


def _proxy(image: Image, profile: Profile) -> Json:
    mounts: list[Json] = [
        _READ_ONLY,
        {"name": RUN, "mountPath": RUN_DIR},
        {"name": TENANT_POLICIES, "mountPath": POLICIES_DIR, "readOnly": True},
    ]
    if profile.tokens:
        mounts.append({"name": TOKENS, "mountPath": TOKENS_DIR, "readOnly": True})
    return {
        **_base("sluicegate", image, ["serve", "--config", CONFIG_FILE], _RESTRICTED),
        "restartPolicy": "Always",
        "ports": [{"name": "sluicegate-ops", "containerPort": OPS_PORT, "protocol": "TCP"}],
        "startupProbe": _probe("/readyz", 1, 60),
        "readinessProbe": _probe("/readyz", 5, 3),
        "livenessProbe": _probe("/healthz", 10, 3),
        "resources": profile.resources,
        "volumeMounts": mounts,
    }


def _probe(path: str, period: int, failures: int) -> Json:
    return {
        "httpGet": {"path": path, "port": OPS_PORT, "scheme": "HTTP"},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "successThreshold": 1,
        "failureThreshold": failures,
    }


def volumes(profile: Profile) -> list[Json]:
    """The pod's own memory for keys and configuration, the tenant's policies, the sidecar's tokens."""
    found: list[Json] = [
        {"name": CONFIG, "emptyDir": {"medium": "Memory", "sizeLimit": "4Mi"}},
        {"name": RUN, "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}},
        {"name": TRUST, "emptyDir": {"medium": "Memory", "sizeLimit": "4Mi"}},
        {"name": TENANT_POLICIES, "configMap": {"name": profile.policies, "defaultMode": 0o444, "optional": True}},
    ]
    if profile.tokens:
        found.append({"name": TOKENS, "projected": {"defaultMode": 0o444, "sources": _tokens(profile)}})
    return found


def _tokens(profile: Profile) -> list[Json]:
    return [
        {"serviceAccountToken": {"audience": token.audience, "expirationSeconds": token.seconds, "path": name}}
        for name, token in profile.tokens.items()
    ]
