"""The request as it leaves: the client's lines, less what is cleared, plus the credential."""

from __future__ import annotations

import pytest

from proxy.model import Call, Destination, Place, Presented
from proxy.upstream.rendering import NOTHING, Pins, request_bytes
from proxy.wire.framing import Limits
from proxy.wire.request_head import request_head
from signers.placement import Injection

API = Destination("https", "api.test", 443)
AUTHORITY = API.authority.encode()
BEARER = Injection(lines=b"Authorization: Bearer real\r\n", clears=frozenset({b"authorization"}))


def is_session(value: bytes) -> bool:
    return b"eyJours" in value


def call_of(*lines: str, line: str = "GET /a%2Fb?c HTTP/1.1", host: str = "Host: proxy:8080") -> Call:
    raw = "\r\n".join([line, *([host] if host else []), *lines, "", ""]).encode("latin-1")
    head = request_head(raw, Limits(), None)
    place = Place(API, head.line.target, None)
    return Call("id", "proxy", head.line.method, API, place, head.section, 0.0, head.line.minor, Presented())


def rendered(call: Call, injection: Injection = NOTHING, pins: Pins = (), authority: bytes = AUTHORITY) -> list[bytes]:
    wire = request_bytes(call, injection, authority, pins, is_session)
    assert wire.endswith(b"\r\n\r\n")
    assert wire.count(b"\r\n\r\n") == 1
    return wire[:-4].split(b"\r\n")


def test_target_order_case_and_repeats_are_kept_and_host_is_the_destination() -> None:
    call = call_of("X-b: 1", "x-A: 2", "X-B: 3", "Accept:  */* ")
    assert rendered(call) == [
        b"GET /a%2Fb?c HTTP/1.1",
        b"Host: api.test",
        b"X-b: 1",
        b"x-A: 2",
        b"X-B: 3",
        b"Accept: */*",
    ]


def test_a_call_without_host_gets_one() -> None:
    assert rendered(call_of(line="GET / HTTP/1.0", host=""))[:2] == [b"GET / HTTP/1.1", b"Host: api.test"]


def test_a_port_of_its_own_stands_in_host() -> None:
    authority = Destination("https", "::1", 8443).authority.encode()
    assert rendered(call_of(), authority=authority)[1] == b"Host: [::1]:8443"


@pytest.mark.parametrize("name", ["Authorization", "authorization", "AUTHORIZATION"])
def test_the_clients_own_credential_goes_and_exactly_one_of_ours_is_there(name: str) -> None:
    lines = rendered(call_of(f"{name}: Bearer dummy", "X: y"), BEARER)
    assert [line for line in lines if line.lower().startswith(b"authorization")] == [b"Authorization: Bearer real"]
    assert b"X: y" in lines


def test_a_name_with_underscores_is_cleared_with_the_one_it_poses_as() -> None:
    injection = Injection(lines=b"X-Api-Key: real\r\n", clears=frozenset({b"x-api-key"}))
    assert rendered(call_of("X_Api_Key: a", "x-api-KEY: b"), injection)[2:] == [b"X-Api-Key: real"]


def test_a_client_cannot_strip_the_credential_by_naming_it_in_connection() -> None:
    assert b"Authorization: Bearer real" in rendered(call_of("Connection: Authorization, close"), BEARER)


def test_session_tokens_of_ours_never_leave_wherever_they_stand() -> None:
    lines = rendered(call_of("Authorization: Bearer eyJours.x.y", "X-Other: eyJours", "Y: eyJtheirs"))
    assert lines[2:] == [b"Y: eyJtheirs"]


def test_a_query_credential_replaces_the_clients() -> None:
    injection = Injection(query=((b"key", b"real"),), query_clears=frozenset({"key"}))
    assert rendered(call_of(line="GET /x?key=dummy&a=%2F HTTP/1.1"), injection)[0] == b"GET /x?a=%2F&key=real HTTP/1.1"


def test_a_cookie_credential_joins_the_clients_other_cookies_in_one_line() -> None:
    injection = Injection(cookies=(b"sid=real",), cookie_clears=frozenset({b"sid"}))
    lines = rendered(call_of("Cookie: a=1; sid=dummy", "X: y", "cookie: b=2"), injection)
    assert lines[2:] == [b"X: y", b"Cookie: a=1; b=2; sid=real"]


def test_cookies_pass_as_they_are_without_a_cookie_credential() -> None:
    assert rendered(call_of("Cookie: a=1;b", "Cookie: c=2"), BEARER)[2:4] == [b"Cookie: a=1;b", b"Cookie: c=2"]


def test_a_version_is_pinned_unless_the_caller_says_one() -> None:
    pins = ((b"Stripe-Version", b"2024-01-01"),)
    assert rendered(call_of(), pins=pins)[-1] == b"Stripe-Version: 2024-01-01"
    assert rendered(call_of("stripe-version: 2020-01-01"), pins=pins)[-1] == b"stripe-version: 2020-01-01"


def test_an_equal_block_is_rendered_once() -> None:
    call = call_of("X: y")
    first = request_bytes(call, BEARER, AUTHORITY, (), is_session)
    assert call.section.memo is not None
    block = call.section.memo[-1]
    call.place = call.place._replace(target=b"/other")
    second = request_bytes(call, BEARER, AUTHORITY, (), is_session)
    assert second == b"GET /other HTTP/1.1\r\n" + block
    assert second.partition(b"\r\n")[2] == first.partition(b"\r\n")[2]
    assert call.section.memo[-1] is block


def test_another_credential_or_destination_is_never_served_from_memory() -> None:
    call = call_of("X: y")
    first = request_bytes(call, BEARER, AUTHORITY, (), is_session)
    other = Injection(lines=b"Authorization: Bearer other\r\n", clears=frozenset({b"authorization"}))
    assert b"Bearer other" in request_bytes(call, other, AUTHORITY, (), is_session)
    assert request_bytes(call, BEARER, AUTHORITY, (), is_session) == first
    assert b"Host: evil.test" in request_bytes(call, BEARER, b"evil.test", (), is_session)
    assert b"real" not in request_bytes(call, NOTHING, AUTHORITY, (), is_session)
    assert b"Pin: 1" in request_bytes(call, NOTHING, AUTHORITY, ((b"Pin", b"1"),), is_session)
