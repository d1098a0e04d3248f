"""Names to addresses that may be dialled: one look-up, every answer checked, the checked address dialled.

A name whose answers include one refused address is refused whole: otherwise a name server decides, answer by answer,
what the guard gets to see. Answers are kept for a few seconds, in memory, bounded.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from proxy.errors import GatewayError
from proxy.upstream.addresses import Address, Endpoint, Networks, check_address, check_name, plain_address

Dialable: TypeAlias = tuple[str, ...]
"""IP addresses in text, in the order in which they are tried."""
GetAddrInfo: TypeAlias = Callable[[str], Awaitable[Sequence[tuple[Any, ...]]]]
"""Takes a host name, returns rows as `socket.getaddrinfo` does; OSError when there is no answer."""

LONGEST_LOOKUP: Final = 10.0
"""Seconds after which a look-up counts as failed."""


async def system_getaddrinfo(host: str) -> Sequence[tuple[Any, ...]]:
    """The system's resolver, in the order of RFC 6724."""
    return await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)


def is_own_address(address: Address) -> bool:
    """Whether an address is one of this machine's: only those can be bound. Sends nothing."""
    if address.is_loopback:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True


@dataclass(slots=True)
class _Answer:
    """One look-up's result. `checked` remembers what passed the guard, for each port and list of networks."""

    addresses: tuple[Address, ...]
    expires: float
    checked: dict[tuple[int, int], tuple[Networks, Dialable]] = field(default_factory=dict)


class Resolver:
    """Resolves and checks. `lifetime` is how many seconds an answer is kept, `failure_lifetime` a failed look-up;
    `capacity` bounds the answers kept, `pending` the names looked up at the same time."""

    def __init__(
        self,
        getaddrinfo: GetAddrInfo = system_getaddrinfo,
        *,
        refused: frozenset[Endpoint] = frozenset(),
        clock: Callable[[], float] | None = None,
        lifetime: float = 5.0,
        failure_lifetime: float = 1.0,
        capacity: int = 1024,
        pending: int = 128,
    ) -> None:
        self._getaddrinfo = getaddrinfo
        self._refused = refused
        self._refused_names: frozenset[tuple[str, int]] = frozenset()
        self._clock = clock
        self._lifetime = lifetime
        self._failure_lifetime = failure_lifetime
        self._capacity = capacity
        self._pending_limit = pending
        self._answers: dict[str, _Answer] = {}
        self._pending: dict[str, asyncio.Task[_Answer]] = {}

    def resolve(self, host: str, port: int, networks: Networks = ()) -> Dialable | Awaitable[Dialable]:
        """The addresses of `host` (canonical) that may be dialled on `port`; at once when they are known.

        Raises `destination_refused` when any address is refused, `upstream_unreachable` when the name has none,
        `overloaded` when too many names are being looked up. The same may be raised by the awaitable.
        """
        if (host, port) in self._refused_names:
            raise GatewayError("destination_refused", "The destination is a service behind this proxy.")
        answer = self._answers.get(host)
        if answer is None or answer.expires <= self._now():
            check_name(host)
            literal = _literal(host)
            if literal is None:
                return self._look_up(host, port, networks)
            answer = _Answer((literal,), self._now() + self._lifetime)
            self._keep(host, answer)
        return self._checked(host, answer, port, networks)

    def refuse(self, endpoints: frozenset[Endpoint]) -> None:
        """Adds listeners or back ends of ours to what is refused whatever a policy says."""
        self._refused |= endpoints
        self._forget_checks()

    async def refuse_back_end(self, host: str, port: int) -> None:
        """Adds a back end by name: the name itself, and the addresses it has now. Call it again at reconnection.

        A name that cannot be resolved now is refused by name only.
        """
        self._refused_names |= {(host, port)}
        self._forget_checks()
        literal = _literal(host)
        try:
            addresses = (literal,) if literal else (await self._answer(host)).addresses
        except GatewayError:
            return
        self.refuse(frozenset((plain_address(address), port) for address in addresses))

    def _now(self) -> float:
        return (self._clock or asyncio.get_running_loop().time)()

    def _forget_checks(self) -> None:
        for answer in self._answers.values():
            answer.checked.clear()

    async def _look_up(self, host: str, port: int, networks: Networks) -> Dialable:
        return self._checked(host, await self._answer(host), port, networks)

    async def _answer(self, host: str) -> _Answer:
        """One look-up for all who wait for the same name; a caller that leaves does not end it for the others."""
        task = self._pending.get(host)
        if task is None:
            if len(self._pending) >= self._pending_limit:
                raise GatewayError("overloaded", "Too many host names are being looked up.", retry_after=1)
            task = asyncio.create_task(self._ask(host))
            self._pending[host] = task
            task.add_done_callback(lambda _: self._pending.pop(host, None))
        return await asyncio.shield(task)

    async def _ask(self, host: str) -> _Answer:
        addresses: tuple[Address, ...] = ()
        try:
            async with asyncio.timeout(LONGEST_LOOKUP):
                rows = await self._getaddrinfo(host)
            addresses = tuple(dict.fromkeys(ipaddress.ip_address(row[4][0]) for row in rows))
        except (OSError, UnicodeError, ValueError):
            pass  # TimeoutError is an OSError too; each of them means that the name has no address now
        lifetime = self._lifetime if addresses else self._failure_lifetime
        answer = _Answer(addresses, self._now() + lifetime)
        self._keep(host, answer)
        return answer

    def _keep(self, host: str, answer: _Answer) -> None:
        self._answers.pop(host, None)
        while len(self._answers) >= self._capacity:
            del self._answers[next(iter(self._answers))]
        self._answers[host] = answer

    def _checked(self, host: str, answer: _Answer, port: int, networks: Networks) -> Dialable:
        # By identity: hashing networks costs more than the rest, and a rule hands in the same tuple every time.
        known = answer.checked.get((port, id(networks)))
        if known is not None and known[0] is networks:
            return known[1]
        if not answer.addresses:
            raise GatewayError("upstream_unreachable", f"The name {host} could not be resolved.")
        for address in answer.addresses:
            check_address(address, port, networks, self._refused, is_local=is_own_address)
        dialable = tuple(_text(address) for address in answer.addresses)
        if len(answer.checked) < 64:  # an agent may try 65,535 ports
            answer.checked[port, id(networks)] = (networks, dialable)
        return dialable


def _text(address: Address) -> str:
    plain = plain_address(address)
    return str(plain if plain.version == 4 else address)


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
