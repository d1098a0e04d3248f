"""What is refused, one sentence each."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.webhook.pod_checks import refusals
from tests.webhook.pods import Json, annotated, container, pod


def only(given: Json) -> str:
    (found,) = refusals(given)
    return found


def secured(**context: Any) -> Json:
    return pod(containers=[container(securityContext=context)])


def test_an_ordinary_pod_is_not_refused() -> None:
    assert list(refusals(pod())) == []


@pytest.mark.parametrize("field", ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"])
def test_namespaces_shared_with_others_are_refused(field: str) -> None:
    assert only(pod(**{field: True})).startswith(f"Remove {field}: ")


@pytest.mark.parametrize(
    ("context", "said"),
    [
        ({"runAsUser": 64100}, "user 64100"),
        ({"runAsUser": 0}, "root"),
        ({"runAsNonRoot": False}, "root"),
        ({"privileged": True}, "privileged"),
        ({"allowPrivilegeEscalation": True}, "escalation"),
        ({"capabilities": {"add": ["NET_RAW"]}}, "NET_RAW"),
        ({"seccompProfile": {"type": "Unconfined"}}, "seccomp"),
        ({"procMount": "Unmasked"}, "/proc"),
        ({"appArmorProfile": {"type": "Unconfined"}}, "AppArmor"),
        ({"seLinuxOptions": {"type": "spc_t"}}, "SELinux"),
    ],
)
@pytest.mark.parametrize("kind", ["containers", "initContainers", "ephemeralContainers"])
def test_a_container_that_asks_for_too_much_is_refused(context: Json, said: str, kind: str) -> None:
    given = pod(**{kind: [container(name="c", securityContext=context)]})
    assert said in only(given)
    assert only(given).startswith("Container c must not ")


@pytest.mark.parametrize("context", [{"runAsUser": 64100}, {"runAsUser": 0}, {"runAsNonRoot": False}])
def test_so_is_a_pod_that_asks_for_it_as_a_whole(context: Json) -> None:
    assert only(pod(securityContext=context)).startswith("The pod must not run as ")


@pytest.mark.parametrize("name", ["image", "tenant", "env", "vault-role", "policies", "store"])
def test_annotations_choose_a_profile_and_nothing_else(name: str) -> None:
    assert f"sluicegate.io/{name}" in only(annotated(pod(), **{name: "x"}))
    assert list(refusals(annotated(pod(), profile="p"))) == []


def test_a_path_of_the_node_is_refused() -> None:
    assert "path of the node" in only(pod(volumes=[{"name": "v", "hostPath": {"path": "/var/lib/kubelet"}}]))


def test_a_token_that_the_pods_author_projects_is_refused() -> None:
    volume = {"name": "mine", "projected": {"sources": [{"serviceAccountToken": {"path": "t", "audience": "vault"}}]}}
    assert "service-account token" in only(pod(volumes=[volume]))


@pytest.mark.parametrize(("kind", "name"), [("containers", "sluicegate"), ("initContainers", "sluicegate-extra")])
def test_a_container_under_a_name_of_ours_is_refused(kind: str, name: str) -> None:
    assert "name of the webhook's" in only(pod(**{kind: [container(name=name)]}))


def test_a_windows_pod_is_refused() -> None:
    assert "Windows" in only(pod(os={"name": "windows"}))
