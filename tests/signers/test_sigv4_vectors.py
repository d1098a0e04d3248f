"""Every published vector, header and query form, each stage byte for byte."""

from __future__ import annotations

import hashlib

import pytest

from signers.sigv4 import (
    EMPTY_SHA256,
    canonical_headers,
    canonical_path,
    canonical_query,
    canonical_request,
    encoded,
    query_parameters,
    sign_header,
    sign_query,
    signature,
    stamp,
    string_to_sign,
)
from tests.signers.sigv4_vectors import NAMES, Vector, needs_vectors, vector

pytestmark = needs_vectors


def parts(given: Vector) -> tuple[bytes, bytes, bytes]:
    path, _, query = given.target.partition(b"?")
    payload = hashlib.sha256(given.body).hexdigest().encode() if given.body else EMPTY_SHA256
    return canonical_path(path, normalise=given.context["normalize"]), query, payload


def header_lines(given: Vector) -> list[tuple[bytes, bytes]]:
    """Lines added before signing, in the order of the published signed requests."""
    added = [(b"X-Amz-Date", stamp(given.now).time)]
    if given.context["sign_body"]:
        added.append((b"x-amz-content-sha256", hashlib.sha256(given.body).hexdigest().encode()))
    token = given.keys.session_token
    if token is not None and given.token_signed:
        added.insert(0, (b"X-Amz-Security-Token", token.reveal().encode()))
    return given.lines + added


def lowered(lines: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [(name.lower(), value) for name, value in lines]


@pytest.mark.parametrize("name", NAMES)
def test_a_request_signed_in_its_header_is_the_published_one_at_every_stage(name: str) -> None:
    given = vector(name)
    path, query, payload = parts(given)
    lines, when = header_lines(given), stamp(given.now)
    canonical = canonical_request(
        given.method, path, canonical_query(query), canonical_headers(lowered(lines)), payload
    )
    assert canonical == given.expected("header-canonical-request")
    derived = given.keys.derived(when, given.scope)
    text = string_to_sign(when, derived, canonical)
    assert text == given.expected("header-string-to-sign")
    assert signature(derived, text) == given.expected("header-signature")
    signed = sign_header(given.keys, given.scope, when, given.method, path, query, lowered(lines), payload)
    assert signed.signature == given.expected("header-signature")
    assert b"Authorization:" + signed.authorization in given.expected("header-signed-request").split(b"\n")


@pytest.mark.parametrize("name", NAMES)
def test_a_request_signed_in_its_query_is_the_published_one_at_every_stage(name: str) -> None:
    given = vector(name)
    path, query, payload = parts(given)
    lines, when = lowered(given.lines), stamp(given.now)
    added = query_parameters(
        given.keys, given.scope, when, given.context["expiration_in_seconds"], lines, token_signed=given.token_signed
    )
    signing = query + b"&" + added if query else added
    canonical = canonical_request(given.method, path, canonical_query(signing), canonical_headers(lines), payload)
    assert canonical == given.expected("query-canonical-request")
    assert string_to_sign(when, given.keys.derived(when, given.scope), canonical) == given.expected(
        "query-string-to-sign"
    )
    signed = sign_query(given.keys, given.scope, when, given.method, path, signing, lines, payload)
    assert signed == given.expected("query-signature")
    sent = b"%b %b?%b" % (given.method, given.target.partition(b"?")[0], signing)
    if not given.token_signed and given.keys.session_token is not None:
        sent += b"&X-Amz-Security-Token=" + encoded(given.keys.session_token.reveal().encode())
    line = sent + b"&X-Amz-Signature=" + signed + b" HTTP/1.1"
    assert given.expected("query-signed-request").split(b"\n")[0] == line
