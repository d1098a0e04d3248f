from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.catalog.operations import REMEMBERED, REMEMBERED_LENGTH, Operation, OperationIndex, path_segments


def operation(name: str, path: str, method: str = "GET") -> Operation:
    return Operation(name, method, path, write=method != "GET", idempotent=method == "GET")


INDEX = OperationIndex(
    [
        operation("users.list", "/v1/users"),
        operation("users.create", "/v1/users", "POST"),
        operation("users.me", "/v1/users/me"),
        operation("users.get", "/v1/users/{user}"),
        operation("users.keys", "/v1/users/{user}/keys"),
        operation("me.tokens", "/v1/users/me/tokens"),
        operation("files.get", "/v1/files/{path+}"),
        operation("files.history", "/v1/files/{file}/history"),
        operation("contents", "/{owner}/{repo}/contents/{path+}"),
        operation("purge", "/v1/users/{user}", "DELETE"),
    ]
)


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        ("GET", "/v1/users", "users.list"),
        ("POST", "/v1/users", "users.create"),
        ("GET", "/v1/users/me", "users.me"),
        ("GET", "/v1/users/7", "users.get"),
        ("GET", "/v1/users/me/keys", "users.keys"),
        ("GET", "/v1/users/me/tokens", "me.tokens"),
        ("GET", "/v1/users/7/tokens", None),
        ("DELETE", "/v1/users/7", "purge"),
        ("HEAD", "/v1/users/7", "users.get"),
        ("HEAD", "/v1/users", "users.list"),
        ("PUT", "/v1/users/7", None),
        ("get", "/v1/users", None),
        ("GET", "/v1/files/a", "files.get"),
        ("GET", "/v1/files/a/b/c", "files.get"),
        ("GET", "/v1/files/a/history", "files.history"),
        ("GET", "/v1/files/", None),
        ("GET", "/v1/files", None),
        ("GET", "/o/r/contents/a/b", "contents"),
        ("GET", "/o//contents/a", None),
        ("GET", "/v1/users/", None),
        ("GET", "/v1/users/7/", None),
        ("GET", "/v1/users/{}", "users.get"),
        ("GET", "/v1/files/{+}", "files.get"),
        ("GET", "/V1/users", None),
        ("GET", "/", None),
        ("GET", "", None),
        ("GET", "*", None),
    ],
)
def test_the_most_literal_template_names_the_operation(method: str, path: str, name: str | None) -> None:
    for _ in range(2):  # the second answer is the remembered one
        found = INDEX.find(method, path)
        assert (found.name if found else None) == name


def test_declared_head_is_not_taken_from_get() -> None:
    index = OperationIndex([operation("get", "/a/{x}"), operation("head", "/a/{x}", "HEAD")])
    found = index.find("HEAD", "/a/1")
    assert found is not None
    assert found.name == "head"


def test_memory_of_looked_up_paths_is_bounded() -> None:
    index = OperationIndex([operation("get", "/a/{x}")])
    for number in range(REMEMBERED + 10):
        assert index.find("GET", f"/a/{number}") is not None
    assert len(index._remembered) <= REMEMBERED
    long_path = "/a/" + "x" * REMEMBERED_LENGTH
    assert index.find("GET", long_path) is not None
    assert ("GET", long_path) not in index._remembered


@pytest.mark.parametrize(
    "template",
    [
        "",
        "users",
        "/a//b",
        "/a//",
        "/a/{b+}/c",
        "/a/{B}",
        "/a/{b",
        "/a/x{b}",
        "/a b",
        "/a/..",
        "/./a",
        "/a?b",
        "/a%20",
    ],
)
def test_a_template_that_could_match_nothing_clear_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match="path"):
        path_segments(template)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.sampled_from(["v1", "users", "me", "keys", "files", "contents", "x", "", "{}", "{+}", ".."]), max_size=7
    )
)
def test_any_path_is_found_the_same_way_twice_and_never_raises(segments: list[str]) -> None:
    path = "/" + "/".join(segments)
    assert INDEX.find("GET", path) is INDEX.find("GET", path)
    assert INDEX.find("HEAD", path) is INDEX.find("GET", path)
