"""Where botocore is right our signature is botocore's; where it departs from the published rules, ours keeps them."""

from __future__ import annotations

import hashlib
from typing import Any
from urllib.parse import quote

import pytest
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth, SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given, settings
from hypothesis import strategies as st

from signers.aws import prepare_aws
from signers.placement import Placement
from signers.secret import Secret
from signers.signing import Outgoing
from signers.sigv4 import (
    EMPTY_SHA256,
    Keys,
    Scope,
    canonical_headers,
    canonical_path,
    canonical_query,
    stamp,
)

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
NOW = 1_440_938_160.0
HOST = "example.amazonaws.com"


def botocore_signature(auth: Any, method: str, target: str, headers: dict[str, str], payload: bytes) -> str:
    request = AWSRequest(method=method, url=f"https://{HOST}{target}", headers=headers, data=payload)
    request.context["timestamp"] = stamp(NOW).time.decode()
    request.context["payload_signing_enabled"] = True
    request.headers["X-Amz-Date"] = stamp(NOW).time.decode()
    return str(auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request))


KEPT = {
    service: prepare_aws(
        {
            "access_key_id": "AKIDEXAMPLE",
            "secret_access_key": Secret(SECRET),
            "region": "eu-west-1",
            "service": service,
        },
        None,
    )
    for service in ("s3", "dynamodb")
}
"""Each signs everything, so that what it remembers of one request is tried on the next."""


def ours(method: str, target: str, headers: dict[str, str], payload: bytes, *, service: str) -> str:
    lines = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    request = Outgoing(method, True, HOST, target.encode(), ((b"host", HOST.encode()), *lines), len(payload))
    signed = KEPT[service].sign(request, payload, NOW)
    return signed.lines.decode().rpartition("Signature=")[2].rstrip()


encoded = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=8).map(
    lambda text: quote(text, safe="")
)
paths = st.lists(encoded | st.sampled_from([".", "..", ""]), max_size=5).map(lambda parts: "/" + "/".join(parts))
queries = st.lists(st.tuples(encoded.filter(bool), encoded).map("=".join), max_size=4).map("&".join)
values = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=12)
header_lines = st.dictionaries(
    st.sampled_from(
        ["content-type", "x-amz-target", "x-amz-meta-a", "content-md5", "X-Amz-Acl", "user-agent", "x-amz-meta-%b"]
    ),
    values,
    max_size=4,
)
methods = st.sampled_from(["GET", "PUT", "POST", "DELETE", "HEAD"])


@settings(max_examples=150, deadline=None)
@given(methods, paths, queries, header_lines, st.binary(max_size=32))
def test_an_arbitrary_request_gets_the_signature_that_botocore_gives_it(
    method: str, path: str, query: str, headers: dict[str, str], payload: bytes
) -> None:
    target = f"{path}?{query}" if query else path
    auth = SigV4Auth(Credentials("AKIDEXAMPLE", SECRET), "dynamodb", "eu-west-1")
    expected = botocore_signature(auth, method, target, headers, payload)
    assert ours(method, target, headers, payload, service="dynamodb") == expected


@settings(max_examples=100, deadline=None)
@given(methods, paths, queries, header_lines, st.binary(max_size=32))
def test_an_arbitrary_request_to_s3_gets_the_signature_that_botocore_gives_it(
    method: str, path: str, query: str, headers: dict[str, str], payload: bytes
) -> None:
    target = f"{path}?{query}" if query else path
    headers = {**headers, "x-amz-content-sha256": hashlib.sha256(payload).hexdigest()}
    auth = S3SigV4Auth(Credentials("AKIDEXAMPLE", SECRET), "s3", "eu-west-1")
    expected = botocore_signature(auth, method, target, headers, payload)
    assert ours(method, target, headers, payload, service="s3") == expected


@pytest.mark.parametrize(
    ("query", "canonical"),
    [
        (b"b=2&a=1", b"a=1&b=2"),
        (b"a", b"a="),
        (b"a=%7E&b=%2f", b"a=~&b=%2F"),
        (b"a=2&a=1&a=10", b"a=1&a=10&a=2"),
        (b"a=1+1", b"a=1%201"),
        (b"Param-3=1&Param=2", b"Param=2&Param-3=1"),
        (b"a=b=c", b"a=b%3Dc"),
        (b"a=*()'", b"a=%2A%28%29%27"),
        (b"&a=1&", b"a=1"),
    ],
)
def test_a_query_is_recoded_and_sorted_where_botocore_takes_it_as_it_is(query: bytes, canonical: bytes) -> None:
    assert canonical_query(query) == canonical


