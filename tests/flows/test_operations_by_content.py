"""Operations that only the request itself tells: policy and audit go by what is in it, and it arrives unchanged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.flows.product import AGENT, TENANT, Product, absolute, record, rule
from tests.flows.upstreams import Upstream
from tests.flows.wire import Reply

SECRET = "sk-live-0123456789abcdef"
QUERY = "query A { viewer { id } issues { nodes { id } } }"
MUTATION = "mutation B { issueDelete(id: 1) { success } }"


class Flow:
    def __init__(self, product: Product, upstreams: dict[str, Upstream]) -> None:
        self.product = product
        self.upstreams = upstreams

    def post(self, name: str, path: str, body: bytes, *lines: str) -> Reply:
        upstream = self.upstreams[name]
        upstream.forget()
        with self.product.client() as client:
            encoded = [line.encode() for line in lines]
            return client.ask(absolute(upstream, path, *encoded, method="POST", body=body), "POST")

    def graphql(self, document: Any, name: str = "linear") -> Reply:
        return self.post(name, "/graphql", json.dumps(document).encode(), "Content-Type: application/json")


@pytest.fixture(scope="module")
def flow(folder: Path) -> Iterator[Flow]:
    providers = {"linear": "linear", "apart": "linear", "dynamo": "aws-dynamodb", "sqs": "aws-sqs"}
    allowed = {
        "linear": ["graphql.query.*", "graphql.mutation.commentCreate"],
        "dynamo": ["GetItem", "Query"],
        "sqs": ["SendMessage"],
    }
    upstreams = {name: Upstream(host=f"127.0.0.{number}") for number, name in enumerate(providers, 61)}
    for upstream in upstreams.values():
        upstream.__enter__()
    try:
        credential = {"name": "key", "header": "X-Api-Key"}
        rules = [
            rule(name, upstreams[name], provider=providers[name], operations=operations, credential=credential)
            for name, operations in allowed.items()
        ]
        rules += [
            rule("read", upstreams["apart"], provider="linear", operations=["graphql.query.*"], credential=credential),
            rule("write", upstreams["apart"], provider="linear", operations=["graphql.mutation.*"],
                 credential={"name": "other", "header": "X-Api-Key"}),
        ]  # fmt: skip
        hosts = [upstream.host for upstream in upstreams.values()]
        records = {name: record("api_key", *hosts, value=SECRET) for name in ("key", "other")}
        with Product(folder, rules, records) as product:
            yield Flow(product, upstreams)
    finally:
        for upstream in upstreams.values():
            upstream.__exit__(None, None, None)


def test_a_query_passes_and_is_audited_by_its_root_fields(flow: Flow) -> None:
    got = flow.graphql({"query": QUERY})
    assert got.status == 200
    (sent,) = flow.upstreams["linear"].requests
    assert json.loads(sent.body) == {"query": QUERY}
    assert sent.all("X-Api-Key") == [SECRET]
    line = flow.product.audited(got.call_id)
    assert set(line["operation"].split(",")) == {"graphql.query.viewer", "graphql.query.issues"}
    assert QUERY not in json.dumps(line)


@pytest.mark.parametrize(
    "document",
    [
        {"query": MUTATION},
        {"query": QUERY + MUTATION, "operationName": "A"},
        {"query": "mutation { viewer: issueDelete(id: 1) { success } }", "operationName": "viewer"},
        {"query": "mutation { ...F } fragment F on Mutation { issueDelete(id: 1) { success } }"},
        [{"query": QUERY}, {"query": MUTATION}],
        {"extensions": {"persistedQuery": {"version": 1, "sha256Hash": "ab"}}},
        {"query": QUERY, "id": "stored"},
        {"query": "not graphql"},
    ],
)
def test_a_mutation_is_refused_however_it_is_dressed(flow: Flow, document: Any) -> None:
    refused = flow.graphql(document)
    assert (refused.status, refused.code) == (403, "policy_denied")
    assert flow.upstreams["linear"].requests == []


def test_an_allowed_mutation_beside_an_allowed_query_passes(flow: Flow) -> None:
    allowed = "mutation { commentCreate(input: {}) { success } }"
    assert flow.graphql([{"query": QUERY}, {"query": allowed}]).status == 200
    assert flow.graphql({"query": allowed}).status == 200


def test_parts_that_leave_with_different_credentials_are_not_sent_together(flow: Flow) -> None:
    refused = flow.graphql([{"query": QUERY}, {"query": MUTATION}], "apart")
    assert (refused.status, refused.code) == (403, "policy_denied")
    assert "separate calls" in refused.json()["detail"]
    assert flow.graphql({"query": QUERY}, "apart").status == 200
    assert flow.graphql({"query": MUTATION}, "apart").status == 200


def test_a_refusal_says_why_the_document_could_not_be_told(flow: Flow) -> None:
    assert "persisted" in flow.graphql({"id": "stored"}).json()["detail"]


def test_a_chunked_document_that_comes_in_pieces_is_judged_and_arrives(flow: Flow) -> None:
    body = json.dumps({"query": QUERY}).encode()
    upstream = flow.upstreams["linear"]
    upstream.forget()
    head = absolute(upstream, "/graphql", b"Content-Type: application/json", b"Transfer-Encoding: chunked")
    with flow.product.client() as client:
        client.send(head.replace(b"GET", b"POST", 1))
        for at in range(0, len(body), 7):
            piece = body[at : at + 7]
            client.send(b"%x\r\n%b\r\n" % (len(piece), piece))
        client.send(b"0\r\n\r\n")
        assert client.reply("POST").status == 200
        assert client.ask(absolute(upstream, "/graphql?query=%7Bviewer%7Bid%7D%7D")).status == 200
    assert upstream.requests[0].body == body


def test_a_client_that_waits_is_invited_before_it_is_judged(flow: Flow) -> None:
    body = json.dumps({"query": MUTATION}).encode()
    upstream = flow.upstreams["linear"]
    upstream.forget()
    lines = (b"Content-Type: application/json", b"Expect: 100-continue", b"Content-Length: %d" % len(body))
    with flow.product.client() as client:
        client.send(absolute(upstream, "/graphql", *lines).replace(b"GET", b"POST", 1))
        assert client.until(b"\r\n\r\n").startswith(b"HTTP/1.1 100 ")
        client.send(body)
        assert client.reply("POST").status == 403
    assert upstream.requests == []


def test_a_document_larger_than_is_looked_at_is_no_known_operation(flow: Flow) -> None:
    refused = flow.graphql({"query": QUERY, "variables": {"x": "y" * 300_000}})
    assert (refused.status, refused.code) == (403, "policy_denied")


def test_the_header_names_the_operation_of_an_aws_call(flow: Flow) -> None:
    got = flow.post("dynamo", "/", b"{}", "X-Amz-Target: DynamoDB_20120810.GetItem")
    assert got.status == 200
    assert flow.product.audited(got.call_id)["operation"] == "GetItem"
    for lines in (["DeleteTable"], ["GetItem", "DeleteTable"], []):
        targets = [f"X-Amz-Target: DynamoDB_20120810.{name}" for name in lines]
        assert flow.post("dynamo", "/", b"{}", *targets).code == "policy_denied"


def test_the_form_names_the_operation_of_an_aws_query_call(flow: Flow) -> None:
    form = "Content-Type: application/x-www-form-urlencoded"
    body = b"Action=SendMessage&MessageBody=hello"
    assert flow.post("sqs", "/1/q", body, form).status == 200
    assert flow.upstreams["sqs"].requests[0].body == body
    assert flow.post("sqs", "/1/q", b"Action=PurgeQueue", form).code == "policy_denied"
    assert flow.post("sqs", "/1/q?Action=SendMessage", b"Action=PurgeQueue", form).code == "policy_denied"


def test_explain_takes_the_name_of_what_the_body_would_say(flow: Flow) -> None:
    url = f"http://{flow.upstreams['linear'].authority}/graphql"
    who = ("--tenant", TENANT, "--agent", AGENT)
    for operation, code in (("graphql.query.issues", 0), ("graphql.mutation.issueDelete", 1)):
        done = flow.product.run("explain", "POST", url, "--operation", operation, *who, check=False)
        assert (done.returncode, operation in done.stdout.decode()) == (code, True)
