"""The signers by record kind: one row for each kind that signs what it is sent with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from signers.aws import prepare_aws
from signers.placement import Field, Placement
from signers.signing import Signing

SIGNERS: Final[Mapping[str, Callable[[Mapping[str, Field], Placement | None], Signing]]] = {
    "aws": prepare_aws,
}
