"""How a provider answers, as its file says it: the guide's example works; mistakes are named with their line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from proxy.catalog import Catalog
from proxy.catalog.document import schema
from proxy.catalog.load import load_providers
from proxy.dialect import Answer
from proxy.errors import ConfigurationError
from proxy.responses.classify import classify, failed, partial_kinds

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "adding-a-provider.md"
BASE = """\
name: acme
title: Acme
verified: 2026-09-30
source: [https://acme.example/docs]
hosts: [api.acme.example]
auth: {bearer: {header: Authorization, format: "Bearer {value}"}}
operations:
  - {name: contacts.list, method: GET, path: /contacts}
  - {name: contacts.import, method: POST, path: /contacts/import}
"""


def loaded(folder: Path, more: str) -> Catalog:
    (folder / "acme.yaml").write_text(BASE + more)
    return Catalog.of(load_providers(folder, []))


@pytest.fixture
def guide(tmp_path: Path):
    (example,) = [
        one for one in re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(), re.DOTALL) if one.startswith("errors:")
    ]
    provider = loaded(tmp_path, example).by_name("acme")
    assert provider is not None
    return provider.dialect


def test_one_file_is_enough_for_a_new_provider(guide) -> None:
    answer = Answer(
        200, [(b"X-Acme-Request", b"r-1")], b'{"ok":false,"error":{"code":"scope_missing","needed":"write"}}'
    )
    assert failed(answer, guide, "contacts.list")
    finding = classify(answer, guide, 0.0)
    assert (finding.kind, finding.code, finding.status, finding.request_id) == (
        "permission",
        "scope_missing",
        403,
        "r-1",
    )
    assert finding.values == {"scope": "write"}


def test_its_waits_globs_and_failed_items_hold(guide) -> None:
    reset = Answer(429, [(b"X-Acme-Reset", b"130"), (b"X-Acme-Remaining", b"0")], b"")
    assert classify(reset, guide, 100.0).wait == 30.0
    assert classify(Answer(403, [], b"Slow down!"), guide, 0.0).wait == 30.0
    assert classify(Answer(400, [], b'{"error":{"code":"contact_not_found"}}'), guide, 0.0).kind == "not_found"
    items = Answer(200, [], json.dumps({"results": [{"error": {"code": "contact_not_found"}}, {}]}).encode())
    assert partial_kinds(items, guide, "contacts.import") == ("not_found",)


@pytest.mark.parametrize(
    ("more", "line", "words"),
    [
        ("errors: {code: error}\n", 10, "is written $.path"),
        ("errors:\n  rows:\n    - {kind: sad, codes: [x]}\n", 12, "kind"),
        ("errors:\n  rows:\n    - {kind: auth}\n", 12, "codes, status, text or header"),
        ("errors:\n  rows:\n    - {kind: auth, text: boo}\n", 12, "needs a name"),
        ("errors:\n  rows:\n    - {kind: auth, codes: x, say: 'Lacks {scope}.'}\n", 12, "scope"),
        ("errors:\n  rows:\n    - {kind: auth, code: x}\n", 12, "did you mean 'codes'"),
        ("waits:\n  - {at: header X, unit: fortnights}\n", 11, "unit"),
        ("waits:\n  - {unit: ms}\n", 11, "name at, or text"),
        ("waits:\n  - {text: soon}\n", 11, "text"),
        ("pagination:\n  - {style: cursor, operations: [a]}\n", 11, "needs parameter, next"),
        ("idempotency: {header: 'Bad Header', retention: 1}\n", 10, "header"),
        ("idempotency: {header: Key, field: key}\n", 10, "exactly one of header, query and field"),
        ("idempotency: {retention: 1}\n", 10, "exactly one of header, query and field"),
        ("idempotency: {field: key, longest: 35}\n", 10, "36 characters"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, more: str, line: int, words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        loaded(tmp_path, more)
    assert any(fault.line == line and words in fault.message for fault in caught.value.faults), caught.value.faults


def test_the_published_schema_knows_these_keys() -> None:
    assert {"errors", "waits", "request_id", "pagination", "idempotency"} <= set(schema()["properties"])
