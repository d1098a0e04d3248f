"""Every value of the chart. Defaults are those of values.yaml, which a test compares."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from proxy.settings.base import Name, Section, as_written
from proxy.settings.identity import ServiceAccountRule
from proxy.webhook.configuration import Profile

Objects = tuple[dict[str, Any], ...]
Labels = dict[str, str]
Port = Annotated[int, Field(ge=1024, le=65535)]
PolicyFiles = dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\.ya?ml$")], dict[str, Any]]
_RESOURCES = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}


class ImageValues(Section):
    """A container image."""

    repository: str = Field("sluicegate", description="Repository.", min_length=1)
    tag: str = Field("", description="Tag; default: the chart's appVersion.")
    digest: str = Field("", description="`sha256:…`; wins over the tag, and is what production names.",
                        pattern=r"^(sha256:[0-9a-f]{64})?$")  # fmt: skip
    pullPolicy: Literal["Always", "IfNotPresent", "Never"] = Field("IfNotPresent", description="imagePullPolicy.")


class CertificateIssuer(Section):
    """cert-manager's issuer of the webhook's certificate."""

    kind: Literal["Issuer", "ClusterIssuer"] = Field("Issuer", description="Kind.")
    name: str = Field("", description="Name; default: a self-signed issuer that the chart makes.")


class CertManager(Section):
    """Who renews the webhook's certificate: cert-manager, or the webhook itself in a Secret."""

    enabled: bool = Field(False, description="Leave the certificate to cert-manager.")
    issuer: CertificateIssuer = Field(as_written({}), description="Issuer.")


class WebhookValues(Section):
    """The admission webhook that puts the proxy beside pods."""

    enabled: bool = Field(True, description="Install it.")
    replicas: int = Field(2, ge=1, description="Replicas, spread over nodes.")
    timeoutSeconds: int = Field(10, ge=1, le=30, description="How long the API server waits for it.")
    ignoredNamespaces: tuple[str, ...] = Field(("kube-system", "kube-node-lease"), description="Never injected.")
    certManager: CertManager = Field(as_written({}), description="Certificate.")
    defaultProfile: Name = Field("default", description="Profile of pods that choose none.")
    profiles: dict[Name, Profile] = Field(as_written({"default": {}}), description="By name.", min_length=1)
    floor: PolicyFiles = Field(as_written({}), description="The operator's policies, by file name, in every pod.")
    resources: dict[str, Any] = Field(as_written(_RESOURCES), description="Resources.")
    ephemeralContainers: bool = Field(
        True, description="ValidatingAdmissionPolicy for ephemeral containers; Kubernetes 1.30 or newer."
    )


class TlsValues(Section):
    """Certificate of the gateway's listeners."""

    secretName: str = Field("sluicegate-gateway-tls", description="Secret of type kubernetes.io/tls.", min_length=1)
    clientCa: bool = Field(False, description="Ask for client certificates; the Secret's ca.crt verifies them.")


class TokenReviewValues(Section):
    """How the gateway tells its callers: by their service-account tokens."""

    enabled: bool = Field(True, description="Ask the cluster; off: `settings.identity` says who calls.")
    issuer: str = Field("https://kubernetes.default.svc.cluster.local", description="The cluster's issuer.")
    audience: str = Field("sluicegate", description="Audience of the callers' projected tokens.", min_length=1)
    rules: tuple[ServiceAccountRule, ...] = Field(
        as_written([{"tenant": "{namespace}", "agent": "{name}"}]),
        description="Whom an account stands for.",
        min_length=1,
    )


class Autoscaling(Section):
    """HorizontalPodAutoscaler of the gateway."""

    enabled: bool = Field(True, description="Install it.")
    minReplicas: int = Field(2, ge=1, description="Least.")
    maxReplicas: int = Field(10, ge=1, description="Most.")
    cpu: int = Field(70, ge=1, le=100, description="Percent of the requested CPU that is aimed at.")


class Budget(Section):
    """PodDisruptionBudget of the gateway."""

    enabled: bool = Field(True, description="Install it.")
    minAvailable: int = Field(1, ge=0, description="Replicas that a drain leaves.")


class VaultToken(Section):
    """A projected token for Vault, at /var/run/secrets/sluicegate/vault."""

    enabled: bool = Field(True, description="Mount it.")
    audience: str = Field("vault", description="Audience.", min_length=1)
    expirationSeconds: int = Field(600, ge=600, description="Lifetime.")


class GatewayPorts(Section):
    """Ports of the gateway's pods and Service."""

    proxy: Port = Field(18400, description="Proxy listener, TLS.")
    baseUrl: Port = Field(18401, description="Base-URL listener, TLS.")
    ops: Port = Field(18490, description="/healthz /readyz /metrics.")


