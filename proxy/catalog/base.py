"""What the models of a provider file share."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

OneLine = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]


class Strict(BaseModel):
    """Unknown keys are faults; values are taken as they are written."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True, defer_build=True)


def one_as_list(value: Any) -> Any:
    """A single value where a list may stand."""
    return value if isinstance(value, list) else [value]


def one_or_many(item: Any) -> BeforeValidator:
    """Beside `list[item]`: one item may be written alone, and the published schema says so."""
    return BeforeValidator(one_as_list, json_schema_input_type=item | list[item])
