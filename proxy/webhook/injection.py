"""A pod in, the pod beside the proxy out, as a JSON Patch (RFC 6902). Pure: no clock, no network, no memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from proxy import __version__
from proxy.settings.base import NAME
from proxy.webhook.app_containers import beside_the_proxy
from proxy.webhook.configuration import Injection, Profile, filled
from proxy.webhook.names import INJECTED, PROFILE, Json, reserved
from proxy.webhook.pod_checks import refusals, token_volumes
from proxy.webhook.sidecar import init_containers, volumes

Dummies = Callable[[str], Mapping[str, str]]
"""A provider in; the variables that its SDKs want to see before they send anything out."""
_GRACE: Final = 60
"""Seconds between SIGTERM and the end of a pod that asks for none: running exchanges end in 25."""


class Refused(Exception):
    """The pod is not admitted; `args[0]` says why and what to change."""


def patch(pod: Json, namespace: str, injection: Injection, dummies: Dummies) -> list[Json]:
    """The operations that put the proxy beside the pod; none for a pod that has it already. Raises Refused."""
    wanted = injected(pod, namespace, injection, dummies)
    return [
        *_operations("/metadata", pod.get("metadata") or {}, wanted["metadata"]),
        *_operations("/spec", pod["spec"], wanted["spec"]),
    ]


def injected(pod: Json, namespace: str, injection: Injection, dummies: Dummies) -> Json:
    """The pod as it may run. Raises Refused with every reason why it may not."""
    if not isinstance(pod.get("spec"), dict) or not isinstance(pod["spec"].get("containers"), list):
        raise Refused("This is no pod: it has no spec with containers.")
    reasons = list(refusals(pod))
    if reasons:
        raise Refused(" ".join(reasons))
    name, profile = _profile(pod, namespace, injection)
    spec = dict(pod["spec"])
    account = str(spec.get("serviceAccountName") or "default")
    _check_names(profile, namespace, account)
    metadata = dict(pod.get("metadata") or {})
    metadata["annotations"] = {**(metadata.get("annotations") or {}), INJECTED: f"{__version__}/{name}"}
    _fill(spec, profile, init_containers(injection, profile, namespace, account), _variables(profile, dummies))
    return {**pod, "metadata": metadata, "spec": spec}


def _fill(spec: Json, profile: Profile, ours: list[Json], variables: Mapping[str, str]) -> None:
    tokens = token_volumes(spec)
    context = spec.get("securityContext") or {}

    def beside(containers: list[Json] | None) -> list[Json]:
        own = [container for container in containers or () if not reserved(container)]
        return [beside_the_proxy(container, context, profile, variables, tokens) for container in own]

    spec["initContainers"] = [*ours, *beside(spec.get("initContainers"))]
    spec["containers"] = beside(spec["containers"])
    kept = [volume for volume in spec.get("volumes") or () if not reserved(volume) and volume.get("name") not in tokens]
    spec["volumes"] = [*kept, *volumes(profile)]
    spec["automountServiceAccountToken"] = False
    spec["shareProcessNamespace"] = False
    spec.setdefault("terminationGracePeriodSeconds", _GRACE)


def _profile(pod: Json, namespace: str, injection: Injection) -> tuple[str, Profile]:
    settings = injection.settings
    name = ((pod.get("metadata") or {}).get("annotations") or {}).get(PROFILE, settings.default_profile)
    profile = settings.profiles.get(name)
    if profile is None or not profile.open_to(namespace):
        raise Refused(f"The profile {name!r} is not open to namespace {namespace!r}: choose another in {PROFILE}.")
    return name, profile


def _check_names(profile: Profile, namespace: str, account: str) -> None:
    for kind in ("tenant", "agent"):
        name = filled(getattr(profile, kind), namespace, account)
        if not NAME.fullmatch(name) or name in (".", ".."):
            raise Refused(f"The profile makes no valid {kind} of namespace {namespace!r} and account {account!r}.")


def _variables(profile: Profile, dummies: Dummies) -> dict[str, str]:
    found: dict[str, str] = {}
    for provider in profile.placeholders:
        found |= dummies(provider)
    return found


def _operations(place: str, before: Json, after: Json) -> list[Json]:
    """One operation for each field that differs."""
    return [
        {"op": "replace" if field in before else "add", "path": f"{place}/{field}", "value": value}
        for field, value in after.items()
        if field not in before or not _as_wanted(value, before[field])
    ]


def _as_wanted(wanted: Any, found: Any) -> bool:
    """Whether what is there is what is wanted, but for defaults that the API server has filled in since."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return wanted.keys() <= found.keys() and all(
            _as_wanted(wanted[key], value) if key in wanted else _is_default(key, value) for key, value in found.items()
        )
    if isinstance(wanted, list) and isinstance(found, list):
        return len(wanted) == len(found) and all(map(_as_wanted, wanted, found))
    return bool(wanted == found)


_DEFAULTS: Final[Mapping[str, object]] = {
    "apiVersion": "v1",
    "optional": False,
    "recursiveReadOnly": "Disabled",
    "initialDelaySeconds": 0,
}


def _is_default(key: str, value: object) -> bool:
    return key in _DEFAULTS and _DEFAULTS[key] == value
