"""One canonical destination from every spelling a client may use."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import socket
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.errors import GatewayError
from proxy.listeners import target
from proxy.listeners.target import Segment
from proxy.model import Destination

VECTORS = Path(os.environ.get("SLUICEGATE_VECTORS", Path(__file__).resolve().parents[3] / "shared" / "vectors"))
SSRF = VECTORS / "ssrf-payloads"
needs_vectors = pytest.mark.skipif(not SSRF.is_dir(), reason="ssrf-payloads vectors are not here")


def refusal(function, *arguments) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        function(*arguments)
    return caught.value


@pytest.mark.parametrize(
    ("raw", "canonical"),
    [
        ("api.test", "api.test"),
        ("API.Test", "api.test"),
        ("api.test.", "api.test"),
        (b"API.TEST.", "api.test"),
        ("_dmarc.my_host.test", "_dmarc.my_host.test"),
        ("localhost", "localhost"),
        ("1e100.test", "1e100.test"),
        ("127.0.0.1.nip.io", "127.0.0.1.nip.io"),
        ("0x7f.test", "0x7f.test"),
        ("bücher.test", "xn--bcher-kva.test"),
        ("BÜCHER.test", "xn--bcher-kva.test"),
        ("bücher.test".encode(), "xn--bcher-kva.test"),
        ("XN--BCHER-KVA.test", "xn--bcher-kva.test"),
        ("faß.test", "xn--fa-hia.test"),
        ("api。test", "api.test"),
        ("ａｐｉ.test", "api.test"),
        ("_a.bücher.test", "_a.xn--bcher-kva.test"),
        ("93.184.216.34", "93.184.216.34"),
        ("[2001:DB8::0:1]", "2001:db8::1"),
        ("2001:db8:0:0:0:0:0:1", "2001:db8::1"),
        ("[::]", "::"),
        ("[0000::1]", "::1"),
    ],
)
def test_every_spelling_of_a_host_becomes_one(raw, canonical):
    assert target.canonical_host(raw) == canonical


@pytest.mark.parametrize(
    "raw",
    [
        "2130706433", "0x7f000001", "017700000001", "127.1", "127.0.1", "0177.0.0.1", "0x7f.0x0.0x0.0x1", "127.0.0.01",
        "425.510.425.510", "0xA9FEA9FE", "0X7F.1", "0x", "1.2.3.4.5", "1.2.3.4.", "0", "1.2.3.256", "api.test.1",
        "１２７.0.0.1", "①②⑦.0.0.1", "127。0。0。1", "٣.١", "127.0.0.1%00",
        "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:a9fe:a9fe]", "[::127.0.0.1]", "[::7f00:1]", "[::2]",
        "[fe80::1%eth0]", "[fe80::1%25eth0]", "fe80::1%1", "[v1.fe80]", "[::1", "::1]", "[[::1]]", "[]", "[api.test]",
        "[127.0.0.1]", ":::", "1:2:3",
        "", ".", "..", "a..b", ".a.test", "a.test..", "-a.test", "a-.test", "a b", "a,b", "a\tb", "a.test\n",
        "\na.test", "a\x00.test", "a%2etest", "%61.test", "user@a.test", "a/b", "a\\b", "a?b", "a#b", "a:b", "*.test",
        "a'b", "a|b", "x" * 64 + ".test", ".".join(["x" * 60] * 5), "x" * 5000, "ü" * 5000, "\u00ad" * 2000 + "a.test",
        b"\xff\xfe.test", b"\xc0\xae.test", "\ud800.test", "a\u2488test", "a／b.test", "a＠b.test", "a％2e.test",
        "\u200d.test", "-ü.test", "\u0300a.test", "xn--\u00fc.test",
    ],
)  # fmt: skip
def test_a_host_that_others_could_read_differently_is_refused(raw):
    error = refusal(target.canonical_host, raw)
    assert (error.code.name, error.status) == ("malformed_request", 400)


@pytest.mark.parametrize(
    ("received", "destination", "origin_form"),
    [
        (b"http://a.test/x?q", ("http", "a.test", 80), b"/x?q"),
        (b"http://a.test", ("http", "a.test", 80), b"/"),
        (b"http://a.test?q=1", ("http", "a.test", 80), b"/?q=1"),
        (b"http://a.test/?", ("http", "a.test", 80), b"/?"),
        (b"HTTPS://A.TEST.:443/", ("https", "a.test", 443), b"/"),
        (b"https://a.test:8443/", ("https", "a.test", 8443), b"/"),
        (b"http://[2001:DB8::1]:81/", ("http", "2001:db8::1", 81), b"/"),
        (b"http://a.test//x//", ("http", "a.test", 80), b"//x//"),
        (b"http://a.test/a%2Fb%2Fc?alt=%2B+", ("http", "a.test", 80), b"/a%2Fb%2Fc?alt=%2B+"),
        (b"http://a.test/../x;/%2e%2e/", ("http", "a.test", 80), b"/../x;/%2e%2e/"),
        (b'http://a.test/<>"{}|\\^`', ("http", "a.test", 80), b'/<>"{}|\\^`'),
        (b"http://a.test/@evil.test:80", ("http", "a.test", 80), b"/@evil.test:80"),
    ],
)
def test_an_absolute_target_gives_destination_and_unchanged_origin_form(received, destination, origin_form):
    assert target.parse_absolute(received) == (Destination(*destination), origin_form)


@pytest.mark.parametrize(
    "received",
    [
        b"", b"/", b"*", b"a.test:80", b"//a.test/", b"ftp://a.test/", b"ws://a.test/", b"http:a.test", b"http:/a.test",
        b"http:///x", b"http://", b"http://:80/", b"http://?q", b"http://a.test#f", b"http://a.test/#f",
        b"http://a.test/?q#f", b"http://u@a.test/", b"http://u:p@a.test/", b"http://@a.test/", b"http://a.test\\@b.test/",
        b"http://a.test\\.b.test/", b"http:\\\\a.test/", b"http://a.test:/", b"http://a.test:0/", b"http://a.test:080/",
        b"http://a.test:65536/", b"http://a.test:+80/", b"http://a.test:80:80/", b"http://a.test:8_0/",
        b"http://a.test: 80/", b"http://a.test:\xd9\xa8/", b"http://a.test/ x", b"http://a.test/\r\nX: y",
        b"http://a.test/\x00", b"http://a.test/\x7f", b"http://a.test/\xc3\xbc", b"http://b\xc3\xbccher.test/",
        b" http://a.test/", b"http://a.test /", b"http://%61.test/", b"http://[::1]x/", b"http://[::1]:80x/",
        b"http://::1/", b"http://[::ffff:127.0.0.1]/", b"http://2130706433/", b"http://[]:123/", b"http://a.test\n/",
    ],
)  # fmt: skip
def test_an_absolute_target_that_is_not_a_plain_http_url_is_refused(received):
    assert refusal(target.parse_absolute, received).status == 400


def test_a_password_in_the_authority_is_not_repeated_in_the_refusal():
    error = refusal(target.parse_absolute, b"http://agent:hunter2@a.test/")
    assert "hunter2" not in str(error)


@pytest.mark.parametrize(
    ("received", "expected"),
    [
        (b"a.test:443", ("a.test", 443)),
        (b"A.TEST.:8443", ("a.test", 8443)),
        (b"[2001:db8::1]:443", ("2001:db8::1", 443)),
        (b"10.0.0.1:65535", ("10.0.0.1", 65535)),
    ],
)
def test_a_connect_target_is_host_and_port(received, expected):
    assert target.parse_connect(received) == expected


@pytest.mark.parametrize(
    "received",
    [
        b"a.test", b"a.test:", b":443", b"a.test:0", b"a.test:00443", b"a.test:65536", b"a.test:443/", b"a.test:443?",
        b"http://a.test:443", b"https://a.test", b"u@a.test:443", b"::1:443", b"[a.test]:443", b"[::1]", b"/", b"*",
        b"a.test:443:443", b"a.test:443 ", b"a.test:-1", b"a.test:99999999999999999999", b"", b"a,b:443",
    ],
)  # fmt: skip
def test_a_connect_target_of_another_form_is_refused(received):
    assert refusal(target.parse_connect, received).status == 400


@pytest.mark.parametrize(
    "value",
    [
        b"", b" ", b"a b", b"a,b", b"a.test, b.test", b"u@a.test", b"a.test/x", b"[a.test]:443", b"a.test:", b":80",
        b"http://a.test", b"a.test:x", b"\xc3\xbc.test", b"x" * 9000,
    ],
)  # fmt: skip
def test_an_invalid_host_header_is_malformed(value):
    assert refusal(target.parse_host, value).code.name == "malformed_request"
    assert refusal(target.check_host, value, Destination("https", "a.test", 443)).code.name == "malformed_request"


@pytest.mark.parametrize(
    ("value", "destination"),
    [
        (b"a.test", ("https", "a.test", 443)),
        (b"A.TEST.", ("https", "a.test", 443)),
        (b"a.test:443", ("https", "a.test", 443)),
        (b"a.test:80", ("http", "a.test", 80)),
        (b"a.test:8443", ("https", "a.test", 8443)),
        (b"[2001:db8:0::1]", ("https", "2001:db8::1", 443)),
    ],
)
def test_a_host_header_that_means_the_destination_agrees(value, destination):
    target.check_host(value, Destination(*destination))


@pytest.mark.parametrize(
    ("value", "destination"),
    [
        (b"b.test", ("https", "a.test", 443)),
        (b"a.test:80", ("https", "a.test", 443)),
        (b"a.test", ("https", "a.test", 8443)),
        (b"a.test:443", ("http", "a.test", 80)),
        (b"a.test.b.test", ("https", "a.test", 443)),
        (b"[2001:db8::1]", ("https", "a.test", 443)),
    ],
)
def test_a_host_header_that_means_another_destination_is_421(value, destination):
    error = refusal(target.check_host, value, Destination(*destination))
    assert (error.code.name, error.status) == ("destination_mismatch", 421)


def test_server_name_is_compared_canonically():
    assert target.names_host("API.test.", "api.test")
    assert target.names_host(b"xn--BCHER-kva.test", "xn--bcher-kva.test")
    assert not target.names_host("other.test", "api.test")
    assert not target.names_host("a b", "api.test")


@pytest.mark.parametrize(
    "good", [b"/", b"/?", b"//x//", b"/a%252F", b"/%2e%2e/x", b"/a;b=c", b"/a+b", b"/x?y=a%2Bb&z", b"/\\"]
)
def test_an_origin_form_of_visible_ascii_passes(good):
    target.check_origin_form(good)


@pytest.mark.parametrize(
    "bad", [b"", b"*", b"x", b"/a b", b"/#", b"/\t", b"/\n", b"/\x00", b"/\x7f", b"/\x80", b"http://a/"]
)
def test_an_origin_form_of_other_bytes_is_refused(bad):
    assert refusal(target.check_origin_form, bad).status == 400


@pytest.mark.parametrize(
    ("received", "segment", "rest"),
    [
        (b"/slack/api/chat?x=%2F", "slack", b"/api/chat?x=%2F"),
        (b"/slack", "slack", b"/"),
        (b"/slack/", "slack", b"/"),
        (b"/slack?x=/y", "slack", b"/?x=/y"),
        (b"/slack//x//", "slack", b"//x//"),
        (b"/stripe@eu.stripe.test:8443/v1", "stripe@eu.stripe.test:8443", b"/v1"),
    ],
)
def test_the_first_segment_of_a_base_url_target_is_split_off(received, segment, rest):
    assert target.base_url_segment(received) == (segment, rest)


@pytest.mark.parametrize("received", [b"/", b"//x", b"/?x", b"", b"slack/", b"*", b"/sl ack"])
def test_a_base_url_target_without_first_segment_is_refused(received):
    assert refusal(target.base_url_segment, received).status == 400


@pytest.mark.parametrize(
    ("segment", "expected"),
    [
        ("slack", Segment("slack", None, None)),
        ("shopify@My-Shop.myshopify.test.", Segment("shopify", "my-shop.myshopify.test", None)),
        ("x%40a.test%3A8443", Segment("x", "a.test", 8443)),
        ("x@%5B2001:db8::1%5D:1", Segment("x", "2001:db8::1", 1)),
    ],
)
def test_a_segment_is_a_name_and_perhaps_a_host(segment, expected):
    assert target.split_segment(segment) == expected


@pytest.mark.parametrize(
    "segment", ["", "@a.test", "x@", "x@y@z", "x%2Fy", "x@a%2e%00", "x@a%252etest", "x:y", "%ff", "x" * 2000]
)
def test_a_segment_of_another_shape_is_refused(segment):
    assert refusal(target.split_segment, segment).status == 400


# What is most likely to confuse two readers: numbers, dots, brackets, mapped letters.
HOSTISH = st.text(
    st.sampled_from("0123456789xXaAfF.:[]%-_@/\\ \t\x00\u3002\uff0e\u00fc\u00df\u2460\uff11\u00ad\u200dz"), max_size=24
)
ANY_HOST = st.one_of(HOSTISH, st.text(max_size=40), st.ip_addresses().map(str), st.binary(max_size=40))


@settings(max_examples=400, deadline=None)
@given(ANY_HOST)
def test_a_canonical_host_is_its_own_canonical_spelling(raw):
    try:
        canonical = target.canonical_host(raw)
    except GatewayError:
        return
    assert target.canonical_host(canonical) == canonical
    destination = Destination("https", canonical, 8443)
    assert target.parse_connect(f"{destination.bracketed}:8443".encode()) == (canonical, 8443)
    assert target.parse_absolute(f"{destination.origin}/".encode()) == (destination, b"/")
    target.check_host(destination.authority.encode(), destination)


@settings(max_examples=400, deadline=None)
@given(ANY_HOST)
def test_a_canonical_host_is_a_strict_address_or_a_name_no_resolver_takes_for_one(raw):
    try:
        canonical = target.canonical_host(raw)
    except GatewayError:
        return
    try:
        assert str(ipaddress.ip_address(canonical)) == canonical
    except ValueError:
        assert re.fullmatch(r"[a-z0-9_.-]{1,253}", canonical)
        assert not re.fullmatch(r"[0-9]+|0x[0-9a-f]*", canonical.rpartition(".")[2])


def numeric_address(host: str) -> str | None:
    """The address that the system's resolver reads out of a host without asking anybody."""
    try:
        return socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)[0][4][0]
    except (OSError, UnicodeError):
        return None


