"""The chart renders offline in every scenario, is valid for Kubernetes, and keeps its promises."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from policies.load import load as load_policies
from proxy.catalog import Catalog
from proxy.charting.schema import readme, values_schema
from proxy.charting.values import ChartValues
from proxy.commands.contract import contract
from proxy.rules import provider_facts
from proxy.settings import settings_from
from proxy.settings.ledger import PostgresLedger
from proxy.webhook.configuration import Injection, WebhookSettings
from tests.webhook.pods import inject, named, pod, settings_of

helm = pytest.importorskip("helm_python")

REPOSITORY = Path(__file__).resolve().parents[2]
CHART = REPOSITORY / "helm" / "sluicegate"
SCENARIOS = sorted((CHART / "ci").glob("*.yaml"))
KUBERNETES = ("1.29", "1.31", "1.33", "1.35", "1.37")
CUSTOM = ("monitoring.coreos.com/", "cert-manager.io/")
"""Resources of others, whose schemas Kubernetes does not publish."""

Manifest = dict[str, Any]


def render(values: Manifest) -> list[Manifest]:
    with helm.Chart.load(str(CHART)) as chart:
        files = chart.render(values, name="sg", namespace="sluicegate")
    texts = [text for name, text in files.items() if not name.endswith(".txt")]
    return [manifest for text in texts for manifest in yaml.safe_load_all(text) if manifest]


def values_of(file: Path) -> Manifest:
    found: Manifest = yaml.safe_load(file.read_text()) or {}
    return found


_rendered: dict[Path, list[Manifest]] = {}


def scenario(file: Path) -> list[Manifest]:
    if file not in _rendered:
        _rendered[file] = render(values_of(file))
    return _rendered[file]


def of_kind(manifests: list[Manifest], kind: str) -> list[Manifest]:
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def by_name(manifests: list[Manifest], kind: str) -> dict[str, Manifest]:
    return {manifest["metadata"]["name"]: manifest for manifest in of_kind(manifests, kind)}


def webhook_settings(manifests: list[Manifest]) -> WebhookSettings:
    text = by_name(manifests, "ConfigMap")["sg-sluicegate-webhook"]["data"]["webhook.yaml"]
    return WebhookSettings.model_validate(yaml.safe_load(text), context={"folder": Path("/etc/sluicegate")})


def pod_specs(manifests: list[Manifest]) -> dict[str, Manifest]:
    found = {name: one["spec"]["template"]["spec"] for name, one in by_name(manifests, "Deployment").items()}
    found |= {name: one["spec"] for name, one in by_name(manifests, "Pod").items()}
    for name, one in by_name(manifests, "CronJob").items():
        found[name] = one["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    return found


each_scenario = pytest.mark.parametrize("file", SCENARIOS, ids=lambda file: file.stem)


def those(part: str, default: bool) -> pytest.MarkDecorator:
    """The scenarios that install a part of the chart."""
    files = [file for file in SCENARIOS if values_of(file).get(part, {}).get("enabled", default)]
    return pytest.mark.parametrize("file", files, ids=lambda file: file.stem)


with_webhook, with_gateway = those("webhook", True), those("gateway", False)


def test_helm_finds_no_fault() -> None:
    assert helm.lint(str(CHART))["errors"] == []


@each_scenario
@pytest.mark.parametrize("version", KUBERNETES)
def test_every_manifest_is_valid(file: Path, version: str) -> None:
    for manifest in scenario(file):
        policy = manifest["kind"].startswith("ValidatingAdmissionPolicy")
        if not manifest["apiVersion"].startswith(CUSTOM) and not (policy and version == "1.29"):
            kubernetes_validate.validate(manifest, version, strict=True)


@each_scenario
def test_a_summary_of_what_is_installed_is_as_expected(file: Path) -> None:
    """SLUICEGATE_GOLDEN=write writes the golden files anew; without it one that is absent is a failure."""
    golden = Path(__file__).parent / "golden" / f"{file.stem}.txt"
    lines = [f"{one['kind']}/{one['metadata'].get('namespace', '')}{one['metadata']['name']}" for one in scenario(file)]
    for name, spec in pod_specs(scenario(file)).items():
        for one in spec["containers"]:
            lines.append(f"{name}: {one['name']} {one['image']} {' '.join(one.get('args', []))[:60]}".split("\n")[0])
    found = "\n".join(sorted(lines)) + "\n"
    if os.environ.get("SLUICEGATE_GOLDEN") == "write":
        golden.write_text(found)
    assert golden.is_file(), f"{golden} is absent; SLUICEGATE_GOLDEN=write makes it"
    assert golden.read_text() == found


def test_no_golden_summary_is_left_of_a_scenario_that_is_gone() -> None:
    assert {one.stem for one in (Path(__file__).parent / "golden").iterdir()} == {one.stem for one in SCENARIOS}


@each_scenario
def test_every_container_is_restricted(file: Path) -> None:
    for spec in pod_specs(scenario(file)).values():
        for container in spec["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["runAsNonRoot"] is True
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert context["seccompProfile"] == {"type": "RuntimeDefault"}
            assert container["resources"]["limits"]["memory"]


@with_webhook
def test_the_webhook_takes_its_configuration_and_injects_a_valid_pod(file: Path) -> None:
    settings = webhook_settings(scenario(file))
    profile = settings.profiles[settings.default_profile]
    namespace = "team-a" if "*" not in profile.namespaces else "anything"
    injected = inject(pod(), namespace, Injection(settings, {}))
    kubernetes_validate.validate(injected, "1.33", strict=True)
    assert settings_from(yaml.safe_dump(settings_of(injected)), Path("/x/sluicegate.yaml")).ops is not None
    firewall = named(injected["spec"]["initContainers"]).get("sluicegate-firewall")
    assert (firewall is not None) == profile.firewall
    if firewall is not None:
        assert "sluicegate-firewall" in firewall["image"]


@with_webhook
def test_an_outage_stops_labelled_namespaces_and_pods_and_nothing_else(file: Path) -> None:
    manifests = scenario(file)
    hooks = [
        hook
        for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
        for one in of_kind(manifests, kind)
        for hook in one["webhooks"]
    ]
    assert len(hooks) == 5
    for hook in hooks:
        assert hook["failurePolicy"] == "Fail"
        assert hook["sideEffects"] == "None"
        selectors = json.dumps([hook.get("namespaceSelector"), hook.get("objectSelector")])
        assert '"sluicegate.io/inject"' in selectors or '"sluicegate.io/policies"' in selectors
        if "inject" in hook["name"] or "verify" in hook["name"]:
            by_namespace = {one["key"]: one for one in hook["namespaceSelector"]["matchExpressions"]}
            assert "kube-system" in by_namespace["kubernetes.io/metadata.name"]["values"]
            labelled = by_namespace["sluicegate.io/inject"]
            assert labelled == {"key": "sluicegate.io/inject", "operator": labelled["operator"], "values": ["enabled"]}
            assert labelled["operator"] == "In" or hook["objectSelector"]["matchLabels"]


@with_webhook
def test_the_webhook_may_do_to_the_cluster_what_its_certificate_needs(file: Path) -> None:
    manifests = scenario(file)
    rules = [rule for kind in ("Role", "ClusterRole") for one in of_kind(manifests, kind) for rule in one["rules"]]
    manages = webhook_settings(manifests).tls.kind == "self_managed"
    webhooks = [rule for rule in rules if rule["resources"] != ["tokenreviews"]]
    assert bool(webhooks) == manages
    for rule in webhooks:
        assert rule["verbs"] == ["create"] or rule["resourceNames"]
        assert not {"list", "watch", "delete", "*"} & set(rule["verbs"])
    assert bool(of_kind(manifests, "Certificate")) == (not manages)


@with_webhook
def test_ephemeral_containers_are_covered_where_the_cluster_can(file: Path) -> None:
    wanted = values_of(file).get("webhook", {}).get("ephemeralContainers", True)
    policies = of_kind(scenario(file), "ValidatingAdmissionPolicy")
    assert len(policies) == len(of_kind(scenario(file), "ValidatingAdmissionPolicyBinding")) == int(wanted)
    for policy in policies:
        (rule,) = policy["spec"]["matchConstraints"]["resourceRules"]
        assert rule["resources"] == ["pods/ephemeralcontainers"]


@with_gateway
def test_the_gateway_starts_with_its_configuration_and_policies(file: Path, tmp_path: Path) -> None:
    maps = by_name(scenario(file), "ConfigMap")
    settings = settings_from(maps["sg-sluicegate-gateway"]["data"]["sluicegate.yaml"], tmp_path / "sluicegate.yaml")
    assert all(listener.tls is not None for listener in settings.listeners)
    assert settings.ca.required, "replicas with authorities of their own could not be trusted"
    review = values_of(file)["gateway"].get("tokenReview", {}).get("enabled", True)
    assert (settings.identity.chain[0].kind == "token_review") == review
    for name, text in maps["sg-sluicegate-gateway-policies"]["data"].items():
        (tmp_path / name).write_text(text)
    loaded = load_policies([tmp_path], None, provider_facts(Catalog.load(Catalog.builtin_dir(), ())), "deny")
    assert loaded.size.rules > 0


def test_replicas_share_a_ledger_whose_password_comes_from_a_secret() -> None:
    manifests = scenario(CHART / "ci" / "gateway-postgres-values.yaml")
    text = by_name(manifests, "ConfigMap")["sg-sluicegate-gateway"]["data"]["sluicegate.yaml"]
    ledger = settings_from(text, Path("/etc/sluicegate/sluicegate.yaml")).ledger
    assert isinstance(ledger, PostgresLedger)
    assert ledger.password_file == Path("/etc/sluicegate-ledger/password")
    spec = pod_specs(manifests)["sg-sluicegate-gateway"]
    mount = named(spec["containers"][0]["volumeMounts"])["ledger"]
    assert (mount["mountPath"], mount["readOnly"]) == ("/etc/sluicegate-ledger", True)
    assert named(spec["volumes"])["ledger"]["secret"] == {"secretName": "egress-ledger", "defaultMode": 0o440}


def test_a_volatile_ledger_stands_only_where_the_values_say_so() -> None:
    volatile = changed(GATEWAY, "gateway.settings.ledger", {"kind": "sqlite"})
    with pytest.raises(helm.HelmError, match="dies with the pod"):
        render(volatile)
    assert render(changed(volatile, "gateway.volatileLedger", True))


def test_providers_are_asked_with_the_gateways_credentials() -> None:
    manifests = scenario(CHART / "ci" / "gateway-values.yaml")
    gateway = by_name(manifests, "Deployment")["sg-sluicegate-gateway"]["spec"]["template"]["spec"]
    jobs = {name: spec for name, spec in pod_specs(manifests).items() if "contract" in name}
    assert set(jobs) == {"sg-sluicegate-contract-slack", "sg-sluicegate-contract-github"}
    for spec in jobs.values():
        (ran,) = spec["containers"]
        assert contract.make_context("contract", ran["args"][1:]).params["tenant"] == "acme"
        assert ran["volumeMounts"] == gateway["containers"][0]["volumeMounts"]
        assert spec["volumes"] == gateway["volumes"]


@with_gateway
def test_the_gateway_scales_and_survives_a_drain(file: Path) -> None:
    manifests, wanted = scenario(file), values_of(file)["gateway"]
    deployment = by_name(manifests, "Deployment")["sg-sluicegate-gateway"]["spec"]
    scaled = wanted.get("autoscaling", {}).get("enabled", True)
    assert len(of_kind(manifests, "HorizontalPodAutoscaler")) == int(scaled)
    assert ("replicas" in deployment) != scaled
    assert "sg-sluicegate-gateway" in by_name(manifests, "PodDisruptionBudget")
    assert ("topologySpreadConstraints" in deployment["template"]["spec"]) == wanted.get("topologySpread", True)
    review = wanted.get("tokenReview", {}).get("enabled", True)
    roles = [one["rules"] for one in of_kind(manifests, "ClusterRole") if "gateway" in one["metadata"]["name"]]
    reviews = {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]}
    assert roles == ([[reviews]] if review else [])


def test_the_observers_are_what_the_files_hold() -> None:
    manifests = scenario(CHART / "ci" / "hardened-values.yaml")
    (rule,) = of_kind(manifests, "PrometheusRule")
    alerts = [one for group in rule["spec"]["groups"] for one in group["rules"] if "alert" in one]
    assert len(alerts) == 15
    for alert in alerts:
        runbook = alert["annotations"]["runbook_url"]
        assert runbook == f"https://wiki.example/sluicegate/{alert['alert']}.md"
        assert (REPOSITORY / "docs" / "runbooks" / f"{alert['alert']}.md").is_file()
    dashboards = [one for name, one in by_name(manifests, "ConfigMap").items() if "dashboard" in name]
    titles = {json.loads(text)["title"] for one in dashboards for text in one["data"].values()}
    assert titles == {"Sluicegate: fleet", "Sluicegate: credentials and providers"}


GATEWAY = values_of(CHART / "ci" / "gateway-values.yaml")


def changed(base: Manifest, path: str, value: Any) -> Manifest:
    found: Manifest = json.loads(json.dumps(base))
    *parents, last = path.split(".")
    target = found
    for parent in parents:
        target = target.setdefault(parent, {})
    target[last] = value
    return found


@pytest.mark.parametrize(
    ("webhook", "gateway", "parts"),
    [
        (True, False, {"injected", "webhook"}),
        (False, True, {"gateway"}),
        (True, True, {"injected", "webhook", "gateway"}),
    ],
)
def test_what_is_installed_is_scraped_and_nothing_else(webhook: bool, gateway: bool, parts: set[str]) -> None:
    wanted = changed(changed(GATEWAY, "webhook.enabled", webhook), "gateway.enabled", gateway)
    monitors = of_kind(render(changed(wanted, "monitoring.podMonitor.enabled", True)), "PodMonitor")
    assert {one["metadata"]["name"].removeprefix("sg-sluicegate-") for one in monitors} == parts


def test_names_of_nightly_jobs_fit_and_differ_under_a_long_release() -> None:
    providers = sorted(Catalog.load(Catalog.builtin_dir(), ()).outlines)
    wanted = changed(changed(GATEWAY, "webhook.enabled", True), "contract.providers", providers)
    jobs = of_kind(render(changed(wanted, "fullnameOverride", "r" * 60)), "CronJob")
    names = [job["metadata"]["name"] for job in jobs]
    assert len(set(names)) == len(names) == len(providers) + 1
    assert max(map(len, names)) <= 52  # CronJob v1 batch: 63 less the 11 that its Jobs' names add


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("replicas", 3, "replicas"),
        ("webhook.replicas", "three", "webhook.replicas"),
        ("image.digest", "sha256:short", "image.digest"),
        ("webhook.profiles.default.run_as_user", 0, "run_as_user"),
        ("webhook.profiles.default.colour", "red", "colour"),
        ("webhook.profiles.default.direct", [{"to": "10.0.0.0/8"}], "direct"),
        ("webhook.profiles.default.settings", {"store": {"kind": "memory"}}, "settings.store"),
        ("webhook.profiles.default.settings", {"limits": {"in_flight": 0}}, "settings.limits.in_flight"),
        ("webhook.defaultProfile", "other", 'webhook.defaultProfile: there is no profile "other"'),
        ("gateway.ports.proxy", 80, "gateway.ports.proxy"),
        ("gateway.settings.identity", [{"kind": "magic"}], "gateway.settings.identity"),
        ("gateway.settings", {"store": {"kind": "file"}}, "gateway.settings.ledger: sqlite stands on a volume"),
        ("gateway.settings.ledger", {"kind": "sqlite"}, "gateway.settings.ledger: sqlite stands on a volume"),
        ("gateway.ledgerSecretName", "pw", "gateway.ledgerSecretName: is of no use but with"),
        ("gateway.policies", {}, "gateway.policies: is empty"),
        ("contract.agent", "", "contract.tenant, contract.agent: are required"),
        ("gateway.tokenReview.enabled", False, "gateway.settings.identity: is required"),
    ],
)
def test_wrong_values_are_refused_with_path_and_sentence(path: str, value: Any, said: str) -> None:
    with pytest.raises(helm.HelmError) as refused:
        render(changed(GATEWAY, path, value))
    assert said in str(refused.value).replace("/", ".")


def test_the_schema_and_the_page_are_made_of_the_models() -> None:
    assert json.loads((CHART / "values.schema.json").read_text("utf-8")) == values_schema(), (
        "run: python -m proxy.documentation"
    )
    assert (CHART / "README.md").read_text("utf-8") == readme(), "run: python -m proxy.documentation"


def test_the_defaults_are_those_of_the_models() -> None:
    written = ChartValues.model_validate(yaml.safe_load((CHART / "values.yaml").read_text()))
    assert written == ChartValues.model_validate({})
