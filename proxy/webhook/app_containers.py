"""An application's container as it may run beside the proxy: confined, without credentials, told where the proxy is.

Pure, and of the same effect when applied to its own result.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from proxy.running.environment import NO_PROXY, REPLACING, java_options
from proxy.webhook.configuration import Profile
from proxy.webhook.names import BASE_PORT, PROXY_PORT, TRUST, TRUST_DIR, Json, reserved

CLOUD_VARIABLES: Final = frozenset({
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_ROLE_ARN",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_CONFIG_FILE",
    "AWS_PROFILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_CREDENTIALS",
    "GOOGLE_OAUTH_ACCESS_TOKEN",
    "CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE",
    "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE",
    "AZURE_CLIENT_ID",
    "AZURE_CLIENT_SECRET",
    "AZURE_CLIENT_CERTIFICATE_PATH",
    "AZURE_TENANT_ID",
    "AZURE_FEDERATED_TOKEN_FILE",
    "AZURE_AUTHORITY_HOST",
    "IDENTITY_ENDPOINT",
    "IDENTITY_HEADER",
    "MSI_ENDPOINT",
    "MSI_SECRET",
    "VAULT_TOKEN",
    "KUBECONFIG",
})  # fmt: skip
"""Variables by which SDKs find a cloud's, a cluster's or a vault's credentials."""
_TOKEN_PLACES: Final = (
    "/var/run/secrets/kubernetes.io/",
    "/var/run/secrets/eks.amazonaws.com/",
    "/var/run/secrets/pods.eks.amazonaws.com/",
    "/var/run/secrets/azure/",
    "/var/run/secrets/sts.googleapis.com/",
)
_OTHER_PROXIES: Final = frozenset({"all_proxy", "ftp_proxy", "grpc_proxy", "no_grpc_proxy", "npm_config_proxy"})
_JAVA: Final = "JAVA_TOOL_OPTIONS"
BUNDLE, AUTHORITY, JAVA_STORE = f"{TRUST_DIR}/bundle.pem", f"{TRUST_DIR}/ca.pem", f"{TRUST_DIR}/truststore.p12"


def beside_the_proxy(
    container: Json, pod_context: Json, profile: Profile, dummies: Mapping[str, str], tokens: Collection[str]
) -> Json:
    """The container confined, and with the variables and certificates of clients of the proxy.

    `tokens` are the names of volumes that hold a service-account token.
    """
    found = dict(container)
    found["securityContext"] = _confined(container.get("securityContext") or {}, pod_context, profile)
    found["env"] = _environment(container.get("env") or [], dummies)
    found["volumeMounts"] = _mounts(container.get("volumeMounts") or [], tokens)
    return found


def _confined(context: Json, pod_context: Json, profile: Profile) -> Json:
    """What the restricted profile of the Pod Security Standards asks for, where the container leaves it open."""
    user = context.get("runAsUser", pod_context.get("runAsUser", profile.run_as_user))
    capabilities = {**(context.get("capabilities") or {}), "drop": ["ALL"]}
    return {
        **context,
        "runAsUser": user,
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "capabilities": capabilities,
        "seccompProfile": context.get("seccompProfile") or {"type": "RuntimeDefault"},
    }


def _environment(written: list[Json], dummies: Mapping[str, str]) -> list[Json]:
    ours = client_variables()
    java = next((one.get("value", "") for one in written if one.get("name") == _JAVA and "valueFrom" not in one), "")
    placed = _listed(dummies)
    kept = [one for one in written if one not in placed and not _replaced(str(one.get("name")), ours)]
    named = {str(one.get("name")) for one in kept}
    added = {name: value for name, value in dummies.items() if name not in named}
    return [*kept, *_listed({**added, **ours, _JAVA: _java(java)})]


def _replaced(name: str, ours: Mapping[str, str]) -> bool:
    return name in ours or name == _JAVA or name in CLOUD_VARIABLES or name.lower() in _OTHER_PROXIES


def _java(written: str) -> str:
    """Our options behind those of the container; written by us before, they stand there once."""
    options = list(java_options(f"127.0.0.1:{PROXY_PORT}", Path(JAVA_STORE)))
    kept = written.removesuffix(" ".join(options)).rstrip()
    return " ".join(filter(None, [kept, *options]))


def client_variables() -> dict[str, str]:
    """What HTTP clients read to find the proxy and to trust its certificates, in both spellings."""
    proxy = f"http://127.0.0.1:{PROXY_PORT}"
    return {
        **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), proxy),
        **dict.fromkeys(("NO_PROXY", "no_proxy"), NO_PROXY),
        **dict.fromkeys(REPLACING, BUNDLE),
        "NODE_EXTRA_CA_CERTS": AUTHORITY,
        "NODE_USE_ENV_PROXY": "1",
        "SLUICEGATE_BASE_URL": f"http://127.0.0.1:{BASE_PORT}",
    }


def _listed(variables: Mapping[str, str]) -> list[Json]:
    return [{"name": name, "value": value} for name, value in variables.items()]


def _mounts(written: list[Json], tokens: Collection[str]) -> list[Json]:
    kept = [
        mount
        for mount in written
        if not reserved(mount)
        and mount.get("name") not in tokens
        and not f"{mount.get('mountPath', '')}/".startswith(_TOKEN_PLACES)
    ]
    return [*kept, {"name": TRUST, "mountPath": TRUST_DIR, "readOnly": True}]
