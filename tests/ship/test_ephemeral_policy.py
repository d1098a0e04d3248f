"""The ValidatingAdmissionPolicy for ephemeral containers: its CEL, evaluated on pods as they come."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.ship.test_chart import CHART, of_kind, scenario
from tests.webhook.pods import inject, pod

cel = pytest.importorskip("cel")

Json = dict[str, Any]
CONFINED: Json = {
    "runAsUser": 10001,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}
DEBUGGER: Json = {"name": "debug", "image": "busybox", "securityContext": CONFINED}


@cache
def policy() -> Json:
    (found,) = of_kind(scenario(CHART / "ci" / "default-values.yaml"), "ValidatingAdmissionPolicy")
    spec: Json = found["spec"]
    return spec


def debugged(*ephemeral: Json) -> Json:
    injected = inject(pod())
    return {**injected, "spec": {**injected["spec"], "ephemeralContainers": list(ephemeral)}}


def covered(given: Json) -> bool:
    return all(cel.evaluate(one["expression"], {"object": given}) is True for one in policy()["matchConditions"])


def refused(given: Json) -> list[str]:
    """The messages of the validations that do not hold; an expression that fails refuses (`failurePolicy: Fail`)."""
    variables: Json = {}
    for one in policy()["variables"]:
        variables[one["name"]] = cel.evaluate(one["expression"], {"object": given})
    terms = {"object": given, "variables": variables}
    return [one["message"] for one in policy()["validations"] if cel.evaluate(one["expression"], terms) is not True]


def confined(**changes: Any) -> Json:
    context = {name: value for name, value in {**CONFINED, **changes}.items() if value is not None}
    return {**DEBUGGER, "securityContext": context}


def test_injected_pods_are_covered_and_no_others() -> None:
    assert covered(debugged(DEBUGGER))
    assert not covered(pod())
    assert covered({**debugged(DEBUGGER), "metadata": {}}), "an annotation can be taken off"
    assert not covered(pod(initContainers=[{"name": "fetch", "image": "busybox"}]))


@pytest.mark.parametrize(
    "ephemeral",
    [
        (),
        (DEBUGGER,),
        (DEBUGGER, {**DEBUGGER, "name": "second"}),
        ({**DEBUGGER, "targetContainerName": "app"},),
        ({**DEBUGGER, "volumeMounts": [{"name": "work", "mountPath": "/srv/app"}]},),
        (confined(privileged=False),),
    ],
)
def test_a_confined_debugger_is_let_in(ephemeral: tuple[Json, ...]) -> None:
    assert refused(debugged(*ephemeral)) == []


@pytest.mark.parametrize(
    ("ephemeral", "said"),
    [
        ({"name": "debug", "image": "busybox"}, "names its user"),
        (confined(runAsUser=None), "names its user"),
        (confined(runAsUser=0), "neither root nor 64100"),
        (confined(runAsUser=64100), "neither root nor 64100"),
        (confined(privileged=True), "not privileged"),
        (confined(allowPrivilegeEscalation=True), "not privileged"),
        (confined(allowPrivilegeEscalation=None), "not privileged"),
        (confined(capabilities=None), "drops ALL"),
        (confined(capabilities={"drop": ["NET_RAW"]}), "drops ALL"),
        (confined(capabilities={"drop": ["ALL"], "add": ["SETUID"]}), "adds none"),
        ({**DEBUGGER, "targetContainerName": "sluicegate"}, "does not join"),
        ({**DEBUGGER, "volumeMounts": [{"name": "sluicegate-ca", "mountPath": "/ca"}]}, "does not mount"),
    ],
)
def test_a_debugger_that_could_go_round_the_proxy_is_refused(ephemeral: Json, said: str) -> None:
    for given in (debugged(ephemeral), debugged(DEBUGGER, ephemeral)):
        assert any(said in message for message in refused(given))
