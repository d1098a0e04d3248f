"""The address guard: what may be dialled, class by class."""

from __future__ import annotations

import json
import os
import re
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.errors import GatewayError
from proxy.upstream.addresses import METADATA_ADDRESSES, METADATA_NAMES, check_address, check_name, plain_address

VECTORS = Path(os.environ.get("SLUICEGATE_VECTORS", Path(__file__).resolve().parents[3] / "shared" / "vectors"))
SSRF = VECTORS / "ssrf-payloads"
needs_vectors = pytest.mark.skipif(not SSRF.is_dir(), reason="ssrf-payloads vectors are not here")
EVERYWHERE = (ip_network("0.0.0.0/0"), ip_network("::/0"))


def networks(*texts: str):
    return tuple(ip_network(text) for text in texts)


def why(address: str, *listed: str, port: int = 443, refused=frozenset(), **options) -> str:
    """The refusal's detail, "" when the address passes."""
    try:
        check_address(ip_address(address), port, networks(*listed), frozenset(refused), **options)
    except GatewayError as error:
        return error.detail
    return ""


def test_a_refused_address_is_a_refusal_by_policy():
    with pytest.raises(GatewayError) as caught:
        check_address(ip_address("10.0.0.1"), 443, ())
    assert (caught.value.code.name, caught.value.status) == ("destination_refused", 403)


@pytest.mark.parametrize(
    "address",
    ["1.1.1.1", "144.1.1.1", "11.0.0.1", "172.15.0.1", "172.32.0.1", "192.0.1.1", "100.63.0.1", "100.128.0.1",
     "198.17.0.1", "198.20.0.1", "223.255.255.255", "2606:4700::1111", "2a00::1", "2400:cb00::1", "::ffff:1.1.1.1"],
)  # fmt: skip
def test_global_unicast_passes(address):
    assert why(address) == ""


@pytest.mark.parametrize(
    ("address", "named"),
    [
        ("0.0.0.0", "unspecified"), ("0.1.1.1", "this network"), ("10.5.5.5", "private"), ("100.64.0.0", "NAT"),
        ("127.0.0.1", "loopback"), ("127.255.0.9", "loopback"), ("169.254.1.1", "link-local"),
        ("172.16.0.1", "private"), ("172.31.255.255", "private"), ("192.0.0.8", "IETF"),
        ("192.0.2.1", "documentation"), ("192.88.99.1", "6to4"),
        ("192.168.2.1", "private"), ("198.18.0.1", "benchmarking"), ("198.19.255.255", "benchmarking"),
        ("198.51.100.7", "documentation"), ("203.0.113.7", "documentation"), ("224.0.0.1", "multicast"),
        ("239.255.255.255", "multicast"), ("240.0.0.1", "reserved"), ("255.255.255.255", "broadcast"),
        ("::", "unspecified"), ("::1", "loopback"), ("::7f00:1", "IPv4-compatible"), ("::ffff:10.0.0.1", "private"),
        ("::ffff:127.0.0.1", "loopback"), ("64:ff9b::a00:1", "NAT64"), ("64:ff9b::101:101", "NAT64"),
        ("64:ff9b:1::1", "NAT64"), ("100::1", "discard"), ("2001::1", "Teredo"), ("2001:2::1", "IETF"),
        ("2001:10::1", "IETF"), ("2001:20::1", "IETF"), ("2001:db8::1", "documentation"), ("2002:a00:1::", "6to4"),
        ("2002:101:101::", "6to4"), ("3fff::1", "documentation"), ("5f00::1", "segment routing"),
        ("4000::1", "reserved"), ("fc00::1", "unique local"), ("fd12::1", "unique local"), ("fe80::1", "link-local"),
        ("fe80::1%lo", "link-local"), ("fec0::1", "site-local"), ("ff02::1", "multicast"),
        ("::ffff:0:7f00:1", "reserved"),
    ],
)  # fmt: skip
def test_special_addresses_are_refused_by_class(address, named):
    assert named in why(address)


@pytest.mark.parametrize(
    ("address", "network"),
    [("10.2.3.4", "10.2.0.0/16"), ("127.0.0.1", "127.0.0.1/32"), ("fd12::1", "fd12::/16"),
     ("100.64.0.1", "100.64.0.0/10"), ("::ffff:10.2.3.4", "10.2.0.0/16"), ("::1", "::1/128")],
)  # fmt: skip
def test_a_listed_network_passes(address, network):
    assert why(address, network) == ""


def test_another_network_of_the_same_class_stays_refused():
    assert why("10.3.0.1", "10.2.0.0/16")
    assert why("::ffff:10.3.0.1", "10.2.0.0/16")
    assert why("10.2.0.1", "::/0")


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "224.0.0.1", "255.255.255.255", "ff02::1", "::ffff:0.0.0.0"])
def test_addresses_that_name_no_peer_cannot_be_listed(address):
    assert why(address, "0.0.0.0/0", "::/0")


