"""What a pod may not have if the proxy is to be its only way out: each refusal is a sentence for its author.

Pure. What is merely left open is closed by the injection; what is asked for and cannot be granted is refused here.
Sources: the Pod Security Standards, profile `restricted`; the cloud providers' pages on workload identity.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from proxy.webhook.names import DOMAIN, INJECTED, OWN_CONTAINERS, PROFILE, USER, Json, reserved
from proxy.webhook.secret_checks import given_to, given_volumes

_HOST_WAYS: Final = {
    "hostNetwork": "it would share the node's network, which no firewall of the pod closes",
    "hostPID": "it would see the node's processes, the proxy's memory among them",
    "hostIPC": "it would share memory with the node's processes",
    "shareProcessNamespace": "its containers would see the proxy's process",
}
_OWN_ANNOTATIONS: Final = frozenset({PROFILE, INJECTED})
_SELINUX: Final = ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")
_INJECTED_TOKENS: Final = (
    "kube-api-access-",
    "aws-iam-token",
    "eks-pod-identity-token",
    "azure-identity-token",
    "gcp-ksa",
)
"""Volumes that other admission plugins add by themselves: those are removed, not refused."""


def refusals(pod: Json) -> Iterator[str]:
    """Every reason why the pod cannot be injected, one sentence each."""
    spec = pod.get("spec") or {}
    yield from _annotations(pod)
    yield from (f"Remove {field}: {why}." for field, why in _HOST_WAYS.items() if spec.get(field))
    if (spec.get("os") or {}).get("name") == "windows":
        yield "A Windows pod cannot be injected: the proxy runs on Linux."
    yield from _user("The pod", spec.get("securityContext") or {})
    yield from _volumes(spec)
    yield from given_volumes(spec)
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(kind) or ():
            if not (kind == "initContainers" and container.get("name") in OWN_CONTAINERS):
                yield from _container(container)
                yield from given_to(container)


def token_volumes(spec: Json) -> set[str]:
    """Volumes with a service-account token that another admission plugin has added."""
    return {str(volume.get("name")) for volume in spec.get("volumes") or () if _has_token(volume) and _injected(volume)}


def _annotations(pod: Json) -> Iterator[str]:
    metadata = pod.get("metadata") or {}
    for name in sorted(metadata.get("annotations") or {}):
        if name.startswith(DOMAIN) and name not in _OWN_ANNOTATIONS:
            yield f"Remove the annotation {name}: a pod chooses a profile ({PROFILE}) and nothing else."


def _volumes(spec: Json) -> Iterator[str]:
    for volume in spec.get("volumes") or ():
        name = volume.get("name")
        if reserved(volume):
            continue  # replaced by the webhook's own
        if "hostPath" in volume:
            yield f"Remove the volume {name}: a path of the node can lead to the proxy's tokens and authority."
        if _has_token(volume) and not _injected(volume):
            yield (
                f"Remove the service-account token from the volume {name}: an agent's calls get their credentials from "
                "the proxy."
            )


def _has_token(volume: Json) -> bool:
    return any("serviceAccountToken" in source for source in (volume.get("projected") or {}).get("sources") or ())


def _injected(volume: Json) -> bool:
    return str(volume.get("name", "")).startswith(_INJECTED_TOKENS)


def _container(container: Json) -> Iterator[str]:
    who = f"Container {container.get('name')}"
    context = container.get("securityContext") or {}
    if reserved(container):
        yield f"{who} bears a name of the webhook's: choose another."
    yield from _user(who, context)
    if context.get("privileged"):
        yield f"{who} must not be privileged."
    if context.get("allowPrivilegeEscalation"):
        yield f"{who} must not allow privilege escalation."
    added = (context.get("capabilities") or {}).get("add")
    if added:
        yield f"{who} must not add capabilities ({', '.join(map(str, added))}): all are dropped."
    if context.get("procMount") not in (None, "Default"):
        yield f"{who} must not unmask /proc."


def _user(who: str, context: Json) -> Iterator[str]:
    if context.get("runAsUser") == USER:
        yield f"{who} must not run as user {USER}: that is the proxy's, whom the firewall lets pass."
    if context.get("runAsUser") == 0 or context.get("runAsNonRoot") is False:
        yield f"{who} must not run as root: name another user in runAsUser."
    for field, confiner in (("seccompProfile", "seccomp"), ("appArmorProfile", "AppArmor")):
        if (context.get(field) or {}).get("type") == "Unconfined":
            yield f"{who} must not run unconfined by {confiner}."
    if (context.get("seLinuxOptions") or {}).get("type", "") not in _SELINUX:
        yield f"{who} must not choose an SELinux type of its own."
