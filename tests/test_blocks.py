"""What the operator stops by hand."""

from __future__ import annotations

import pytest

from proxy.blocks import Block, Blocks, block_of
from proxy.errors import GatewayError
from proxy.model import Caller

CALLER = Caller("acme", "bot")


@pytest.mark.parametrize(
    ("block", "stopped"),
    [
        (Block(tenant="acme"), True),
        (Block(tenant="globex"), False),
        (Block(agent="bot"), True),
        (Block(provider="slack"), True),
        (Block(credential="slack-admin"), False),
        (Block(tenant="acme", provider="slack"), True),
        (Block(tenant="acme", provider="stripe"), False),
    ],
)
def test_a_block_stops_what_agrees_with_all_it_names(block: Block, stopped: bool):
    blocks = Blocks()
    assert not blocks
    blocks.add(block)
    blocks.add(block)
    assert blocks
    assert len(blocks.shown()) == 1
    if stopped:
        with pytest.raises(GatewayError, match="policy_denied: The operator has stopped calls of"):
            blocks.check(CALLER, "slack", "slack")
    else:
        blocks.check(CALLER, "slack", "slack")


def test_a_connection_is_not_stopped_for_what_it_does_not_say_yet():
    blocks = Blocks()
    blocks.add(Block(tenant="acme", provider="slack"))
    blocks.check(CALLER)


def test_only_the_same_block_is_let_go():
    blocks = Blocks()
    blocks.add(Block(tenant="acme", agent="bot"))
    assert not blocks.remove(Block(tenant="acme"))
    assert blocks.remove(Block(tenant="acme", agent="bot"))
    assert not blocks
    blocks.check(CALLER, "slack", "slack")


@pytest.mark.parametrize("fields", [{}, {"tenant": ""}, {"tenants": "x"}, {"tenant": 1}])
def test_a_block_of_nothing_or_of_something_unknown_is_refused(fields: dict[str, object]):
    with pytest.raises(ValueError):
        block_of(fields)
    assert str(block_of({"tenant": "acme", "provider": "slack"})) == "tenant acme, provider slack"