@pytest.mark.parametrize("address", sorted(map(str, METADATA_ADDRESSES)))
def test_metadata_services_are_refused_whatever_a_rule_lists(address):
    assert "cloud metadata" in why(address, "0.0.0.0/0", "::/0")
    assert "cloud metadata" in why(address)


@pytest.mark.parametrize(
    "address",
    ["::ffff:169.254.169.254", "64:ff9b::169.254.169.254", "64:ff9b:1::169.254.169.254", "2002:a9fe:a9fe::1",
     "::169.254.169.254", "2001:0:a9fe:a9fe::", "2001:0:4136:e378:8000:63bf:5601:5601", "fe80::a9fe:a9fe%eth0"],
)  # fmt: skip
def test_metadata_services_are_found_inside_ipv6(address):
    assert "cloud metadata" in why(address, "0.0.0.0/0", "::/0")
    assert "cloud metadata" in why(address)


def test_a_listed_translation_prefix_still_judges_the_address_inside():
    assert why("64:ff9b::1.1.1.1", "64:ff9b::/96") == ""
    assert "private" in why("64:ff9b::10.0.0.1", "64:ff9b::/96")
    assert why("64:ff9b::10.0.0.1", "64:ff9b::/96", "10.0.0.0/8") == ""


def test_own_endpoints_are_refused_whatever_a_rule_lists():
    own = {(IPv4Address("127.0.0.1"), 18400), (IPv4Address("10.0.0.9"), 8200), (IPv6Address("fd00::9"), 8200)}
    for address, port in (("127.0.0.1", 18400), ("::ffff:127.0.0.1", 18400), ("10.0.0.9", 8200), ("fd00::9", 8200)):
        assert "this proxy itself" in why(address, "0.0.0.0/0", "::/0", port=port, refused=own)
    assert "this proxy itself" in why("64:ff9b::10.0.0.9", "0.0.0.0/0", "::/0", port=8200, refused=own)
    assert why("127.0.0.1", "127.0.0.0/8", port=18499, refused=own) == ""


@pytest.mark.parametrize("bound", ["0.0.0.0", "::"])
def test_a_listener_on_every_address_covers_each_local_one(bound):
    own = {(ip_address(bound), 18400)}

    def is_local(address):
        return address in (IPv4Address("10.0.0.5"), IPv4Address("127.0.0.1"))

    for address in ("10.0.0.5", "127.0.0.1", "::ffff:10.0.0.5"):
        assert "this proxy itself" in why(address, "0.0.0.0/0", "::/0", port=18400, refused=own, is_local=is_local)
    assert why("10.0.0.6", "10.0.0.0/8", port=18400, refused=own, is_local=is_local) == ""
    assert why("10.0.0.5", "10.0.0.0/8", port=18401, refused=own, is_local=is_local) == ""


@pytest.mark.parametrize("name", sorted(METADATA_NAMES))
def test_metadata_names_are_refused(name):
    with pytest.raises(GatewayError, match="cloud metadata"):
        check_name(name)


def test_other_names_pass():
    check_name("metadata.test")


def test_no_refusal_repeats_the_address():
    assert "10.9" not in why("10.9.8.7")


@settings(max_examples=300, deadline=None)
@given(st.ip_addresses())
def test_nothing_that_the_standard_library_calls_special_passes_unlisted(address):
    try:
        check_address(address, 443, ())
    except GatewayError:
        return
    judged = plain_address(address)
    assert not any((judged.is_private, judged.is_multicast, judged.is_reserved, judged.is_link_local))


@settings(max_examples=200, deadline=None)
@given(st.ip_addresses(v=4), st.booleans())
def test_a_mapped_address_is_judged_as_the_address_it_carries(address, listed):
    allowed = EVERYWHERE if listed else ()
    mapped = IPv6Address(int(IPv6Address("::ffff:0:0")) | int(address))
    assert why(str(mapped), *map(str, allowed)) == why(str(address), *map(str, allowed))


@needs_vectors
def test_published_address_verdicts_hold():
    vectors = json.loads((SSRF / "ip_policy_advocate.json").read_text())
    for address, verdict in vectors["addresses"]:
        assert bool(why(address)) == verdict.startswith("deny"), address
    for network in vectors["deny_networks"]:
        assert why(str(ip_network(network)[0]))
        assert why(str(ip_network(network)[-1]))


@needs_vectors
def test_published_metadata_addresses_are_refused():
    text = (SSRF / "ssrf_cloud_instances.md").read_text()
    found = set(re.findall(r"http://\[?([0-9]+(?:\.[0-9]+){3}|[0-9a-f:]*::[0-9a-f:]*)\]?/", text))
    assert len(found) >= 5
    for address in found:
        assert why(address)