class GatewayValues(Section):
    """One egress tier that many pods share."""

    enabled: bool = Field(False, description="Install it.")
    replicas: int = Field(2, ge=1, description="Replicas, where `autoscaling` is off.")
    ports: GatewayPorts = Field(as_written({}), description="Ports.")
    tls: TlsValues = Field(as_written({}), description="Certificate.")
    caSecretName: str = Field(
        "sluicegate-gateway-ca",
        description="Secret of type kubernetes.io/tls with the interception authority that all replicas share.",
        min_length=1,
    )
    stateKeySecretName: str = Field(
        "",
        description="Secret with `state.key`, so that replicas know each other's cursors; empty: they do not.",
    )
    tokenReview: TokenReviewValues = Field(as_written({}), description="Identity.")
    vaultToken: VaultToken = Field(as_written({}), description="Token for the store.")
    policies: PolicyFiles = Field(as_written({}), description="Policies by file name.")
    floor: PolicyFiles = Field(as_written({}), description="The operator's floor by file name.")
    settings: dict[str, Any] = Field(
        as_written({"ledger": None}),
        description="Of sluicegate.yaml (`store`, `routes`, …), over what the chart writes.",
    )
    volatileLedger: bool = Field(
        False,
        description="Let an sqlite ledger stand on a volume that dies with the pod: calls may then be made twice.",
    )
    ledgerSecretName: str = Field(
        "",
        description="Secret for a postgres ledger, mounted at /etc/sluicegate-ledger: `password`, which the chart "
        "names as `password_file`, and `ca.crt`, which the URL names as sslrootcert.",
    )
    autoscaling: Autoscaling = Field(as_written({}), description="Scaling.")
    podDisruptionBudget: Budget = Field(as_written({}), description="Disruptions.")
    topologySpread: bool = Field(True, description="Spread replicas over zones and nodes.")
    resources: dict[str, Any] = Field(as_written(_RESOURCES), description="Resources.")
    terminationGracePeriodSeconds: int = Field(60, ge=30, description="For running exchanges to end.")


class PodMonitorValues(Section):
    """PodMonitor of the Prometheus operator, for injected pods, the gateway and the webhook."""

    enabled: bool = Field(False, description="Install it.")
    labels: Labels = Field(as_written({}), description="Labels that your Prometheus selects by.")
    interval: str = Field("30s", description="Between two scrapes.", pattern=r"^[0-9]+(ms|s|m)$")
    namespaces: tuple[str, ...] = Field((), description="Namespaces of injected pods; empty: all.")


class Installed(Section):
    """Whether something is installed, and with which labels."""

    enabled: bool = Field(False, description="Install it.")
    labels: Labels = Field(as_written({}), description="Labels that its reader selects by.")


class Monitoring(Section):
    """What observes the fleet."""

    podMonitor: PodMonitorValues = Field(as_written({}), description="Scraping.")
    rules: Installed = Field(as_written({}), description="PrometheusRule; each alert has a runbook.")
    dashboards: Installed = Field(
        as_written({"labels": {"grafana_dashboard": "1"}}), description="Two dashboards, as ConfigMaps for Grafana."
    )
    runbooks: str = Field("docs/runbooks", description="Where the runbooks are; alerts link there.")


class ContractValues(Section):
    """Nightly jobs: every way past the proxy is tried in an injected pod (`doctor --pod`), and providers are asked with
    the gateway's credentials whether they still answer as their files say (`contract`)."""

    enabled: bool = Field(False, description="Install them.")
    schedule: str = Field("17 3 * * *", description="When, as cron says it.", min_length=9)
    profile: Name = Field("default", description="Profile of the injected pod.")
    providers: tuple[Name, ...] = Field((), description="Providers to ask; needs the gateway.")
    tenant: Name | Literal[""] = Field("", description="Tenant whose credentials they are asked with.")
    agent: Name | Literal[""] = Field("", description="Agent in whose name.")


class ChartValues(Section):
    """All values."""

    nameOverride: str = Field("", description="In place of the chart's name.")
    fullnameOverride: str = Field("", description="In place of release and chart name.")
    image: ImageValues = Field(as_written({}), description="The proxy's image.")
    firewallImage: ImageValues = Field(
        as_written({"repository": "sluicegate-firewall"}), description="The image's `firewall` target, with nftables."
    )
    imagePullSecrets: Objects = Field((), description="For the webhook and the gateway.")
    roots: str = Field("", description="Roots trusted beside the system's, PEM; in every pod.")
    webhook: WebhookValues = Field(as_written({}), description="Injection.")
    gateway: GatewayValues = Field(as_written({}), description="Egress tier.")
    monitoring: Monitoring = Field(as_written({}), description="Observation.")
    contract: ContractValues = Field(as_written({}), description="Nightly proof.")
    podAnnotations: Labels = Field(as_written({}), description="On webhook and gateway pods.")
    podLabels: Labels = Field(as_written({}), description="On webhook and gateway pods.")
    nodeSelector: Labels = Field(as_written({}), description="Of webhook and gateway pods.")
    tolerations: Objects = Field((), description="Of webhook and gateway pods.")
    affinity: dict[str, Any] = Field(as_written({}), description="Of webhook and gateway pods.")
    priorityClassName: str = Field("", description="Of webhook and gateway pods.")
