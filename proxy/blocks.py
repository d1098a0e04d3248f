"""What the operator has stopped by hand, from now until it is let go again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from proxy.errors import GatewayError
from proxy.model import Caller


class Block(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Stops every call that agrees with all fields given. At least one is."""

    tenant: str = ""
    agent: str = ""
    provider: str = ""
    credential: str = ""

    def stops(self, caller: Caller, provider: str, credential: str) -> bool:
        """`provider` and `credential` are names, empty where the call has none."""
        return (
            self.tenant in ("", caller.tenant)
            and self.agent in ("", caller.agent)
            and self.provider in ("", provider)
            and self.credential in ("", credential)
        )

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name in self.__struct_fields__ if (value := getattr(self, name)))


class Blocks:
    """The blocks in force; true while there are any. In memory: a restart lets go whom this process alone stopped."""

    def __init__(self) -> None:
        self._own: tuple[Block, ...] = ()
        self._fleet: tuple[Block, ...] = ()
        self._blocks: tuple[Block, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def add(self, block: Block) -> None:
        """Once more does nothing."""
        if block not in self._own:
            self._hold((*self._own, block), self._fleet)

    def remove(self, block: Block) -> bool:
        """False when there was no such block of this process's own, field for field."""
        kept = tuple(one for one in self._own if one != block)
        removed = len(kept) < len(self._own)
        self._hold(kept, self._fleet)
        return removed

    def take_fleet(self, blocks: tuple[Block, ...]) -> None:
        """Puts `blocks` in the place of those that held for the whole fleet so far."""
        self._hold(self._own, blocks)

    def _hold(self, own: tuple[Block, ...], fleet: tuple[Block, ...]) -> None:
        self._own, self._fleet = own, fleet
        self._blocks = (*own, *fleet)

    def check(self, caller: Caller, provider: str = "", credential: str = "") -> None:
        """Raises `policy_denied` for a call that is stopped."""
        for block in self._blocks:
            if block.stops(caller, provider, credential):
                raise refusal(block)

    def shown(self) -> list[dict[str, str]]:
        """This process's own, for the operator's socket."""
        return [msgspec.to_builtins(block) for block in self._own]

    def shown_fleet(self) -> list[dict[str, str]]:
        """Those of the whole fleet."""
        return [msgspec.to_builtins(block) for block in self._fleet]


def refusal(block: Block) -> GatewayError:
    """What a stopped call is told."""
    return GatewayError("policy_denied", f"The operator has stopped calls of {block} for now.")


def block_of(fields: Mapping[str, Any]) -> Block:
    """A Block from a JSON object. Raises ValueError naming what is wrong with it."""
    try:
        block = msgspec.convert(fields, Block)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    if block == Block():
        raise ValueError("name at least one of tenant, agent, provider and credential")
    return block
