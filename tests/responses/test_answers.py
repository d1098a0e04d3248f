"""Every documented answer of every provider becomes its kind: our own table, and beside it the shared one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from proxy.catalog import Catalog
from proxy.dialect import Answer
from proxy.errors import KINDS
from proxy.responses.classify import classify, failed

CATALOG = Catalog.load(Catalog.builtin_dir())
TABLE: dict[str, dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "answers.yaml").read_text("utf-8"))
VECTORS = Path(os.environ.get("SLUICEGATE_VECTORS", Path(__file__).parents[3] / "shared" / "vectors"))
SHARED = VECTORS.parent / "providers.yaml"
FAMILIES = {
    "aws_common": ("aws-s3", "aws-dynamodb", "aws-sqs", "aws-lambda", "aws-bedrock"),
    "google_common": ("google-calendar", "gmail", "google-drive"),
}
PARTIAL = {"hubspot status:207", "aws_s3 <Error> entries in DeleteObjects", "aws_sqs Failed[] not empty in *Batch",
           "aws_dynamodb UnprocessedItems / UnprocessedKeys not empty"}  # fmt: skip
"""Successes in which some items failed: tests/responses/test_quirks.py."""
POLLED = {("snowflake", 200), ("snowflake", 202)}
"""A statement that is still running, and rows left out: successes, and their code is known all the same."""


class Row(NamedTuple):
    provider: str
    kind: str
    status: int
    form: str
    value: str

    def answer(self) -> Answer:
        if self.form == "line":
            name, _, value = self.value.partition(": ")
            return Answer(self.status, [(name.encode(), value.encode())], b"")
        shape = {"raw": self.value, "status": ""}.get(self.form) or TABLE[self.provider].get("forms", {}).get(
            self.form, ""
        )
        return Answer(self.status, [], shape.replace("%", self.value).replace("@@", self.value).encode())


def rows() -> Iterator[Row]:
    for provider, table in TABLE.items():
        for kind in KINDS:
            for status, form, *values in table.get(kind, []):
                for value in values:
                    yield Row(provider, kind, status, form, value)


ROWS = list(rows())


@pytest.mark.parametrize("name", sorted(TABLE))
def test_every_documented_answer_of_a_provider_becomes_its_kind(name: str) -> None:
    provider = CATALOG.by_name(name)
    assert provider is not None
    operations = [None, *provider.operation_names]
    wrong = []
    for row in ROWS:
        if row.provider != name:
            continue
        answer = row.answer()
        told = row.status >= 400 or (name, row.status) in POLLED
        if not told and not any(failed(answer, provider.dialect, operation) for operation in operations):
            wrong.append(f"{row}: is taken for a success")
        found = classify(answer, provider.dialect, 1_767_225_600.0)
        if found.kind != row.kind:
            wrong.append(f"{row}: became {found.kind}")
        if not 400 <= found.status <= 599:
            wrong.append(f"{row}: is told with {found.status}")
    assert not wrong


def shared() -> dict[str, Any]:
    return yaml.safe_load(SHARED.read_text("utf-8")) if SHARED.exists() else {"providers": {}}


FACTS = shared()["providers"]
present = pytest.mark.skipif(not FACTS, reason="the shared facts about providers are not here")


@present
def test_every_shared_provider_is_in_the_catalogue() -> None:
    names = {name for key in FACTS for name in FAMILIES.get(key, (key.replace("_", "-"),))}
    assert names <= set(CATALOG.providers)
    assert names <= set(TABLE)


@present
@pytest.mark.parametrize("key", sorted(FACTS))
def test_every_shared_code_row_is_in_our_table_with_its_kind(key: str) -> None:
    missing = []
    for code, status, kind, *_ in FACTS[key]["codes"]:
        if str(code).startswith("token:") or f"{key} {code}" in PARTIAL:  # token endpoints: tests/signers/grants
            continue
        for name in FAMILIES.get(key, (key.replace("_", "-"),)):
            known = [row for row in ROWS if row.provider == name and row.kind == kind]
            if not any(_is_about(row, str(code), status) for row in known):
                missing.append(f"{name} {code!r} at {status} is {kind}")
    assert not missing


def _is_about(row: Row, code: str, status: int) -> bool:
    """Whether the row is an answer that a shared row describes, in words of a dozen kinds."""
    if row.form in ("status", "raw", "line"):
        return row.status == status or str(row.status) in code.replace("5xx", "500")
    words = re.sub(r"^[A-Za-z.]+[:~]", "", code)
    if row.value in code or any(part and part in row.value for part in re.split(r"[|*]|\.\.\.| N$", words)):
        return True
    described = " " in code and (words == code or code.startswith("status:"))  # a sentence about the answer
    return described and row.status == status
