"""Paths of records: one to one, and never out of a tenant's own folder."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.credentials.paths import PathTemplates, check_path, is_name
from proxy.errors import GatewayError

PATHS = PathTemplates()
BAD_NAMES = ["", ".", "..", "../other", "a/b", "a%2fb", "a b", "ä", "a\n", "x" * 129, "{tenant}", "a\x00"]


def test_default_paths() -> None:
    assert PATHS.path("acme", "", "slack", "tenant") == "tenants/acme/slack"
    assert PATHS.path("acme", "ann", "slack", "tenant") == "tenants/acme/slack"
    assert PATHS.path("acme", "ann", "slack", "actor") == "tenants/acme/actors/ann/slack"


def test_per_actor_without_an_actor_is_missing_not_the_tenants() -> None:
    with pytest.raises(GatewayError) as caught:
        PATHS.path("acme", "", "slack", "actor")
    assert caught.value.code.name == "credential_missing"


@pytest.mark.parametrize("bad", BAD_NAMES)
def test_a_name_that_could_lead_elsewhere_is_refused(bad: str) -> None:
    assert not is_name(bad)
    for tenant, actor, credential in ((bad, "ann", "slack"), ("acme", bad, "slack"), ("acme", "ann", bad)):
        with pytest.raises(GatewayError):
            PATHS.path(tenant, actor, credential, "actor")


@pytest.mark.parametrize("path", ["", "/a", "a/", "a//b", "a/../b", "a/./b", "/".join("a" * 17)])
def test_a_path_is_made_of_names(path: str) -> None:
    with pytest.raises(ValueError, match="record path"):
        check_path(path)


@pytest.mark.parametrize(
    ("tenant", "actor"),
    [
        ("tenants/{tenant}", "a/{tenant}/{actor}/{credential}"),
        ("t/{tenant}-{credential}", "a/{tenant}/{actor}/{credential}"),
        ("t/{tenant}/{tenant}/{credential}", "a/{tenant}/{actor}/{credential}"),
        ("t/{tenant}/{credential}", "a/{tenant}/{credential}"),
        ("../{tenant}/{credential}", "a/{tenant}/{actor}/{credential}"),
        ("t/{pod}/{tenant}/{credential}", "a/{tenant}/{actor}/{credential}"),
        ("t/{agent}-x/{tenant}/{credential}", "a/{tenant}/{actor}/{credential}"),
        ("apps/{tenant}-{credential}", "a/{tenant}/{actor}/{credential}"),
        ("x/y/{tenant}/{credential}", "x/{tenant}/{actor}/{credential}"),
    ],
)
def test_templates_that_are_not_one_to_one_are_refused(tenant: str, actor: str) -> None:
    with pytest.raises(ValueError, match="template"):
        PathTemplates(tenant, actor)


def test_an_actors_template_follows_from_the_tenants() -> None:
    templates = PathTemplates.derived("apps/sluicegate/{tenant}/{credential}")
    assert templates.path("acme", "ann", "slack", "actor") == "apps/sluicegate/acme/actors/ann/slack"


NAMES = st.text(alphabet="aA.-_1", min_size=1, max_size=4).filter(is_name) | st.just("actors")


@given(one=st.tuples(NAMES, NAMES | st.just(""), NAMES), other=st.tuples(NAMES, NAMES | st.just(""), NAMES))
def test_two_credentials_never_share_a_path(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    paths = [PATHS.path(*names, "actor" if names[1] else "tenant") for names in (one, other)]
    assert (paths[0] == paths[1]) == (one == other)


def test_agents_and_engines_may_have_paths_of_their_own() -> None:
    templates = PathTemplates.derived("{agent}/{credential}", app="platform/kv/apps/{app}", mount="teams/{tenant}")
    assert templates.by_agent
    assert templates.path("acme", "ann", "slack", "tenant", "bot") == "teams/acme/bot/slack"
    assert templates.path("acme", "ann", "slack", "actor", "bot") == "teams/acme/actors/ann/bot/slack"
    assert templates.app_path("billing") == "platform/kv/apps/billing"
    with pytest.raises(GatewayError, match="agent"):
        templates.path("acme", "ann", "slack", "tenant", "../other")


@pytest.mark.parametrize(
    ("templates", "tenant", "credential"),
    [
        (PathTemplates("{tenant}/{credential}", "{tenant}/actors/{actor}/{credential}"), "apps", "billing"),
        (
            PathTemplates("t/{tenant}/{credential}", "a/{tenant}/{actor}/{credential}", "t/ours/{app}"),
            "ours",
            "billing",
        ),
        (PathTemplates("{tenant}/{credential}", "a/{tenant}/{actor}/{credential}", "x/ours/{app}"), "apps", "billing"),
    ],
)
def test_an_applications_record_is_no_tenants_credential(
    templates: PathTemplates, tenant: str, credential: str
) -> None:
    with pytest.raises(GatewayError, match="application"):
        templates.path(tenant, "", credential, "tenant")
    assert templates.path("acme", "", credential, "tenant").endswith(f"acme/{credential}")


def test_an_application_is_a_name() -> None:
    with pytest.raises(ValueError, match="no name"):
        PATHS.app_path("../tenants")
