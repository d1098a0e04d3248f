"""The nftables ruleset that closes a pod: rendered from settings, pure (nft(8)).

Packets are told apart by the user who sends them. What the proxy's user sends passes; TCP of everybody else goes to
the transparent listener, their name queries to the stub, and the rest is refused: UDP 443 and IPv6 like anything else.
Loopback, replies to connections that came in, and the reviewed `direct` list are the exceptions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from proxy.upstream.addresses import METADATA_ADDRESSES, Network

TABLE: Final = "sluicegate"
MARK: Final = "0x5347"
"""Marks the proxy's own connections, since their last packets belong to no user any more."""


class Direct(NamedTuple):
    """Traffic that passes by the proxy: to a network's ports, for a reason that a reviewer can read."""

    network: Network
    protocol: str
    ports: tuple[int, ...]
    reason: str


class Firewall(NamedTuple):
    """What the ruleset depends on. `ways` and `names` are ports by IP version, empty in explicit-proxy mode."""

    user: int
    ways: dict[int, int]
    names: dict[int, int]
    direct: Sequence[Direct] = ()


_LOOPBACK: Final = {4: "ip daddr 127.0.0.0/8", 6: "ip6 daddr ::1"}
_ANSWERS: Final = "ct direction reply ct state established meta l4proto tcp accept"
"""To whoever called into the pod: probes, and the application's own clients. TCP alone, since a datagram that came from
outside must not open a way out."""
_REFUSED: Final = "counter reject with icmpx type admin-prohibited"
_FAMILY: Final = {4: "ip", 6: "ip6"}
_NFPROTO: Final = {4: "ipv4", 6: "ipv6"}


def ruleset(firewall: Firewall) -> str:
    """The text that `nft -f` loads in one transaction; loaded again it replaces itself."""
    return "\n".join([
        f"table inet {TABLE}",
        f"delete table inet {TABLE}",
        f"table inet {TABLE} {{",
        "  chain redirected {",
        "    type nat hook output priority -100; policy accept;",
        *(f"    {rule}" for rule in _redirected(firewall)),
        "  }",
        "  chain applications {",
        *(f"    {rule}" for rule in _applications(firewall)),
        "  }",
        "  chain outgoing {",
        "    type filter hook output priority 0; policy drop;",
        *(f"    {rule}" for rule in _outgoing(firewall)),
        "  }",
        "}",
        "",
    ])  # fmt: skip


def _redirected(firewall: Firewall) -> Iterator[str]:
    yield f"meta skuid {firewall.user} return"
    for version, port in sorted(firewall.names.items()):
        yield f"meta nfproto {_NFPROTO[version]} udp dport 53 redirect to :{port}"
    yield from (f"{loopback} return" for loopback in _LOOPBACK.values())
    yield from (f"{_match(direct)} return" for direct in firewall.direct)
    for version, port in sorted(firewall.ways.items()):
        yield f"meta nfproto {_NFPROTO[version]} meta l4proto tcp redirect to :{port}"


def _outgoing(firewall: Firewall) -> Iterator[str]:
    yield f"meta skuid {firewall.user} ct mark set {MARK} accept"
    # Whoever else has a socket: a connection of the proxy's that is still remembered must not carry its packets.
    yield f"meta skuid != {firewall.user} goto applications"
    # What is left belongs to no socket: the kernel sends it, such as the last packets of a connection.
    yield f"ct mark {MARK} ct state established meta l4proto tcp accept"
    yield from (f"{loopback} accept" for loopback in _LOOPBACK.values())
    yield _ANSWERS
    yield "meta l4proto { icmp, ipv6-icmp } ct state related accept"
    yield (
        "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit, mld-listener-report,"
        " mld-listener-done, mld2-listener-report } accept"
    )
    yield _REFUSED


def _applications(firewall: Firewall) -> Iterator[str]:
    yield from (f"{loopback} accept" for loopback in _LOOPBACK.values())
    yield _ANSWERS
    yield from (f"{one} {_REFUSED}" for one in _metadata())
    yield from (f'{_match(direct)} counter accept comment "{direct.reason}"' for direct in firewall.direct)
    yield _REFUSED


def _metadata() -> Iterator[str]:
    """Matches for the addresses that hand out cloud credentials: no `direct` entry may reach them."""
    for version, family in _FAMILY.items():
        addresses = sorted(one for one in METADATA_ADDRESSES if one.version == version)
        yield f"{family} daddr {{ {', '.join(map(str, addresses))} }}"


def _match(direct: Direct) -> str:
    ports = ", ".join(map(str, direct.ports))
    return f"{_FAMILY[direct.network.version]} daddr {direct.network} {direct.protocol} dport {{ {ports} }}"
