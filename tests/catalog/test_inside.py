"""Which operation a request is, where its method and path leave that open; whatever has two readings is none."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.catalog import Catalog
from proxy.catalog.inside import Request

CATALOG = Catalog.load(Catalog.builtin_dir())
JSON, FORM = "application/x-amz-json-1.0", "application/x-www-form-urlencoded"


def names(
    provider: str, method: str, target: str, lines: dict[str, str] | list[tuple[str, str]], body: bytes | None = b""
) -> list[str]:
    found = CATALOG.by_name(provider)
    assert found is not None
    operation = found.operation(method, target.partition("?")[0])
    assert operation is not None
    assert operation.inside is not None
    pairs = lines.items() if isinstance(lines, dict) else lines
    kept = [(name.lower().encode(), name.encode(), value.encode()) for name, value in pairs]
    return [one.name for one in operation.inside.find(Request(method, target.encode(), kept, body)).operations]


def graphql(body: Any, kind: str = "application/json", target: str = "/graphql", **lines: str) -> list[str]:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return names("linear", "POST", target, {"Content-Type": kind, **lines}, content)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([("X-Amz-Target", "DynamoDB_20120810.GetItem")], ["GetItem"]),
        ([("X-Amz-Target", "DynamoDB_20120810.DeleteTable")], ["DeleteTable"]),
        ([("X-Amz-Target", "DynamoDB_20120810.Query"), ("X-Amz-Target", "DynamoDB_20120810.DeleteTable")], []),
        ([("X-Amz-Target", "DynamoDB_20120810.Unheard")], []),
        ([("X-Amz-Target", "")], []),
        ([], []),
    ],
)
def test_dynamodb_is_judged_by_its_target(lines: list[tuple[str, str]], expected: list[str]) -> None:
    assert names("aws-dynamodb", "POST", "/", lines) == expected


@pytest.mark.parametrize(
    ("target", "lines", "body", "expected"),
    [
        ("/", {"X-Amz-Target": "AmazonSQS.SendMessage", "Content-Type": JSON}, b"{}", ["SendMessage"]),
        ("/1/q", {"Content-Type": FORM}, b"Action=SendMessage&MessageBody=x", ["SendMessage"]),
        ("/1/q", {"Content-Type": FORM}, b"Acti%6Fn=PurgeQueue", ["PurgeQueue"]),
        ("/1/q?Action=ReceiveMessage", {}, b"", ["ReceiveMessage"]),
        ("/1/q?Action=GetQueueUrl", {"Content-Type": FORM}, b"Action=PurgeQueue", []),
        ("/1/q?Action=GetQueueUrl&Action=PurgeQueue", {}, b"", []),
        ("/", {"X-Amz-Target": "AmazonSQS.ListQueues", "Content-Type": FORM}, b"Action=PurgeQueue", []),
        ("/", {"X-Amz-Target": "AmazonSQS.ListQueues", "Content-Type": FORM + "; charset=utf-16"}, b"x", []),
        ("/?Action=ListQueues", {"Content-Type": "text/plain"}, b"Action=PurgeQueue", []),
        ("/?Action=ListQueues", {}, b"Action=PurgeQueue", []),
        ("/?Action=ListQueues", {"Content-Type": FORM}, None, []),
        ("/", {"X-Amz-Target": "AmazonSQS.ListQueues", "Content-Type": JSON, "Content-Encoding": "gzip"}, b"x", []),
        ("/1/q", {"Content-Type": FORM}, b"MessageBody=x", []),
    ],
)
def test_sqs_is_judged_by_target_or_action(
    target: str, lines: dict[str, str], body: bytes, expected: list[str]
) -> None:
    assert names("aws-sqs", "POST", target, lines, body) == expected


@pytest.mark.parametrize(
    ("method", "target", "lines", "expected"),
    [
        ("GET", "/?list-type=2&prefix=a", {}, ["bucket.read"]),
        ("GET", "/?policy", {}, ["bucket.policy.read"]),
        ("PUT", "/?policy", {}, ["bucket.policy.put"]),
        ("PUT", "/k?acl", {}, ["objects.policy.put"]),
        ("PUT", "/k", {}, ["objects.put"]),
        ("PUT", "/k", {"x-amz-copy-source": "/b/k"}, ["objects.copy"]),
        ("PUT", "/k?partNumber=1&uploadId=u", {}, ["objects.uploads.part"]),
        ("PUT", "/k?partNumber=1&uploadId=u", {"X-Amz-Copy-Source": "/b/k"}, ["objects.uploads.part"]),
        ("POST", "/?delete", {}, ["objects.delete_many"]),
        ("PUT", "/k?acl&tagging", {}, []),
        ("PUT", "/k?unheard-of", {}, []),
        ("PUT", "/k?%61cl", {}, ["objects.policy.put"]),
        ("GET", "/k?versionId=3&response-content-type=x", {}, ["objects.read"]),
        ("HEAD", "/k", {}, ["objects.read"]),
    ],
)
def test_s3_is_judged_by_subresource_and_copy(
    method: str, target: str, lines: dict[str, str], expected: list[str]
) -> None:
    assert names("aws-s3", method, target, lines) == expected


DELETES = {"query": "query A { viewer { id } } mutation B { issueDelete(id: 1) { success } }", "operationName": "A"}


def test_graphql_goes_by_the_document_not_by_the_operation_name() -> None:
    assert graphql(DELETES) == ["graphql.query.viewer", "graphql.mutation.issueDelete"]
    assert graphql({"query": "mutation { x: unheardOf }"}) == ["graphql.mutation.other"]
    assert graphql({"query": "{ a }"}, "application/json; charset=UTF-8") == ["graphql.query.other"]
    assert graphql(b"{ viewer { id } }", "application/graphql") == ["graphql.query.viewer"]


def test_a_batch_of_documents_is_all_of_them() -> None:
    assert graphql([{"query": "{ viewer { id } }"}, DELETES]) == [
        "graphql.query.viewer",
        "graphql.mutation.issueDelete",
    ]


@pytest.mark.parametrize(
    "body",
    [
        {}, [], [{}], "x", {"query": None}, {"id": "abc"}, {"query": "{a}", "id": "abc"},
        {"query": "{a}", "documentId": "b"},
        {"extensions": {"persistedQuery": {"sha256Hash": "x"}}},
        {"query": "{a}", "extensions": {"persistedQuery": {"sha256Hash": "x"}}},
        b'{"query": "{a}", "query": "mutation {b}"}', b'{"query": "{a}"', b"query={a}", b"\xff", b"",
        '{"query": "{a}"}'.encode("utf-16"),
    ],
)  # fmt: skip
def test_a_body_that_does_not_hold_its_document_is_no_operation(body: Any) -> None:
    assert graphql(body) == []


def test_a_body_that_another_reader_would_read_otherwise_is_no_operation() -> None:
    reading = {"query": "{ viewer { id } }"}
    assert graphql(reading, "text/plain") == []
    assert graphql(reading, "application/json; charset=utf-7") == []
    assert graphql(reading, **{"Content-Encoding": "gzip"}) == []
    assert graphql(reading, target="/graphql?query=mutation{issueDelete}") == []
    assert graphql(reading, target="/graphql?extensions=%7B%7D") == []


def test_a_media_type_that_is_a_list_is_none() -> None:
    reading = {"query": "{ viewer { id } }"}
    for kind in ("application/x-www-form-urlencoded, a/b+json", "text/plain a+json", "+json"):
        assert graphql(reading, kind) == []


def test_a_document_in_the_query_is_not_judged_alone_where_a_large_body_follows() -> None:
    assert names("linear", "GET", "/graphql?query=%7Bviewer%7Bid%7D%7D", {}, None) == []


def test_a_document_in_the_query_is_judged_too() -> None:
    assert names("linear", "GET", "/graphql?query=%7Bviewer%7Bid%7D%7D", {}) == ["graphql.query.viewer"]
    assert names("linear", "GET", "/graphql?query=mutation%7Bx%7D", {}) == ["graphql.mutation.other"]
    assert names("linear", "GET", "/graphql?query={a}&query=mutation{b}", {}) == []
    assert names("linear", "GET", "/graphql?query={a}&extensions={}", {}) == []
    assert names("linear", "GET", "/graphql", {}) == []
    assert names("linear", "GET", "/graphql?query={a}", {"Content-Type": "application/json"}, b'{"query":"x"}') == []


@pytest.mark.parametrize("name", sorted(CATALOG.outlines))
def test_an_example_of_every_operation_is_found_to_be_that_operation(name: str) -> None:
    provider = CATALOG.by_name(name)
    assert provider is not None
    for operation in provider.operations:
        path = re.sub(r"\{[^}]*\}", "x", operation.path)
        around = provider.operation(operation.method, path)
        if operation.select is None or around is None or around.inside is None:
            assert operation.select is None
            continue
        example = around.inside.example(operation)
        target = f"{path}?{example.query}" if example.query else path
        lines = [(key.lower().encode(), key.encode(), value.encode()) for key, value in example.lines]
        body = b"" if operation.method == "GET" else example.body
        if operation.method == "GET" and example.body:
            target = f"{path}?query={quote(json.loads(example.body)['query'])}" if ".query." in operation.name else ""
        if target:
            found = around.inside.find(Request(operation.method, target.encode(), lines, body)).operations
            assert [one.name for one in found] == [operation.name]


@settings(deadline=None)
@given(
    st.sampled_from(["linear", "aws-sqs", "aws-s3", "aws-dynamodb"]),
    st.binary(max_size=40),
    st.lists(
        st.tuples(st.sampled_from([b"content-type", b"x-amz-target", b"content-encoding"]), st.binary(max_size=40))
    ),
    st.none() | st.binary(max_size=80) | st.sampled_from([b'{"query":"{a}"}', b"Action=SendMessage"]),
)
def test_any_bytes_are_operations_or_none(
    name: str, query: bytes, lines: list[tuple[bytes, bytes]], body: bytes | None
) -> None:
    provider = CATALOG.by_name(name)
    assert provider is not None
    for method, path in (("POST", "/"), ("POST", "/graphql"), ("GET", "/graphql"), ("PUT", "/k")):
        around = provider.operation(method, path)
        if around is not None and around.inside is not None:
            kept = [(key, key, value) for key, value in lines]
            found = around.inside.find(Request(method, path.encode() + b"?" + query, kept, body)).operations
            assert all(operation.name in provider.operation_names for operation in found)
