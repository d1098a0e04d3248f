"""The name stub answers what it is asked, in one message, and never more."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.listeners.dns_stub import Names, answer
from proxy.upstream.addresses import Address

SYNTHETIC = (ipaddress.ip_address("198.18.0.1"), ipaddress.ip_address("100::1"))
DATABASE = (ipaddress.ip_address("10.1.2.3"),)
A, AAAA, HTTPS = 1, 28, 65
NXDOMAIN, FORMERR, NOTIMP = 3, 1, 4

known = Names(lambda name: name == "api.example.com", SYNTHETIC, {"DB.internal": DATABASE})


def query(name: str, kind: int = A, *, flags: int = 0x100, netclass: int = 1, more: bytes = b"") -> bytes:
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split(".") if part) + b"\0"
    return struct.pack("!6H", 99, flags, 1, 0, 0, 0) + labels + struct.pack("!2H", kind, netclass) + more


def result(message: bytes) -> tuple[int, int, bytes]:
    """(code, answers, the last bytes)"""
    reply = answer(message, known)
    assert reply is not None
    number, flags, _, answers, *_ = struct.unpack_from("!6H", reply)
    assert number == 99
    assert flags & 0x8080 == 0x8080
    return flags & 15, answers, reply


def addresses(name: str, kind: int) -> Sequence[Address]:
    code, answers, reply = result(query(name, kind))
    assert code == 0
    return [ipaddress.ip_address(reply[-4:] if kind == A else reply[-16:])] if answers else []


@pytest.mark.parametrize("name", ["api.example.com", "API.Example.COM", "api.example.com."])
def test_a_name_that_could_be_called_has_the_synthetic_address_of_each_version(name: str) -> None:
    assert addresses(name, A) == [SYNTHETIC[0]]
    assert addresses(name, AAAA) == [SYNTHETIC[1]]


def test_it_exists_without_records_of_other_types() -> None:
    assert result(query("api.example.com", HTTPS))[:2] == (0, 0)


@pytest.mark.parametrize(
    "name",
    [
        "example.com",
        "x.api.example.com",
        "api.example.com.ns.svc.cluster.local",
        "",
        "127.0.0.1",
        "a..b",
        "-",
        "0x7f.1",
    ],
)
def test_no_other_name_exists(name: str) -> None:
    assert result(query(name))[:2] == (NXDOMAIN, 0)


def test_a_direct_destination_has_the_address_it_was_given() -> None:
    assert addresses("db.internal", A) == list(DATABASE)
    assert addresses("db.internal", AAAA) == []


def test_another_class_than_the_internets_is_not_known() -> None:
    assert result(query("api.example.com", netclass=3))[0] == NXDOMAIN


def test_the_reply_repeats_the_question_and_leaves_options_out() -> None:
    edns = b"\0\0\x29\x10\0\0\0\0\0\0\0"
    asked = query("api.example.com", more=edns)
    assert answer(asked, known) == answer(query("api.example.com"), known)


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (query("api.example.com", flags=0x2900), NOTIMP),
        (struct.pack("!6H", 99, 0, 2, 0, 0, 0) + b"\0\0\1\0\1", FORMERR),
        (struct.pack("!6H", 99, 0, 1, 0, 0, 0) + b"\xc0\x0c\0\1\0\1", FORMERR),
        (struct.pack("!6H", 99, 0, 1, 0, 0, 0) + b"\3abc", FORMERR),
        (struct.pack("!6H", 99, 0, 1, 0, 0, 0) + b"\3a.b\0\0\1\0\1", FORMERR),
    ],
    ids=["notify", "two questions", "pointer", "cut", "dot in a label"],
)
def test_what_cannot_be_answered_is_said_to_be_so(message: bytes, code: int) -> None:
    assert result(message)[:2] == (code, 0)


@pytest.mark.parametrize("message", [b"", b"short", query("api.example.com", flags=0x8100), b"\0" * 5000])
def test_what_is_no_query_gets_no_answer(message: bytes) -> None:
    assert answer(message, known) is None


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_no_bytes_make_it_fail_or_answer_at_length(message: bytes) -> None:
    reply = answer(message, known)
    assert reply is None or len(reply) <= len(message) + 28
