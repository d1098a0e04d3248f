"""Answers name queries of a pod whose own way to a name server is closed.

A name that some rule could allow gets a synthetic address, the same for all: the firewall redirects whatever is sent
there, and the transparent listener goes by the name. Every other name does not exist, and no query is passed on, so
that nothing can be told to the outside in a name. Messages by RFC 1035 section 4; NODATA by RFC 2308 section 2.2.
"""

from __future__ import annotations

import asyncio
import ipaddress
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from proxy.errors import GatewayError
from proxy.listeners.target import canonical_host
from proxy.upstream.addresses import Address

_HEADER: Final = struct.Struct("!6H")
_INTERNET: Final = 1
_TYPE_OF: Final = {4: 1, 6: 28}
"""A and AAAA (RFC 3596) by version."""
_ANSWER: Final = 0x8000
_OPCODE: Final = 0x7800
_RECURSION: Final = 0x0080
_DESIRED: Final = 0x0100
_FORMAT_ERROR, _NO_SUCH_NAME, _NOT_IMPLEMENTED = 1, 3, 4
LIFETIME: Final = 5
"""Seconds for which an answer may be kept: after a reload of the policies another one holds."""
LARGEST: Final = 4_096

Known = Callable[[str], Sequence[Address] | None]
"""A canonical name in; its addresses out, None where the name does not exist."""


class Question(NamedTuple):
    """The one question of a query, and its bytes as they are repeated in the answer."""

    name: str
    kind: int
    netclass: int
    raw: bytes


def answer(query: bytes, known: Known) -> bytes | None:
    """The answer to a query; None for what is none and must not be answered."""
    if len(query) < _HEADER.size or len(query) > LARGEST:
        return None
    number, flags, questions, *_ = _HEADER.unpack_from(query)
    if flags & _ANSWER:
        return None
    if flags & _OPCODE:
        return _reply(number, flags, _NOT_IMPLEMENTED)
    question = _question(query) if questions == 1 else None
    if question is None:
        return _reply(number, flags, _FORMAT_ERROR)
    addresses = _addresses(question, known)
    if addresses is None:
        return _reply(number, flags, _NO_SUCH_NAME, question)
    wanted = [one for one in addresses if _TYPE_OF[one.version] == question.kind]
    return _reply(number, flags, 0, question, wanted)


def _addresses(question: Question, known: Known) -> Sequence[Address] | None:
    if question.netclass != _INTERNET:
        return None
    try:
        return known(canonical_host(question.name))
    except GatewayError:  # no name that a call could be made to
        return None


def _question(query: bytes) -> Question | None:
    """None for a name that does not end, is compressed (there is nothing before it), or is no text."""
    labels, at = [], _HEADER.size
    while at < len(query) and 0 < query[at] < 64:
        labels.append(query[at + 1 : at + 1 + query[at]])
        at += 1 + query[at]
    if at + 5 > len(query) or query[at] != 0 or at - _HEADER.size > 254:
        return None
    kind, netclass = struct.unpack_from("!2H", query, at + 1)
    name = b".".join(labels)
    if not name.isascii() or any(b"." in label for label in labels):
        return None
    return Question(name.decode(), kind, netclass, query[_HEADER.size : at + 5])


def _reply(
    number: int, flags: int, code: int, question: Question | None = None, addresses: Sequence[Address] = ()
) -> bytes:
    status = _ANSWER | (flags & (_OPCODE | _DESIRED)) | _RECURSION | code
    head = _HEADER.pack(number, status, 1 if question else 0, len(addresses), 0, 0)
    records = b"".join(_record(address) for address in addresses)
    return head + (question.raw if question else b"") + records


def _record(address: Address) -> bytes:
    """A record whose name points back at the question's (RFC 1035 section 4.1.4)."""
    packed = address.packed
    return (
        struct.pack("!3HIH", 0xC000 | _HEADER.size, _TYPE_OF[address.version], _INTERNET, LIFETIME, len(packed))
        + packed
    )


class Names:
    """What exists: names that `allowed` says a call could go to, and `records` with addresses of their own."""

    def __init__(
        self, allowed: Callable[[str], bool], synthetic: Sequence[Address], records: Mapping[str, Sequence[Address]]
    ) -> None:
        self._allowed = allowed
        self._synthetic = synthetic
        self._records = {canonical_host(name): addresses for name, addresses in records.items()}

    def __call__(self, name: str) -> Sequence[Address] | None:
        if name in self._records:
            return self._records[name]
        if _is_address(name):
            return None
        return self._synthetic if self._allowed(name) else None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class DnsStub(asyncio.DatagramProtocol):
    """The stub on a UDP socket."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._transport: asyncio.DatagramTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        reply = answer(data, self._known)
        if reply is not None:
            self._transport.sendto(reply, addr)


async def serve_names(host: str, port: int, known: Known) -> asyncio.DatagramTransport:
    """Binds the stub. Raises OSError when the address cannot be had."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: DnsStub(known), local_addr=(host, port))
    return transport
