"""Token endpoints of applications: recognised however a call spells them."""

from __future__ import annotations

import pytest

from proxy.token_paths import TokenPaths
from tests.credentials.stubs import MemoryStore

APP = {"client_id": "c", "token_endpoint": "https://ID.example.com/oauth/t%6Fken"}


def known() -> TokenPaths:
    paths = TokenPaths()
    paths.add(APP["token_endpoint"])
    return paths


@pytest.mark.parametrize(
    "path",
    [
        "/oauth/token",
        "/OAuth/Token",
        "/oauth/token//",
        "/oauth/token;v=1",
        "/oauth;a/token",
        "/oauth/token /",
        "/oauth/token/;x\n",
    ],
)
def test_spellings_of_one_endpoint(path: str) -> None:
    found = known().at("id.example.com")
    assert found is not None
    assert found.fullmatch(path)


@pytest.mark.parametrize("path", ["/", "/oauth", "/oauth/tokens", "/oauth/token/introspect", "/x/oauth/token"])
def test_other_paths_of_the_host_are_no_endpoints(path: str) -> None:
    found = known().at("id.example.com")
    assert found is not None
    assert not found.fullmatch(path)


def test_other_hosts_have_none_and_a_name_that_no_call_can_have_is_left_out() -> None:
    paths = known()
    paths.add("https://a_b.example/token")
    assert paths.at("other.example.com") is None


async def test_applications_in_the_store_are_learned_and_those_that_cannot_be_read_are_passed_over() -> None:
    store, told = MemoryStore(), []
    store.put("apps/good", **APP)
    store.put("apps/without", client_id="c")
    store.put("apps/broken", token_endpoint="ftp://x")
    paths = TokenPaths(lambda: told.append("changed"))
    await paths.learn(store)
    await paths.learn(store)
    assert paths.at("id.example.com") is not None
    assert told == ["changed"]
    store.down = True
    await paths.learn(store)
