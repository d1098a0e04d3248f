"""The providers that the catalogue describes in depth, and the format that all files keep."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from proxy.catalog import Catalog
from proxy.catalog.document import schema
from tests.flows.test_contract import DEEP

CATALOG = Catalog.load(Catalog.builtin_dir())
FILES = sorted(Catalog.builtin_dir().glob("*.yaml"))
WITHOUT_AN_ID = {"google-calendar", "gmail", "google-drive", "salesforce", "datadog"}
"""They document no id of a request, by the pages that their files name."""
BATCHES = {
    "gmail": {"batch", "messages.batchModify", "messages.batchDelete"},
    "google-calendar": {"batch"},
    "google-drive": {"batch"},
    "microsoft-graph": {"batch"},
    "salesforce": {"composite", "composite.batch", "composite.tree", "composite.graph"},
    "hubspot": {"objects.batch.create", "objects.batch.update", "objects.batch.archive"},
    "jira": {"issues.bulkCreate"},
    "zendesk": {"tickets.createMany", "tickets.updateMany", "tickets.destroyMany"},
    "aws-dynamodb": {"BatchWriteItem", "TransactWriteItems", "BatchExecuteStatement"},
    "aws-sqs": {"SendMessageBatch", "DeleteMessageBatch"},
    "aws-s3": {"objects.delete_many"},
    "anthropic": {"messages.batches.create"},
    "openai": {"batches.create"},
    "elasticsearch": {"bulk"},
}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_keeps_the_published_schema(path: Path) -> None:
    document = json.loads(json.dumps(yaml.safe_load(path.read_text("utf-8")), default=str))
    jsonschema.Draft202012Validator(schema()).validate(document)


def test_the_published_schema_refuses_what_the_loader_refuses() -> None:
    validator = jsonschema.Draft202012Validator(schema())
    document = yaml.safe_load((Catalog.builtin_dir() / "notion.yaml").read_text("utf-8"))
    document = json.loads(json.dumps(document, default=str))
    for change in (
        {"hots": []},
        {"name": "No Tion"},
        {"operations": [{"name": "x"}]},
        {"errors": {"rows": [{"kind": "sad"}]}},
    ):
        with pytest.raises(jsonschema.ValidationError):
            validator.validate({**document, **change})


@pytest.mark.parametrize("name", DEEP)
def test_a_deep_provider_says_everything_that_is_documented(name: str) -> None:
    provider = CATALOG.providers[name]
    dialect = provider.dialect
    assert any(operation.write for operation in provider.operations)
    assert any(not operation.write for operation in provider.operations)
    assert len(provider.operation_names) >= 15 or name == "aws-bedrock"
    assert dialect.rows
    assert dialect.native is not None
    assert dialect.waits
    assert dialect.pagination
    assert dialect.request_id or name in WITHOUT_AN_ID
    assert provider.probes


@pytest.mark.parametrize(("name", "operations"), BATCHES.items())
def test_a_batch_is_an_operation_of_its_own_that_writes(name: str, operations: set[str]) -> None:
    found = {operation.name: operation for operation in CATALOG.providers[name].operations}
    assert operations <= found.keys()
    assert all(found[one].write for one in operations)


def test_keys_that_providers_remember_say_for_how_long() -> None:
    forms = {name: one.dialect.idempotency for name, one in CATALOG.providers.items()}
    kept = {name: (form.name, form.retention) for name, form in forms.items() if form is not None}
    assert kept.items() >= {
        ("stripe", ("Idempotency-Key", 86_400.0)), ("zendesk", ("Idempotency-Key", 7_200.0)),
        ("paypal", ("PayPal-Request-Id", 10_800.0)),
    }  # fmt: skip
    assert all(retention is None or retention > 0 for _, retention in kept.values())


@pytest.mark.parametrize(
    ("name", "place", "key", "operation"),
    [
        ("aws-dynamodb", "field", "ClientRequestToken", "TransactWriteItems"),
        ("microsoft-graph", "field", "transactionId", "events.create"),
        ("square", "field", "idempotency_key", "payments.create"),
        ("google-drive", "query", "requestId", "drives.create"),
    ],
)
def test_keys_that_travel_elsewhere_than_in_a_header(name: str, place: str, key: str, operation: str) -> None:
    provider = CATALOG.providers[name]
    form = provider.dialect.idempotency
    assert form is not None
    assert (form.place, form.name) == (place, key)
    assert form.takes("POST", operation)
    assert not form.takes("POST", None)
    assert not form.takes("GET", operation)
    assert operation in provider.operation_names
