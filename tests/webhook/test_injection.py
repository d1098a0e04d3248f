"""The patched pod: what it gets, what it loses, and that it is a pod."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from hypothesis import given as each
from hypothesis import settings
from hypothesis import strategies as st

from proxy.settings import settings_from
from proxy.webhook.injection import Refused, patch
from tests.webhook.pods import (
    FLOOR,
    Json,
    annotated,
    applied,
    container,
    dummies,
    files,
    inject,
    injection,
    named,
    pod,
    settings_of,
)

KUBERNETES = ("1.29", "1.31", "1.33", "1.35", "1.37")
VERSIONED = pytest.mark.parametrize("version", KUBERNETES)


def app(injected: Json) -> Json:
    return named(injected["spec"]["containers"])["app"]


def environment(injected: Json) -> dict[str, Any]:
    return {one["name"]: one.get("value") for one in app(injected)["env"]}


def mounts(found: Json) -> set[str]:
    return {mount["name"] for mount in found.get("volumeMounts", ())}


@VERSIONED
@pytest.mark.parametrize("profile", ["default", "explicit"])
def test_the_patched_pod_is_valid(version: str, profile: str) -> None:
    kubernetes_validate.validate(inject(annotated(pod(), profile=profile), "tools"), version, strict=True)


def test_the_proxy_is_a_native_sidecar_before_the_pods_own_init_containers() -> None:
    spec = inject(pod(initContainers=[{"name": "migrate", "image": "m"}]))["spec"]
    order = [one["name"] for one in spec["initContainers"]]
    assert order == ["sluicegate-prepare", "sluicegate-firewall", "sluicegate", "migrate"]
    sidecar = named(spec["initContainers"])["sluicegate"]
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["startupProbe"]["httpGet"]["path"] == "/readyz"
    assert "HTTPS_PROXY" in {one["name"] for one in named(spec["initContainers"])["migrate"]["env"]}


def test_the_authority_and_the_tokens_are_seen_by_the_sidecar_alone() -> None:
    spec = inject(pod())["spec"]
    ours = named(spec["initContainers"])
    assert mounts(ours["sluicegate"]) >= {"sluicegate-run", "sluicegate-tokens"}
    assert mounts(ours["sluicegate-firewall"]) == {"sluicegate-config"}
    assert mounts(named(spec["containers"])["app"]) == {"sluicegate-trust"}
    volumes = named(spec["volumes"])
    assert volumes["sluicegate-run"]["emptyDir"]["medium"] == "Memory"
    (source,) = volumes["sluicegate-tokens"]["projected"]["sources"]
    assert source["serviceAccountToken"]["audience"] == "vault"
    (trust,) = app({"spec": spec})["volumeMounts"]
    assert trust["readOnly"] is True


def test_clients_are_told_of_the_proxy_and_sdks_of_dummies() -> None:
    found = environment(inject(pod()))
    assert found["HTTPS_PROXY"] == found["http_proxy"] == "http://127.0.0.1:18400"
    assert found["SSL_CERT_FILE"] == found["REQUESTS_CA_BUNDLE"] == "/run/sluicegate-trust/bundle.pem"
    assert found["NODE_EXTRA_CA_CERTS"] == "/run/sluicegate-trust/ca.pem"
    assert "-Dhttps.proxyPort=18400" in found["JAVA_TOOL_OPTIONS"]
    assert found["SLACK_BOT_TOKEN"] == "xoxb-dummy"


def test_what_the_container_says_of_proxies_and_roots_does_not_count() -> None:
    hostile = [
        {"name": "HTTPS_PROXY", "value": "http://evil.example"},
        {"name": "ALL_PROXY", "value": "socks5://evil.example"},
        {"name": "SSL_CERT_FILE", "value": "/evil.pem"},
        {"name": "JAVA_TOOL_OPTIONS", "value": "-Xmx1g"},
        {"name": "SLACK_BOT_TOKEN", "value": "its own"},
        {"name": "MODE", "value": "fast"},
    ]
    found = environment(inject(pod(containers=[container(env=hostile)])))
    assert found["HTTPS_PROXY"] == "http://127.0.0.1:18400"
    assert "ALL_PROXY" not in found
    assert found["SSL_CERT_FILE"].startswith("/run/sluicegate-trust/")
    assert found["JAVA_TOOL_OPTIONS"].startswith("-Xmx1g -Dhttp.proxyHost=")
    assert found["SLACK_BOT_TOKEN"] == "its own"
    assert found["MODE"] == "fast"


def test_tokens_and_variables_of_clouds_that_other_webhooks_added_are_removed() -> None:
    given = pod()
    given["spec"]["volumes"].append(
        {"name": "aws-iam-token", "projected": {"sources": [{"serviceAccountToken": {"path": "t", "audience": "sts"}}]}}
    )
    given["spec"]["containers"][0]["volumeMounts"].append(
        {"name": "aws-iam-token", "mountPath": "/var/run/secrets/eks.amazonaws.com/serviceaccount"}
    )
    given["spec"]["containers"][0]["env"] = [
        {"name": name, "value": "x"}
        for name in ("AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE", "AZURE_FEDERATED_TOKEN_FILE")
    ] + [
        {"name": "GOOGLE_APPLICATION_CREDENTIALS", "value": "/gcp.json"},
        {"name": "AWS_ACCESS_KEY_ID", "value": "AKIAREAL"},
    ]
    injected = inject(given)
    assert {name for name in named(injected["spec"]["volumes"]) if not name.startswith("sluicegate-")} == set()
    assert mounts(app(injected)) == {"sluicegate-trust"}
    found = environment(injected)
    assert not {"AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE", "AZURE_FEDERATED_TOKEN_FILE"} & found.keys()
    assert "GOOGLE_APPLICATION_CREDENTIALS" not in found
    assert found["AWS_ACCESS_KEY_ID"] == "AKIADUMMY"
    assert injected["spec"]["automountServiceAccountToken"] is False


def test_application_containers_are_restricted() -> None:
    context = app(inject(pod()))["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] == 10001, "an image that says USER 64100 would be the proxy to the firewall"
    assert context["allowPrivilegeEscalation"] is False
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}


def test_a_user_that_the_pod_names_is_kept() -> None:
    assert app(inject(pod(securityContext={"runAsUser": 2000})))["securityContext"]["runAsUser"] == 2000
    own = container(securityContext={"runAsUser": 3000, "readOnlyRootFilesystem": True})
    context = app(inject(pod(containers=[own])))["securityContext"]
    assert (context["runAsUser"], context["readOnlyRootFilesystem"]) == (3000, True)


def test_only_the_firewall_is_not_restricted() -> None:
    ours = named(inject(pod())["spec"]["initContainers"])
    for name in ("sluicegate-prepare", "sluicegate"):
        assert ours[name]["securityContext"]["runAsUser"] == 64100
        assert ours[name]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert ours["sluicegate-firewall"]["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["NET_ADMIN"]}


def test_the_configuration_is_one_that_the_proxy_takes(tmp_path: Path) -> None:
    injected = inject(pod())
    loaded = settings_from(files(injected)["sluicegate.yaml"], tmp_path / "sluicegate.yaml")
    member = loaded.identity.chain[0]
    assert (member.kind, getattr(member, "tenant", ""), getattr(member, "agent", "")) == ("static", "agents", "bot")
    assert [listener.kind for listener in loaded.listeners] == ["proxy", "base-url", "transparent", "transparent"]
    assert files(injected)["floor/floor.yaml"] == FLOOR
    assert settings_of(injected)["policies"]["floor"] == "/run/sluicegate-config/floor"


def test_a_pod_without_an_account_is_the_default_account() -> None:
    given = pod()
    del given["spec"]["serviceAccountName"]
    assert settings_of(inject(given, "team-b"))["identity"] == [
        {"kind": "static", "tenant": "team-b", "agent": "default"}
    ]


def test_a_profile_is_chosen_where_it_is_open() -> None:
    explicit = inject(annotated(pod(), profile="explicit"), "tools")
    assert "sluicegate-firewall" not in named(explicit["spec"]["initContainers"])
    for profile, namespace in (("explicit", "agents"), ("none", "tools")):
        with pytest.raises(Refused, match="is not open to namespace"):
            inject(annotated(pod(), profile=profile), namespace)


def test_injected_again_nothing_changes() -> None:
    once = inject(pod(initContainers=[{"name": "migrate", "image": "m"}], containers=[container(env=[])]))
    assert patch(once, "agents", injection(), dummies) == []


def test_defaults_that_the_api_server_fills_in_are_no_change() -> None:
    once = inject(pod())
    for volume in once["spec"]["volumes"]:
        if "configMap" in volume:
            volume["configMap"]["optional"] = True
    for one in once["spec"]["initContainers"]:
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            if probe in one:
                one[probe]["initialDelaySeconds"] = 0
    assert patch(once, "agents", injection(), dummies) == []


@pytest.mark.parametrize("field", ["image", "args", "command", "securityContext", "env", "volumeMounts", "lifecycle"])
def test_a_sidecar_that_was_tampered_with_is_put_right(field: str) -> None:
    once = inject(pod())
    sidecar = named(once["spec"]["initContainers"])["sluicegate"]
    good = {name: dict(one) for name, one in named(once["spec"]["initContainers"]).items()}
    sidecar[field] = [{"name": "X", "value": "y"}] if field == "env" else {"runAsUser": 0} if "C" in field else ["evil"]
    again = applied(once, patch(once, "agents", injection(), dummies))
    assert named(again["spec"]["initContainers"]) == good


def test_an_application_that_mounts_the_proxys_volumes_loses_them() -> None:
    given = pod(containers=[container(volumeMounts=[{"name": "sluicegate-run", "mountPath": "/x"}])])
    given["spec"]["volumes"] = [{"name": "sluicegate-run", "emptyDir": {}}]
    injected = inject(given)
    assert mounts(app(injected)) == {"sluicegate-trust"}
    assert named(injected["spec"]["volumes"])["sluicegate-run"]["emptyDir"]["medium"] == "Memory"


def test_every_field_of_kubernetes_that_is_not_ours_is_kept(vectors: Path) -> None:
    fixture = json.loads((vectors / "k8s-testdata" / "core.v1.Pod.json").read_text())
    spec = fixture["spec"]
    for field in ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"):
        spec[field] = False
    spec["os"], spec["ephemeralContainers"] = {"name": "linux"}, []
    spec["securityContext"] |= {"runAsUser": 7, "runAsNonRoot": True, "seLinuxOptions": {}}
    spec["volumes"] = [{"name": "scratch", "ephemeral": spec["volumes"][0]["ephemeral"]}]
    spec["futureField"] = {"unknown": [1]}
    for one in (*spec["initContainers"], *spec["containers"]):
        one["securityContext"] = {"runAsUser": 8, "windowsOptions": {"hostProcess": False}}
        one["futureField"] = "kept"
    injected = inject(fixture)["spec"]
    changed = {field for field in injected if injected[field] != spec.get(field)}
    assert changed == {"initContainers", "containers", "volumes", "automountServiceAccountToken"}
    assert injected["containers"][0]["lifecycle"] == spec["containers"][0]["lifecycle"]
    assert injected["containers"][0]["futureField"] == "kept"
    assert injected["volumes"][0] == spec["volumes"][0]


def test_the_fixture_as_it_is_is_refused_with_every_reason(vectors: Path) -> None:
    fixture = json.loads((vectors / "k8s-testdata" / "core.v1.Pod.json").read_text())
    with pytest.raises(Refused) as refused:
        inject(fixture)
    for reason in ("hostNetwork", "hostPID", "shareProcessNamespace", "privileged", "node can lead", "escalation"):
        assert reason in str(refused.value)


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=8), inner, max_size=2),
    max_leaves=6,
)


@settings(max_examples=80, deadline=None)
@each(st.dictionaries(st.sampled_from(["nodeSelector", "dnsConfig", "future", "affinity", "hostAliases"]), _values))
def test_injection_has_the_same_effect_once_and_twice(extra: Json) -> None:
    once = inject(pod(**extra))
    assert patch(once, "agents", injection(), dummies) == []
    assert {field: once["spec"][field] for field in extra} == extra
