"""Names, places and numbers that the injected pod is made of."""

from __future__ import annotations

from typing import Any, Final

Json = dict[str, Any]
"""A Kubernetes object as its JSON."""

DOMAIN: Final = "sluicegate.io/"
PROFILE: Final = DOMAIN + "profile"
"""The one annotation that a pod may choose."""
INJECTED: Final = DOMAIN + "injected"
"""Written by the webhook: version and profile."""

RESERVED: Final = "sluicegate"
"""Containers and volumes whose names begin like this are the webhook's."""
USER: Final = 64100

OWN_CONTAINERS: Final = frozenset({"sluicegate-prepare", "sluicegate-firewall", "sluicegate"})

CONFIG, RUN, TRUST, TOKENS, TENANT_POLICIES = (
    "sluicegate-config",
    "sluicegate-run",
    "sluicegate-trust",
    "sluicegate-tokens",
    "sluicegate-policies",
)
CONFIG_DIR: Final = "/run/sluicegate-config"
RUN_DIR: Final = "/run/sluicegate"
TRUST_DIR: Final = "/run/sluicegate-trust"
TOKENS_DIR: Final = "/var/run/secrets/sluicegate"
POLICIES_DIR: Final = "/etc/sluicegate-policies"
CONFIG_FILE: Final = f"{CONFIG_DIR}/sluicegate.yaml"
FILES_VARIABLE: Final = "SLUICEGATE_FILES"

PROXY_PORT, BASE_PORT, TRANSPARENT_PORT, NAMES_PORT, OPS_PORT = 18400, 18401, 18403, 18453, 18490


def reserved(named: Json) -> bool:
    """Whether a container, volume or mount bears one of the webhook's names."""
    return str(named.get("name", "")).startswith(RESERVED)
