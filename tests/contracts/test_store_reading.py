"""What every credential store promises a reader, whoever fills it."""

from __future__ import annotations

import pytest

from proxy.credentials.store import NotFound
from tests.contracts.stores import Filled

PATH = "tenants/acme/slack"


async def test_a_record_reads_back_with_every_field(filled: Filled) -> None:
    fields = {"token": "xoxb-1", "hosts": ["slack.com"], "nested": {"deep": [1, True, None]}, "unknown": "kept"}
    await filled.put(PATH, fields)
    assert (await filled.store.read(PATH)).fields == fields


async def test_what_is_not_there_is_not_found(filled: Filled) -> None:
    await filled.put(PATH, {"token": "t"})
    for path in ("tenants/acme/nothing", "tenants/acme", "tenants", "nothing", f"{PATH}/deeper"):
        with pytest.raises(NotFound):
            await filled.store.read(path)


async def test_a_change_is_seen_by_the_next_read_and_changes_the_version(filled: Filled) -> None:
    await filled.put(PATH, {"token": "one"})
    first = await filled.store.read(PATH)
    await filled.put(PATH, {"token": "two"})
    second = await filled.store.read(PATH)
    assert (first.fields, second.fields) == ({"token": "one"}, {"token": "two"})
    assert first.version != second.version
    assert (await filled.store.read(PATH)).version == second.version


async def test_a_deletion_is_seen_by_the_next_read(filled: Filled) -> None:
    await filled.put(PATH, {"token": "one"})
    await filled.store.read(PATH)
    await filled.remove(PATH)
    with pytest.raises(NotFound):
        await filled.store.read(PATH)


async def test_a_list_goes_down_from_its_folder_only(filled: Filled) -> None:
    for path in (PATH, "tenants/acme/actors/ann/slack", "tenants/acme2/slack"):
        await filled.put(path, {"token": "t"})
    assert await filled.store.list("tenants/acme") == ["tenants/acme/actors/ann/slack", PATH]
    assert await filled.store.list("tenants/nobody") == []
    assert await filled.store.list(PATH) == []
    assert "tenants/acme2/slack" in await filled.store.list("")


@pytest.mark.parametrize(
    "path", ["tenants/../other", "tenants//slack", "/slack", "tenants/a b", "a/%2e%2e/b", "a/.", "a\x00b"]
)
async def test_a_path_that_could_lead_elsewhere_is_refused(filled: Filled, path: str) -> None:
    with pytest.raises(ValueError, match="record path"):
        await filled.store.read(path)
    with pytest.raises(ValueError, match="record path"):
        await filled.store.list(path)
