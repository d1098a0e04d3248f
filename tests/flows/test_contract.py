"""`sluicegate contract`: probes go the whole way with the tenant's credential, and drift is named and counts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.catalog import Catalog
from proxy.errors import ConfigurationError
from tests.flows.product import Product, record, rule
from tests.flows.upstreams import Connection, Upstream

SECRET = "crm-live-0123456789abcdef"
VALUE = "Ann Example, of Acme"
DEEP = [
    "slack", "github", "notion", "stripe", "google-calendar", "gmail", "google-drive", "microsoft-graph", "aws-s3",
    "aws-dynamodb", "aws-sqs", "aws-lambda", "aws-bedrock", "salesforce", "hubspot", "jira", "linear", "shopify",
    "twilio", "openai", "anthropic", "zendesk", "datadog", "kubernetes",
]  # fmt: skip
PROVIDER = """\
name: acme-crm
title: Acme CRM
verified: 2026-01-15
source: [https://developers.acme-crm.example/api]
hosts: [api.acme-crm.example]
auth: {api_key: {header: X-Acme-Key}}
operations:
  - {name: contacts.get, method: GET, path: "/v2/contacts/{contact}"}
  - {name: contacts.delete, method: DELETE, path: "/v2/contacts/{contact}"}
errors:
  code: $.error
  rows: [{kind: not_found, codes: no_such_contact}]
"""
PROBES = """\
probes:
  - name: one-contact
    path: /v2/contacts/7
    expect: {$.id: number, $.name: string, $.tags: array}
    answers: [X-Acme-Request]
  - {name: unknown-contact, path: /v2/contacts/0, kind: not_found, code: no_such_contact}
"""
GOOD = {
    "/v2/contacts/7": (200, {"id": 7, "name": VALUE, "tags": ["x"]}),
    "/v2/contacts/0": (404, {"error": "no_such_contact"}),
}


class Stand:
    def __init__(self, product: Product, upstream: Upstream) -> None:
        self.product = product
        self.upstream = upstream
        self.answers: dict[str, tuple[int, Any]] = {}

    def serve(self, connection: Connection) -> None:
        status, body = self.answers[connection.request().target.decode()]
        content = json.dumps(body).encode()
        connection.send(
            b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nX-Acme-Request: r1\r\nContent-Length: %d\r\n\r\n%b"
            % (status, len(content), content)
        )

    def contract(self, *words: str, **answers: tuple[int, Any]) -> tuple[int, dict[str, Any], str]:
        self.answers = {**GOOD, **{path.replace("contact_", "/v2/contacts/"): one for path, one in answers.items()}}
        self.upstream.forget(self.serve)
        at = f"http://{self.upstream.authority}"
        done = self.product.run("contract", "acme-crm", "--at", at, "--json", *words, check=False)
        output = done.stdout.decode()
        assert SECRET not in output + done.stderr.decode()
        assert output, done.stderr
        return done.returncode, json.loads(output), output


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    providers = tmp_path / "providers"
    providers.mkdir()
    (providers / "acme-crm.yaml").write_text(PROVIDER + PROBES)
    with Upstream(host="127.0.0.81") as upstream:
        rules = [rule("crm", upstream, provider="acme-crm", methods=["GET"], credential={"name": "crm"})]
        records = {"crm": record("api_key", upstream.host, value=SECRET)}
        product = Product(tmp_path, rules, records, providers=["./providers"], state={"dir": "./state"})
        product.write()
        yield Stand(product, upstream)


def test_answers_as_expected_are_no_drift(stand: Stand) -> None:
    code, found, _ = stand.contract()
    assert (code, found["ok"], found["drift"]) == (0, True, [])
    assert [(one["name"], one["status"]) for one in found["probes"]] == [("one-contact", 200), ("unknown-contact", 404)]
    assert [request.all("X-Acme-Key") for request in stand.upstream.requests] == [[SECRET], [SECRET]]


def test_types_places_and_codes_that_differ_are_drift(stand: Stand) -> None:
    code, found, _ = stand.contract(
        contact_7=(200, {"id": "7", "name": VALUE}), contact_0=(404, {"error": "contact_missing"})
    )
    assert code == 1
    assert {(one["probe"], one["what"], one["where"]) for one in found["drift"]} == {
        ("one-contact", "type", "$.id"), ("one-contact", "missing", "$.tags"), ("unknown-contact", "code", ""),
    }  # fmt: skip
    code, found, _ = stand.contract(contact_7=(500, {}), contact_0=(200, {"id": 0}))
    assert {(one["probe"], one["what"]) for one in found["drift"]} >= {
        ("one-contact", "status"),
        ("unknown-contact", "kind"),
    }


def test_a_recorded_shape_holds_no_value_and_later_answers_are_compared_with_it(stand: Stand) -> None:
    assert stand.contract("--record")[0] == 0
    (file,) = (stand.product.folder / "state").rglob("acme-crm.json")
    assert VALUE not in file.read_text()
    assert json.loads(file.read_text())["probes"]["one-contact"]["shape"]["$.name"] == "string"
    kept = {"id": 7, "name": VALUE, "tags": ["x"], "mail": "m"}
    code, found, _ = stand.contract(contact_7=(200, kept))
    assert (code, [one["what"] for one in found["drift"]]) == (0, ["new"])
    code, found, _ = stand.contract(contact_7=(200, {"id": 7, "name": VALUE, "tags": [1]}))
    assert (code, [(one["what"], one["where"]) for one in found["drift"]]) == (1, [("type", "$.tags[*]")])
    assert stand.contract("--record", contact_7=(200, {"id": "7"}))[0] == 1
    assert json.loads(file.read_text())["probes"]["one-contact"]["shape"]["$.id"] == "number"


def test_what_policy_refuses_is_said_and_counts(stand: Stand) -> None:
    (stand.product.folder / "policies" / "0.yaml").unlink()
    code, found, _ = stand.contract()
    assert code == 1
    assert all(one["what"] == "failed" and "policy_denied" in one["found"] for one in found["drift"])


def test_a_person_reads_a_table_and_old_entries_are_listed(stand: Stand) -> None:
    stand.answers = {**GOOD, "/v2/contacts/7": (200, {"id": "7", "name": VALUE, "tags": []})}
    stand.upstream.forget(stand.serve)
    done = stand.product.run("contract", "acme-crm", "--at", f"http://{stand.upstream.authority}", check=False)
    lines = done.stdout.decode().splitlines()
    assert lines[0] == "Acme CRM: 2 probes, 1 differences"
    assert lines[2].split() == ["one-contact", "type", "$.id", "number", "string"]
    listed = stand.product.run("contract", "--all", "--json")
    assert {"provider": "acme-crm", "verified": "2026-01-15"}.items() <= json.loads(listed.stdout)[0].items()


def test_what_cannot_be_asked_is_said(stand: Stand) -> None:
    for words, told in (
        (("nobody",), b"catalogue"),
        ((), b"--all"),
        (("telegram",), b"no probes"),
        (("shopify",), b"--at"),
    ):
        done = stand.product.run("contract", *words, check=False)
        assert done.returncode in (1, 2)
        assert told in done.stderr


@pytest.mark.parametrize(
    ("probe", "words"),
    [
        ("{name: a, method: POST, path: /v2/contacts/7}", "only reads"),
        ("{name: a, path: /v2/unknown}", "only reads"),
        ("{name: a, path: /v2/contacts/7, expect: {$.id: integer}}", "integer"),
        ("{name: a, path: /v2/contacts/7, kind: not_found}", "kind and code"),
        ("{name: a, path: /v2/contacts/7, expect: {id: number}}", "place"),
    ],
)
def test_a_probe_that_could_change_something_or_expects_nonsense_is_a_fault(
    tmp_path: Path, probe: str, words: str
) -> None:
    (tmp_path / "acme-crm.yaml").write_text(f"{PROVIDER}probes:\n  - {probe}\n")
    with pytest.raises(ConfigurationError) as caught:
        Catalog.load(Catalog.builtin_dir(), [tmp_path])
    assert any(words in fault.message for fault in caught.value.faults)


def test_every_deep_provider_declares_probes() -> None:
    catalog = Catalog.load(Catalog.builtin_dir())
    assert [name for name in DEEP if not catalog.providers[name].probes] == []
