"""The address guard: which IP addresses a call may be sent to.

Pure. Only global unicast passes, unless the policy rule lists the network. Cloud metadata services and our own
listeners and back ends are refused whatever a rule lists. An address that carries an IPv4 address inside (mapped,
NAT64, 6to4, Teredo) is judged by that one too, since a gateway on the way would unwrap it.

Sources: IANA special-purpose address registries (RFC 6890 and its updates); RFC 4291, 6052, 3056, 4380; the cloud
providers' instance metadata pages.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeAlias

from proxy.errors import GatewayError

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Networks: TypeAlias = tuple[Network, ...]
Endpoint: TypeAlias = tuple[Address, int]
"""IP address and port of a listener or back end of ours; the unspecified address stands for every local one."""

# What the default `is_global` of the standard library says differs between its patch releases, so the table is ours.
# First match names the class. Classes in _NEVER_LISTED cannot be a TCP peer, or mean "this machine" by accident.
_SPECIAL: Final[tuple[tuple[str, str], ...]] = (
    ("0.0.0.0/32", "an unspecified address"),
    ("0.0.0.0/8", "an address of this network"),
    ("10.0.0.0/8", "a private address"),
    ("100.64.0.0/10", "a carrier-grade NAT address"),
    ("127.0.0.0/8", "a loopback address"),
    ("169.254.0.0/16", "a link-local address"),
    ("172.16.0.0/12", "a private address"),
    ("192.0.0.0/24", "an IETF protocol address"),
    ("192.0.2.0/24", "a documentation address"),
    ("192.88.99.0/24", "a 6to4 relay address"),
    ("192.168.0.0/16", "a private address"),
    ("198.18.0.0/15", "a benchmarking address"),
    ("198.51.100.0/24", "a documentation address"),
    ("203.0.113.0/24", "a documentation address"),
    ("224.0.0.0/4", "a multicast address"),
    ("255.255.255.255/32", "a broadcast address"),
    ("240.0.0.0/4", "a reserved address"),
    ("::/128", "an unspecified address"),
    ("::1/128", "a loopback address"),
    ("::/96", "an IPv4-compatible address"),
    ("64:ff9b::/96", "a NAT64 address"),
    ("64:ff9b:1::/48", "a NAT64 address"),
    ("100::/64", "a discard-only address"),
    ("2001::/32", "a Teredo address"),
    ("2001::/23", "an IETF protocol address"),
    ("2001:db8::/32", "a documentation address"),
    ("2002::/16", "a 6to4 address"),
    ("3fff::/20", "a documentation address"),
    ("5f00::/16", "a segment routing address"),
    ("fc00::/7", "a unique local address"),
    ("fe80::/10", "a link-local address"),
    ("fec0::/10", "a site-local address"),
    ("ff00::/8", "a multicast address"),
)
_NEVER_LISTED: Final = frozenset({"an unspecified address", "a multicast address", "a broadcast address"})
_CLASSES: Final = tuple((ipaddress.ip_network(network), title) for network, title in _SPECIAL)
_GLOBAL_IPV6: Final = ipaddress.IPv6Network("2000::/3")
_NAT64: Final = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("64:ff9b:1::/48"))

METADATA_ADDRESSES: Final[frozenset[Address]] = frozenset(
    ipaddress.ip_address(text)
    for text in (
        "169.254.169.254",  # AWS, Google, Azure, OpenStack, DigitalOcean, Hetzner, Oracle
        "fd00:ec2::254",  # AWS
        "169.254.170.2",  # AWS ECS task credentials
        "169.254.170.23",  # AWS EKS pod identity
        "fd00:ec2::23",  # AWS EKS pod identity
        "fd20:ce::254",  # Google
        "168.63.129.16",  # Azure host agent: looks like global unicast
        "100.100.100.200",  # Alibaba
        "192.0.0.192",  # Oracle, older
        "169.254.0.23",  # Tencent
        "169.254.42.42",  # Scaleway
        "fd00:42::42",  # Scaleway
        "fd00:a9fe:a9fe::1",  # Linode
        "fe80::a9fe:a9fe",  # OpenStack
    )
)
METADATA_NAMES: Final = frozenset(
    {
        "metadata",
        "metadata.google.internal",
        "metadata.goog",
        "instance-data",
        "instance-data.ec2.internal",
        "metadata.tencentyun.com",
        "metadata.packet.net",
        "metadata.platformequinix.com",
        "rancher-metadata",
        "rancher-metadata.rancher.internal",
    }
)


def check_name(host: str) -> None:
    """Refuses the names of cloud metadata services, before any look-up. `host` is canonical."""
    if host in METADATA_NAMES:
        raise _refused("The host is a cloud metadata service.")


def check_address(
    address: Address,
    port: int,
    networks: Networks,
    refused: frozenset[Endpoint] = frozenset(),
    *,
    is_local: Callable[[Address], bool] = lambda address: address.is_loopback,
) -> None:
    """Raises `destination_refused`, naming the address's class, unless the address may be dialled.

    `networks` are those the rule lists. `refused` are our own listeners and back ends; `is_local` tells whether an
    address is one of this machine's, for those bound to every address.
    """
    plain = plain_address(address)
    if _is_ours(plain, port, refused, is_local):
        raise _refused("The destination is this proxy itself or a service behind it.")
    verdict = _verdict(plain, networks)
    if verdict:
        raise _refused(f"The destination is {verdict}.")


def plain_address(address: Address) -> Address:
    """What the kernel would dial: the IPv4 address of `::ffff:a.b.c.d`, and no zone id, which only picks the link."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    return address.ipv4_mapped or ipaddress.IPv6Address(int(address))


def _is_ours(address: Address, port: int, refused: frozenset[Endpoint], is_local: Callable[[Address], bool]) -> bool:
    if not refused:
        return False
    for candidate in (address, *_embedded(address)):
        if (candidate, port) in refused:
            return True
        if any(bound.is_unspecified and bound_port == port for bound, bound_port in refused) and is_local(candidate):
            return True
    return False


@lru_cache(4096)
def _verdict(address: Address, networks: Networks) -> str:
    """The class for which the address is refused, "" when it passes."""
    if address in METADATA_ADDRESSES:
        return "a cloud metadata service"
    title = _class(address)
    if title and (title in _NEVER_LISTED or not any(address in network for network in networks)):
        return _metadata_inside(address) or title
    inside = next(filter(None, (_verdict(embedded, networks) for embedded in _embedded(address))), "")
    return f"{title} that leads to {inside}" if inside else ""


def _metadata_inside(address: Address) -> str:
    return "a cloud metadata service" if not METADATA_ADDRESSES.isdisjoint(_embedded(address)) else ""


def _class(address: Address) -> str:
    """The address's class in words, "" for global unicast."""
    for network, title in _CLASSES:
        if address in network:
            return title
    return "a reserved address" if address.version == 6 and address not in _GLOBAL_IPV6 else ""


def _embedded(address: Address) -> tuple[ipaddress.IPv4Address, ...]:
    """The IPv4 addresses a translator or tunnel end would take out of an IPv6 address."""
    if isinstance(address, ipaddress.IPv4Address):
        return ()
    if any(address in network for network in _NAT64) or (int(address) >> 32 == 0 and int(address) > 1):
        return (ipaddress.IPv4Address(int(address) & 0xFFFFFFFF),)
    if address.sixtofour is not None:
        return (address.sixtofour,)
    return address.teredo or ()


def _refused(detail: str) -> GatewayError:
    return GatewayError("destination_refused", detail)
