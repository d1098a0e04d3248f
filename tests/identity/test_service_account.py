"""Service accounts: the cluster's token names the pod's account, a rule names the tenant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from proxy.errors import ConfigurationError, GatewayError
from proxy.identity.chain import Chain
from proxy.identity.mapping import CallerTemplate
from proxy.identity.service_account import ServiceAccount, ServiceAccountRule
from proxy.identity.verification import Verifier
from proxy.model import Caller, Presented
from tests.identity.tokens import AUDIENCE, NOW, FixedKeys, key, member, signed

CLUSTER = "https://kubernetes.default.svc"
RULES = [
    ServiceAccountRule("acme-prod", "support-bot", CallerTemplate("acme", "support-bot", "{pod}")),
    ServiceAccountRule("shared", "*", CallerTemplate("{claim.tenant}", "{name}")),
]


def projected(namespace: str = "acme-prod", name: str = "support-bot", **changes: Any) -> bytes:
    """The claims of a bound token as the API server issues it."""
    body = {
        "aud": [AUDIENCE],
        "exp": NOW + 3607,
        "iat": NOW,
        "nbf": NOW,
        "iss": CLUSTER,
        "jti": "0b1e",
        "kubernetes.io": {
            "namespace": namespace,
            "node": {"name": "node-1", "uid": "3"},
            "pod": {"name": "support-bot-7d9f", "uid": "1"},
            "serviceaccount": {"name": name, "uid": "2"},
        },
        "sub": f"system:serviceaccount:{namespace}:{name}",
        **changes,
    }
    return signed(body)


def accounts(rules: Sequence[ServiceAccountRule] = RULES) -> ServiceAccount:
    return ServiceAccount(Verifier(CLUSTER, AUDIENCE, ["ES256"], FixedKeys(key())), rules)


def caller(token: bytes) -> Caller:
    answer = accounts().identify(Presented(authorization=b"Bearer " + token), NOW)
    assert isinstance(answer, Caller)
    return answer


def refusal(token: bytes) -> str:
    with pytest.raises(GatewayError) as caught:
        accounts().identify(Presented(session=token), NOW)
    return caught.value.detail


def test_a_rule_names_tenant_and_agent() -> None:
    found = caller(projected())
    assert (found.tenant, found.agent, found.actor) == ("acme", "support-bot", "support-bot-7d9f")
    assert (found.source, found.jti) == ("service_account", "0b1e")


def test_a_rule_may_take_them_from_name_and_claims() -> None:
    found = caller(projected("shared", "crawler", tenant="initech"))
    assert (found.tenant, found.agent, found.actor) == ("initech", "crawler", "")


def test_an_account_that_no_rule_names_is_refused() -> None:
    assert "rule" in refusal(projected("acme-prod", "other"))
    assert "rule" in refusal(projected("other", "support-bot"))


def test_a_claim_that_a_rule_needs_and_the_token_lacks_is_refused() -> None:
    refusal(projected("shared", "crawler"))
    refusal(projected("shared", "crawler", tenant="../x"))
    refusal(projected("shared", "crawler", tenant="{name}"))
    refusal(projected("shared", "crawler", tenant=["acme"]))


@pytest.mark.parametrize(
    "subject",
    [None, 1, "", "acme", "system:serviceaccount:acme-prod", "system:serviceaccount::x", "system:serviceaccount:a:b:c"],
)
def test_a_subject_that_is_no_service_account_is_refused(subject: Any) -> None:
    refusal(projected(sub=subject))


@pytest.mark.parametrize("audience", [["https://kubernetes.default.svc"], [], None])
def test_a_token_for_the_api_server_is_not_for_us(audience: Any) -> None:
    refusal(projected(aud=audience))


@pytest.mark.parametrize("bound", [None, 1, [], {}, {"pod": 1}, {"pod": {"name": 1}}])
def test_a_token_that_names_no_pod_gives_no_pod(bound: Any) -> None:
    refusal(projected(**{"kubernetes.io": bound}))


def test_both_kinds_of_token_pass_one_chain() -> None:
    chain = Chain([member(), accounts()], "proxy")
    for token in (signed(), projected()):
        assert isinstance(chain.identify(Presented(proxy_authorization=b"Bearer " + token), NOW), Caller)
        assert chain.is_session(b"Bearer " + token)


def test_a_mapping_is_required_and_fills_in_what_there_is() -> None:
    with pytest.raises(ConfigurationError):
        accounts([])
    for tenant, agent in (("a b", "x"), ("{namespace}/x", "x"), ("", "x"), ("x", "")):
        with pytest.raises(ConfigurationError):
            CallerTemplate(tenant, agent)
    with pytest.raises(ConfigurationError, match="pods"):
        ServiceAccountRule("a", "b", CallerTemplate("{pods}", "x"))
