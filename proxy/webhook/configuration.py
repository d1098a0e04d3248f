"""`webhook.yaml`: what the operator decides about injected pods. Pods choose among its profiles and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import Field, ValidationError, field_validator, model_validator

from policies.load import policy_files
from proxy.errors import ConfigurationError, Fault
from proxy.settings.base import BindAddress, FilePath, Name, Section, as_written
from proxy.settings.loading import faults
from proxy.settings.traffic import DirectEgress
from proxy.settings.yaml_document import parse
from proxy.webhook.names import USER

LARGEST_FLOOR: Final = 96 * 1024
"""Bytes of the floor's files, in all: they travel in the pod, in one variable of at most 128 KiB (execve(2))."""
_PLACEHOLDERS: Final = ("{namespace}", "{service_account}")


class Image(Section):
    """A container image by digest, or by tag."""

    name: str = Field(description="REPOSITORY@DIGEST or REPOSITORY:TAG.", min_length=1)
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = Field("IfNotPresent", description="imagePullPolicy.")


class ProjectedToken(Section):
    """A service-account token of its own audience, mounted in the sidecar alone, at the name it has in `tokens`."""

    audience: str = Field(description="Audience.", min_length=1)
    seconds: int = Field(600, ge=600, le=86400, description="Lifetime; Kubernetes renews it before its end.")


class Profile(Section):
    """One kind of pod."""

    namespaces: tuple[str, ...] = Field(
        ("*",), description="Namespaces that may choose it; `*` means all.", min_length=1
    )
    tenant: str = Field("{namespace}", description="Tenant; {namespace} and {service_account} are filled in.")
    agent: str = Field("{service_account}", description="Agent, likewise.")
    firewall: bool = Field(True, description="Close every other way out, by an init container with NET_ADMIN.")
    transparent: bool = Field(True, description="Serve clients that know of no proxy; needs the firewall.")
    direct: tuple[DirectEgress, ...] = Field((), description="Traffic that passes by the proxy, each with its reason.")
    policies: str = Field("sluicegate-policies", description="ConfigMap of the pod's namespace with its policies.")
    tokens: dict[Name, ProjectedToken] = Field(
        as_written({"vault": {"audience": "vault"}}), description="Projected tokens for the store and for identity."
    )
    placeholders: tuple[str, ...] = Field((), description="Providers whose SDKs get their dummy variables.")
    run_as_user: int = Field(10001, ge=1, description="UID of containers that name none; never the proxy's.")
    resources: dict[str, Any] = Field(
        as_written({"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "256Mi"}}),
        description="Of the sidecar.",
    )
    settings: dict[str, Any] = Field(
        as_written({}), description="Of sluicegate.yaml (`store`, `routes`, …), over what the webhook writes."
    )

    @field_validator("run_as_user")
    @classmethod
    def _not_the_proxys(cls, value: int) -> int:
        if value == USER:
            raise ValueError(f"must not be {USER}, the proxy's own user")
        return value

    @model_validator(mode="after")
    def _transparent_needs_the_firewall(self) -> Profile:
        if self.transparent and not self.firewall:
            raise ValueError("transparent needs firewall: nothing else redirects to it")
        if not self.tenant or not self.agent:
            raise ValueError("tenant and agent must not be empty")
        return self

    def open_to(self, namespace: str) -> bool:
        return "*" in self.namespaces or namespace in self.namespaces


class CertificateFiles(Section):
    """A certificate that somebody else renews, such as cert-manager; read again when it changes."""

    kind: Literal["files"] = "files"
    cert: FilePath = Field(description="Certificate chain, PEM.")
    key: FilePath = Field(description="Private key, PEM.")


class SelfManaged(Section):
    """A certificate of the webhook's own, kept in a Secret and renewed before its end."""

    kind: Literal["self_managed"]
    namespace: Name = Field(description="Namespace of the Secret and of the Service.")
    secret: Name = Field("sluicegate-webhook-tls", description="Secret, made when it is missing.")
    service: Name = Field(description="Service whose name the certificate bears.")
    configurations: tuple[str, ...] = Field(
        description="Webhook configurations whose caBundle is kept: `mutating/NAME`, `validating/NAME`.", min_length=1
    )


class WebhookSettings(Section):
    """The whole file."""

    bind: BindAddress = Field(as_written("0.0.0.0:8443"), description="HOST:PORT, TLS.")
    ops: BindAddress | None = Field(as_written("0.0.0.0:18490"), description="/healthz, /readyz and /metrics, plain.")
    tls: Annotated[CertificateFiles | SelfManaged, Field(discriminator="kind")] = Field(description="Certificate.")
    image: Image = Field(description="The proxy's image.")
    firewall_image: Image | None = Field(None, description="The image's `firewall` target, with nft; default: `image`.")
    floor: FilePath | None = Field(None, description="Folder of the operator's own policies, the same for every pod.")
    roots: FilePath | None = Field(
        None, description="Roots trusted beside the system's, PEM; in pods /run/sluicegate-config/roots.pem."
    )
    default_profile: str = Field("default", description="For pods that choose none.")
    profiles: dict[Name, Profile] = Field(as_written({"default": {}}), description="By name.", min_length=1)

    @model_validator(mode="after")
    def _default_exists(self) -> WebhookSettings:
        if self.default_profile not in self.profiles:
            raise ValueError(f"default_profile: there is no profile {self.default_profile!r}")
        return self


class Injection(NamedTuple):
    """What pods are injected with: the settings, the floor's files by name, and the roots, PEM."""

    settings: WebhookSettings
    floor: dict[str, str]
    roots: str = ""


def load_webhook(file: Path) -> Injection:
    """Read `webhook.yaml` and the floor. Raises ConfigurationError with every fault, each with its line."""
    try:
        document = parse(file.read_text("utf-8"), str(file))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError([Fault(str(file), 0, f"cannot be read: {error}")]) from None
    try:
        settings = WebhookSettings.model_validate(document.value, context={"folder": file.parent})
    except ValidationError as error:
        raise ConfigurationError(faults(error, document)) from None
    try:
        roots = settings.roots.read_text("ascii") if settings.roots is not None else ""
    except (OSError, UnicodeDecodeError):
        raise ConfigurationError([Fault(str(settings.roots), 0, "cannot be read as PEM certificates")]) from None
    return Injection(settings, _floor(settings.floor), roots)


def _floor(folder: Path | None) -> dict[str, str]:
    if folder is None:
        return {}
    files = {path.name: path.read_text("utf-8") for path in policy_files(folder, [])}
    if sum(len(text.encode()) for text in files.values()) > LARGEST_FLOOR:
        raise ConfigurationError([Fault(str(folder), 0, f"the floor is larger than {LARGEST_FLOOR} bytes")])
    return files


def filled(template: str, namespace: str, account: str) -> str:
    """A tenant's or agent's name out of its template."""
    for placeholder, value in zip(_PLACEHOLDERS, (namespace, account), strict=True):
        template = template.replace(placeholder, value)
    return template