@pytest.mark.parametrize(
    "path",
    [b"/b/JULY%2027%20TO%2031.zip", b"/a/../b", b"/te%25", b"/%C3%A9", b"/a%2Bb", b"/a+b", b"/~-_.", b"//x//",
     b"/~*'()"],
)  # fmt: skip
def test_the_canonical_path_of_s3_is_the_one_on_the_wire_and_of_other_services_encoded_once_more(path: bytes) -> None:
    assert canonical_path(path, normalise=False, encode=False) == path
    twice = canonical_path(path, normalise=False)
    assert twice.count(b"%25") == path.count(b"%")
    assert not set(b"+*'()") & set(twice)


def test_blanks_in_header_values_are_trimmed_and_folded_and_repeats_joined_in_their_order() -> None:
    lines = [(b"x-amz-b", b" b  c\t d "), (b"x-amz-a", b"2"), (b"host", b"h"), (b"x-amz-a", b" 1")]
    assert canonical_headers(lines) == (b"host:h\nx-amz-a:2,1\nx-amz-b:b c d\n", b"host;x-amz-a;x-amz-b")


def test_a_key_is_derived_once_for_a_day_region_and_service_and_never_shown() -> None:
    keys = Keys("AKIDEXAMPLE", Secret(SECRET), Secret("token-of-the-session"))
    scope = Scope(b"us-east-1", b"s3")
    derived = keys.derived(stamp(NOW), scope)
    assert keys.derived(stamp(NOW + 60), scope) is derived
    assert keys.derived(stamp(NOW + 86_400), scope) is not derived
    for text in (repr(keys), repr(derived), str(keys), f"{derived}"):
        assert SECRET not in text
        assert "token-of-the-session" not in text


def test_derived_keys_are_bounded() -> None:
    keys = Keys("AKIDEXAMPLE", Secret(SECRET))
    for number in range(200):
        keys.derived(stamp(NOW), Scope(b"us-east-1", b"s%d" % number))
    assert len(keys._derived) <= 64


def test_an_empty_body_has_the_well_known_hash() -> None:
    assert EMPTY_SHA256 == b"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.mark.parametrize(("service", "auth"), [("dynamodb", SigV4QueryAuth), ("s3", S3SigV4QueryAuth)])
@settings(max_examples=60, deadline=None)
@given(method=methods, path=paths, query=queries, token=st.sampled_from([None, "FwoG+token/of=the-session"]))
def test_a_signature_in_the_query_is_the_one_that_botocore_puts_there(
    service: str, auth: Any, method: str, path: str, query: str, token: str | None
) -> None:
    target = f"{path}?{query}" if query else path
    fields: dict[str, Any] = {"access_key_id": "AKIDEXAMPLE", "secret_access_key": Secret(SECRET)}
    fields |= {"region": "eu-west-1", "service": service} | ({"session_token": Secret(token)} if token else {})
    signing = prepare_aws(fields, Placement("query", "X-Amz-Signature", "{value}"))
    request = Outgoing(method, True, HOST, target.encode(), ((b"host", HOST.encode()),), 0)
    signed = signing.sign(request, b"", NOW)
    theirs = AWSRequest(method=method, url=f"https://{HOST}{signed.target.decode().rpartition('&X-Amz-Signature=')[0]}")
    theirs.context["timestamp"] = stamp(NOW).time.decode()
    signer = auth(Credentials("AKIDEXAMPLE", SECRET, token), service, "eu-west-1", expires=300)
    # Its canonical form takes the query as it stands in the URL, and sorts it.
    expected = signer.signature(signer.string_to_sign(theirs, signer.canonical_request(theirs)), theirs)
    assert signed.target.startswith(target.encode())
    assert signed.target.decode().rpartition("&X-Amz-Signature=")[2] == expected
    assert (b"X-Amz-Security-Token=FwoG%2Btoken%2Fof%3Dthe-session" in signed.target) == bool(token)
