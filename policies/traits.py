"""What else is known of a caller, besides tenant, agent and actor."""

from __future__ import annotations

from typing import Final, NamedTuple

Labels = tuple[tuple[str, str], ...]


class Traits(NamedTuple):
    """The namespace that a caller runs in, empty where that is not known, and its labels, sorted by name."""

    namespace: str = ""
    labels: Labels = ()


NO_TRAITS: Final = Traits()
