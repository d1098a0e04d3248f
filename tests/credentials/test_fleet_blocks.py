"""Fleet-wide blocks: taken over when they change, kept when they cannot be read."""

from __future__ import annotations

import pytest

from proxy.credentials.fleet_blocks import Block, FleetBlocks, parse_blocks
from tests.credentials.stubs import MemoryStore

PATH = "sluicegate/blocks"


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def taken() -> list[tuple[Block, ...]]:
    return []


@pytest.fixture
def blocks(store: MemoryStore, taken: list[tuple[Block, ...]]) -> FleetBlocks:
    return FleetBlocks(store, PATH, 15, taken.append)


async def test_changes_are_handed_over_once(
    store: MemoryStore, blocks: FleetBlocks, taken: list[tuple[Block, ...]]
) -> None:
    await blocks.look()
    assert taken == []
    store.put(PATH, blocks=[{"tenant": "acme"}])
    await blocks.look()
    await blocks.look()
    store.put(PATH, blocks='[{"agent": "bot", "provider": "slack"}]')
    await blocks.look()
    await store.delete(PATH)
    await blocks.look()
    assert taken == [({"tenant": "acme"},), ({"agent": "bot", "provider": "slack"},), ()]


async def test_what_cannot_be_read_lets_nobody_go_and_is_told_once(
    store: MemoryStore, blocks: FleetBlocks, taken: list[tuple[Block, ...]], caplog: pytest.LogCaptureFixture
) -> None:
    store.put(PATH, blocks=[{"tenant": "acme"}])
    await blocks.look()
    store.down = True
    await blocks.look()
    await blocks.look()
    store.down = False
    store.put(PATH, blocks='[{"tenant": "acme"')
    await blocks.look()
    assert taken == [({"tenant": "acme"},)]
    assert caplog.text.count("cannot be read") == 2
    assert '"acme"' not in caplog.text


@pytest.mark.parametrize(
    "raw", ["x", [{}], [{"tenat": "acme"}], [{"tenant": ""}], [{"tenant": 3}], ["acme"], 7, [{"tenant": "a"}] * 1001]
)
def test_a_list_that_is_none_is_refused(raw: object) -> None:
    with pytest.raises(ValueError):
        parse_blocks({"blocks": raw})


def test_an_empty_record_blocks_nobody() -> None:
    assert parse_blocks({}) == parse_blocks({"blocks": ""}) == ()
