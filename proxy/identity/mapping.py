"""From a workload's own name to a caller, by rules that an operator writes down."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from proxy.identity.identifier import misconfigured
from proxy.identity.names import is_actor, is_name

_PLACEHOLDER: Final = re.compile(r"\{([A-Za-z][A-Za-z0-9_.-]*)\}")


class Unmapped(Exception):
    """The workload's values give no caller. `args[0]` is a sentence for the agent."""


class CallerTemplate:
    """Tenant, agent and actor, each literal text with {placeholders}."""

    __slots__ = ("_actor", "_agent", "_tenant")

    def __init__(self, tenant: str, agent: str, actor: str = "") -> None:
        """Raises ConfigurationError for literal text that could not be part of a name."""
        for text in (tenant, agent, actor):
            if not is_actor(_PLACEHOLDER.sub("x", text)) and text:
                raise misconfigured(f"a rule's caller: {text!r} could never give a name")
        if not tenant or not agent:
            raise misconfigured("a rule's caller: tenant and agent must be given")
        self._tenant, self._agent, self._actor = tenant, agent, actor

    def placeholders(self) -> frozenset[str]:
        """The names that the templates use, for checking a rule when it is loaded."""
        return frozenset(_PLACEHOLDER.findall(f"{self._tenant} {self._agent} {self._actor}"))

    def fill(self, values: Mapping[str, str]) -> tuple[str, str, str]:
        """(tenant, agent, actor). Raises Unmapped when a value is missing or what comes out is no name."""
        tenant, agent, actor = (_fill(text, values) for text in (self._tenant, self._agent, self._actor))
        if not is_name(tenant) or not is_name(agent) or not (actor == "" or is_actor(actor)):
            raise Unmapped("The workload's name does not give a valid tenant, agent and actor.")
        return tenant, agent, actor


def _fill(template: str, values: Mapping[str, str]) -> str:
    # One pass, so that a value that itself looks like a placeholder stays text.
    try:
        return _PLACEHOLDER.sub(lambda match: values[match[1]], template)
    except KeyError:
        raise Unmapped("The workload lacks a value from which its tenant or agent is made.") from None


class NamePattern:
    """Literal text with {captures}; a capture stands for one or more name characters, none of `/`, `:` or, in a
    host name, `.`; nothing else is special.
    """

    __slots__ = ("_expression", "captures", "text")

    def __init__(self, text: str, *, dots: bool) -> None:
        """`dots` says whether a capture may hold dots. Raises ValueError for a capture used twice or a stray brace."""
        pieces = _PLACEHOLDER.split(text)
        names = pieces[1::2]
        if len(set(names)) != len(names) or any(set("{}") & set(piece) for piece in pieces[::2]):
            raise ValueError(f"{text!r}: each {{capture}} may stand once, and braces are for captures only")
        characters = r"[A-Za-z0-9._-]+" if dots else r"[A-Za-z0-9_-]+"
        body = "".join(f"({characters})" if index % 2 else re.escape(piece) for index, piece in enumerate(pieces))
        self._expression = re.compile(body, re.ASCII)
        self.captures = tuple(names)
        self.text = text

    def match(self, name: str) -> dict[str, str] | None:
        """What the captures stand for when the whole of `name` fits; None otherwise."""
        found = self._expression.fullmatch(name)
        return None if found is None else dict(zip(self.captures, found.groups(), strict=True))
