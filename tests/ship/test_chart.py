"""The chart renders offline in every scenario, is valid for Kubernetes, and keeps its promises about the pod."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

helm = pytest.importorskip("helm_python")

REPOSITORY = Path(__file__).resolve().parents[2]
CHART = REPOSITORY / "helm" / "sluicegate"
SCENARIOS = sorted((CHART / "ci").glob("*.yaml"))
KUBERNETES = ("1.29", "1.33")
PROXY_USER = 64100

Manifest = dict[str, Any]


def render(values: Manifest) -> list[Manifest]:
    with helm.Chart.load(str(CHART)) as chart:
        files = chart.render(values, name="bot", namespace="agents")
    texts = [text for name, text in files.items() if not name.endswith(".txt")]
    return [manifest for text in texts for manifest in yaml.safe_load_all(text) if manifest]


def scenario(file: Path) -> list[Manifest]:
    return render(yaml.safe_load(file.read_text()) or {})


def of_kind(manifests: list[Manifest], kind: str) -> list[Manifest]:
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def pod(manifests: list[Manifest]) -> Manifest:
    (deployment,) = of_kind(manifests, "Deployment")
    spec: Manifest = deployment["spec"]["template"]["spec"]
    return spec


def containers(spec: Manifest) -> dict[str, Manifest]:
    return {container["name"]: container for container in spec["initContainers"] + spec["containers"]}


def mounts(container: Manifest) -> set[str]:
    return {mount["name"] for mount in container["volumeMounts"]}


def configuration(manifests: list[Manifest]) -> Manifest:
    texts = [found["data"].get("sluicegate.yaml") for found in of_kind(manifests, "ConfigMap")]
    settings: Manifest = yaml.safe_load(next(filter(None, texts)))
    return settings


each_scenario = pytest.mark.parametrize("file", SCENARIOS, ids=lambda file: file.stem)


def test_helm_finds_no_fault() -> None:
    assert helm.lint(str(CHART))["errors"] == []


@each_scenario
@pytest.mark.parametrize("version", KUBERNETES)
def test_every_manifest_is_valid(file: Path, version: str) -> None:
    for manifest in scenario(file):
        kubernetes_validate.validate(manifest, version, strict=True)


@each_scenario
def test_the_proxy_is_a_native_sidecar_that_is_ready_before_the_agent_starts(file: Path) -> None:
    first, *_ = pod(scenario(file))["initContainers"]
    assert first["name"] == "sluicegate"
    assert first["restartPolicy"] == "Always"
    assert first["startupProbe"]["httpGet"] == {"path": "/readyz", "port": "ops"}


@each_scenario
def test_every_container_is_restricted(file: Path) -> None:
    spec = pod(scenario(file))
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["automountServiceAccountToken"] is False
    for container in containers(spec).values():
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}


@each_scenario
def test_the_agent_sees_neither_the_authoritys_key_nor_the_token_for_vault(file: Path) -> None:
    spec = pod(scenario(file))
    app, proxy = containers(spec)["app"], containers(spec)["sluicegate"]
    assert mounts(app) == {"trust", "tmp"}
    assert app["securityContext"]["runAsUser"] != proxy["securityContext"]["runAsUser"] == PROXY_USER
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert volumes["run"]["emptyDir"]["medium"] == "Memory"


@each_scenario
def test_the_agents_clients_find_the_proxy_and_trust_it(file: Path) -> None:
    manifests = scenario(file)
    environment = {entry["name"]: entry.get("value") for entry in containers(pod(manifests))["app"]["env"]}
    (proxy, base_url) = configuration(manifests)["listeners"]
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        assert environment[name] == f"http://{proxy['bind']}"
    assert "127.0.0.1" in str(environment["NO_PROXY"])
    assert environment["SSL_CERT_FILE"] == environment["REQUESTS_CA_BUNDLE"]
    assert base_url["kind"] == "base-url"


@each_scenario
def test_only_the_ops_listener_leaves_the_loopback(file: Path) -> None:
    settings = configuration(scenario(file))
    assert all(listener["bind"].startswith("127.0.0.1:") for listener in settings["listeners"])
    assert settings["ops"].startswith("0.0.0.0:")


@each_scenario
def test_no_mount_lies_inside_a_read_only_one(file: Path) -> None:
    # The container runtime could not make the inner mount's folder, and the pod would not start.
    for container in containers(pod(scenario(file))).values():
        places = {mount["mountPath"]: mount.get("readOnly", False) for mount in container["volumeMounts"]}
        fixed = [place for place, read_only in places.items() if read_only]
        assert not [inner for inner in places for outer in fixed if inner.startswith(outer + "/")]


def test_the_projected_token_is_for_vault_alone() -> None:
    spec = pod(render({}))
    (volume,) = [volume for volume in spec["volumes"] if volume["name"] == "vault-token"]
    (source,) = volume["projected"]["sources"]
    assert source["serviceAccountToken"] == {"audience": "vault", "expirationSeconds": 600, "path": "token"}
    assert [name for name, found in containers(spec).items() if "vault-token" in mounts(found)] == ["sluicegate"]


def test_the_token_file_of_the_configuration_is_where_the_volume_is_mounted() -> None:
    manifests = render({})
    (mount,) = [
        mount for mount in containers(pod(manifests))["sluicegate"]["volumeMounts"] if mount["name"] == "vault-token"
    ]
    assert configuration(manifests)["store"]["auth"]["token_file"] == f"{mount['mountPath']}/token"


OTHER_POLICY = {"apiVersion": "sluicegate/v1", "kind": "EgressPolicy", "metadata": {"name": "more"}, "subjects": []}


@pytest.mark.parametrize(
    "change", [{"config": {"log": {"level": "debug"}}}, {"policies": {"more.yaml": OTHER_POLICY}}], ids=list
)
def test_a_changed_configuration_or_policy_starts_new_pods(change: Manifest) -> None:
    def checksum(values: Manifest) -> str:
        (deployment,) = of_kind(render(values), "Deployment")
        return str(deployment["spec"]["template"]["metadata"]["annotations"]["checksum/config"])

    assert checksum({}) == checksum({})
    assert checksum({}) != checksum(change)


def test_a_digest_wins_over_the_tag() -> None:
    digest = "sha256:" + "a" * 64
    spec = pod(render({"image": {"repository": "r.example/s", "tag": "9", "digest": digest}}))
    assert containers(spec)["sluicegate"]["image"] == f"r.example/s@{digest}"


def test_settings_given_as_values_are_merged_over_the_charts_own() -> None:
    settings = configuration(render({"config": {"log": {"level": "debug"}, "tenants": ["a", "b"]}}))
    assert settings["log"] == {"level": "debug"}
    assert settings["tenants"] == ["a", "b"]
    assert settings["identity"] == [{"kind": "static", "tenant": "acme", "agent": "support-bot"}]


@pytest.mark.parametrize(
    "values",
    [
        {"replicas": "three"},
        {"replica": 3},
        {"tenant": ".."},
        {"tenant": "a/b"},
        {"image": {"repository": "r", "digest": "sha256:short"}},
        {"ports": {"proxy": 15001}},
        {"policies": {"p.yaml": {"kind": "EgressPolicy"}}},
        {"app": {"runAsUser": PROXY_USER}},
        {"store": {"kind": "memory"}},
    ],
    ids=str,
)
def test_mistyped_values_are_refused(values: Manifest) -> None:
    with pytest.raises(helm.HelmError):
        render(values)


@each_scenario
def test_the_product_accepts_the_rendered_configuration(file: Path, tmp_path: Path) -> None:
    settings = pytest.importorskip("proxy.settings")
    text = yaml.safe_dump(configuration(scenario(file)))
    assert settings.settings_from(text, tmp_path / "sluicegate.yaml").ops.port == 18490


@each_scenario
def test_the_product_accepts_the_rendered_policies(file: Path, tmp_path: Path) -> None:
    load, facts = pytest.importorskip("policies.load"), pytest.importorskip("policies.facts")
    (found,) = [found for found in of_kind(scenario(file), "ConfigMap") if "sluicegate.yaml" not in found["data"]]
    for name, text in found["data"].items():
        (tmp_path / name).write_text(text)
    slack = facts.ProviderFacts("slack", ("slack.com",), frozenset({"chat.postMessage"}))
    assert load.load([tmp_path], None, {"slack": slack}, "deny").size.rules > 0
