from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from proxy.catalog.document import OperationDocument, PlacementDocument, ProviderDocument, schema
from signers.placement import Placement


@pytest.mark.parametrize(
    ("written", "placement"),
    [
        ({"header": "X-Key"}, Placement("header", "X-Key")),
        ({"query": "key"}, Placement("query", "key")),
        ({"cookie": "sid"}, Placement("cookie", "sid")),
        ({"header": "X", "format": "Token {value}"}, Placement("header", "X", "Token {value}")),
    ],
)
def test_a_placement_names_one_position(written: dict[str, Any], placement: Placement) -> None:
    assert PlacementDocument.model_validate(written).placement() == placement


@pytest.mark.parametrize(
    "written",
    [{}, {"header": "A", "query": "b"}, {"header": "A B"}, {"header": "A", "format": "x"}, {"header": "Host"}],
)
def test_a_placement_that_cannot_be_used_is_refused(written: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        PlacementDocument.model_validate(written)


@pytest.mark.parametrize(
    ("method", "written", "writes", "repeatable"),
    [
        ("GET", {}, False, True),
        ("HEAD", {}, False, True),
        ("POST", {}, True, False),
        ("PATCH", {}, True, False),
        ("PUT", {}, True, True),
        ("DELETE", {}, True, True),
        ("POST", {"write": False}, False, True),
        ("GET", {"write": True}, True, True),
        ("GET", {"write": True, "idempotent": False}, True, False),
        ("POST", {"idempotent": True}, True, True),
        ("PUT", {"idempotent": False}, True, False),
    ],
)
def test_the_method_says_what_the_file_leaves_out(
    method: str, written: dict[str, Any], writes: bool, repeatable: bool
) -> None:
    document = OperationDocument.model_validate({"name": "x", "method": method, "path": "/x"} | written)
    assert document.writes(method) is writes
    assert document.repeatable(method) is repeatable


def test_the_schema_describes_every_key_and_refuses_others() -> None:
    published = schema()
    assert published["$schema"].startswith("https://json-schema.org/")
    assert set(published["properties"]) == set(ProviderDocument.model_fields)
    assert published["additionalProperties"] is False
    json.dumps(published)