@settings(max_examples=400, deadline=None)
@given(ANY_HOST)
def test_the_systems_resolver_reads_a_canonical_host_as_policy_does(raw):
    try:
        canonical = target.canonical_host(raw)
    except GatewayError:
        return
    read = numeric_address(canonical)
    assert read == canonical if re.search(r":|^[0-9.]+$", canonical) else read is None


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.binary(max_size=60), HOSTISH.map(str.encode), HOSTISH.map(lambda host: b"http://" + host.encode())))
def test_reading_a_target_gives_a_value_or_a_gateway_error(received):
    for read in (target.parse_absolute, target.parse_connect, target.parse_host, target.base_url_segment):
        try:
            read(received)
        except GatewayError:
            continue


@needs_vectors
def test_ssrf_host_spellings_never_reach_policy_as_a_name():
    hosts = json.loads((SSRF / "safeurl_hosts.json").read_text())
    for raw in hosts["deny_hosts"]:
        authority = re.split(r"[/?]", raw)[0].encode()
        try:
            host, _ = target.parse_host(authority)
        except GatewayError:
            continue
        assert not ipaddress.ip_address(host).is_global
    for url in hosts["invalid"]:
        refusal(target.parse_absolute, url.encode())


@needs_vectors
def test_encoded_metadata_urls_are_refused_or_become_the_plain_address():
    urls = re.findall(r"http://[^\s`'\"]+", (SSRF / "ssrf_cloud_instances.md").read_text())
    odd = [url for url in urls if re.match(r"http://(?:[0-9]|0x|\[)", url, re.IGNORECASE)]
    assert odd
    for url in odd:
        try:
            destination, _ = target.parse_absolute(url.encode())
        except GatewayError:
            continue
        if not re.search(r"\.[a-z]+$", destination.host):
            assert str(ipaddress.ip_address(destination.host)) == destination.host


@needs_vectors
@pytest.mark.parametrize("name", ["open_redirect_payloads.txt", "openredirects.txt", "crlfinjection.txt"])
def test_redirect_payloads_name_the_host_a_strict_reader_sees_or_are_refused(name):
    for line in (SSRF / name).read_bytes().splitlines():
        try:
            destination, origin_form = target.parse_absolute(line)
        except GatewayError:
            continue
        assert line.lower().startswith(f"{destination.scheme}://{destination.host}".encode())
        assert line.endswith((origin_form, origin_form[1:]))
