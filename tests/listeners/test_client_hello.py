"""What a ClientHello asks for, however it is cut, and what is no ClientHello."""

from __future__ import annotations

import ssl

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.listeners import client_hello
from proxy.listeners.client_hello import Hello, parse


def real_hello(name: str | None = "api.test", alpn: tuple[str, ...] = ("h2", "http/1.1")) -> bytes:
    """The first flight of the standard library's own client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if alpn:
        context.set_alpn_protocols(list(alpn))
    sent = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname=name).do_handshake()
    return sent.read()


def vector(size: int, content: bytes) -> bytes:
    return len(content).to_bytes(size, "big") + content


def sni(*names: bytes, kind: int = 0) -> bytes:
    return vector(2, vector(2, b"".join(bytes((kind,)) + vector(2, name) for name in names)))


def extension(kind: int, body: bytes) -> bytes:
    return kind.to_bytes(2, "big") + body


def message(extensions: bytes | None = b"", session: bytes = b"", tail: bytes = b"", kind: int = 1) -> bytes:
    body = b"\x03\x03" + bytes(32) + vector(1, session) + vector(2, b"\x13\x01") + vector(1, b"\x00")
    body += b"" if extensions is None else vector(2, extensions)
    return bytes((kind,)) + vector(3, body + tail)


def records(content: bytes, size: int = 16384) -> bytes:
    return b"".join(
        b"\x16\x03\x01" + vector(2, content[start : start + size]) for start in range(0, len(content), size)
    )


@pytest.mark.parametrize(
    ("name", "alpn"),
    [("api.test", ("h2", "http/1.1")), ("api.test", ()), (None, ("http/1.1",)), ("xn--bcher-kva.test", ("grpc-exp",))],
)
def test_a_real_clients_hello_is_read(name, alpn):
    assert parse(real_hello(name, alpn)) == Hello(name, alpn)


def test_a_hello_is_read_whichever_way_it_is_cut_into_segments():
    hello = real_hello()
    assert [parse(hello[:end]) for end in range(len(hello))] == [None] * len(hello)


@pytest.mark.parametrize("first", [1, 2, 3, 4, 5, 100])
@pytest.mark.parametrize("size", [5, 200, 16384])
def test_a_hello_spread_over_records_is_read(first, size):
    content = real_hello()[5:]
    split = records(content[:first]) + records(content[first:], size)
    assert parse(split) == Hello("api.test", ("h2", "http/1.1"))
    assert parse(split[:-1]) is None


def test_what_follows_in_later_records_is_left_alone():
    assert parse(real_hello() + b"\x17\x03\x03\x00\x01x") == Hello("api.test", ("h2", "http/1.1"))


def test_a_hello_without_extensions_asks_for_nothing():
    assert parse(records(message(None))) == Hello(None, ())
    assert parse(records(message())) == Hello(None, ())


def test_unknown_and_grease_extensions_and_protocols_are_tolerated():
    alpn = vector(2, vector(2, vector(1, b"\xfa\xfa") + vector(1, b"http/1.1")))
    extensions = extension(0x0A0A, vector(2, b"")) + extension(0, sni(b"a.test")) + extension(16, alpn)
    extensions += extension(0xFE0D, vector(2, b"encrypted"))
    assert parse(records(message(extensions))) == Hello("a.test", ("\xfa\xfa", "http/1.1"))


@pytest.mark.parametrize("size", [1, 2, 64])
def test_a_padded_hello_of_many_kilobytes_is_read(size):
    extensions = extension(0, sni(b"a.test")) + extension(21, vector(2, bytes(size * 900)))
    assert parse(records(message(extensions))) == Hello("a.test", ())


@pytest.mark.parametrize(
    "received",
    [
        b"GET / HTTP/1.1\r\n", b"G", b"\x80\x2e\x01\x03\x01", b"\x17\x03\x03\x00\x01x", b"\x15\x03\x03\x00\x02\x02\x28",
        b"\x16\x02", b"\x16GET", b"\x16\x03\x01\x00\x00", b"\x16\x03\x01\x40\x01", b"\x16\x03\x01\xff\xff",
        b"\x16\x03\x01\x00\x05\x02", b"\x16\x03\x01\x00\x04\x01\x01\x00\x01", b"\x16\x03\x01\x00\x01\x02",
        b"\x16\x03\x01\x00\x01\x01\x17\x03\x03\x00\x01x",
        records(message(kind=2)), records(message(tail=b"x")), records(message() + b"\x00"),
        records(message() + message()), records(message(session=bytes(33))),
        records(message(extension(0, sni(b"a.test")) * 2)), records(message(extension(0, sni(b"a.test", b"b.test")))),
        records(message(extension(0, sni(b"a.test", kind=1)))), records(message(extension(0, sni(b"")))),
        records(message(extension(0, sni()))), records(message(extension(0, vector(2, b"")))),
        records(message(extension(0, sni(b"a\x00.test")))), records(message(extension(0, sni(b"\xc3\xbc.test")))),
        records(message(extension(0, vector(2, b"\x00\xff\x00")))), records(message(extension(0, sni(b"a") + b"x"))),
        records(message(extension(16, vector(2, vector(2, b""))))),
        records(message(extension(16, vector(2, vector(2, b"\x00"))))),
        records(message(b"\x00\x00\xff")), records(b"\x01\x00\x00\x00"), records(b"\x01\x00\x00\x02\x03\x03"),
    ],
)  # fmt: skip
def test_what_is_not_a_client_hello_is_refused(received):
    with pytest.raises(ValueError):
        parse(received)


def test_a_hello_is_never_awaited_beyond_its_limit():
    with pytest.raises(ValueError, match="64 KiB"):
        parse(records(b"\x01" + (64 * 1024 + 1).to_bytes(3, "big")))
    assert parse(records(b"\x01\x00\xff\xff" + bytes(0xFFFF - 1))) is None


def test_a_hello_in_too_many_tiny_records_is_refused():
    tiny = records(message(extension(21, vector(2, bytes(300)))), 1)
    assert parse(tiny[: 6 * 100]) is None
    with pytest.raises(ValueError, match="too many records"):
        parse(tiny)


@pytest.mark.parametrize(
    ("alert", "number"),
    [
        (client_hello.HANDSHAKE_FAILURE, 40),
        (client_hello.ACCESS_DENIED, 49),
        (client_hello.UNRECOGNIZED_NAME, 112),
        (client_hello.NO_APPLICATION_PROTOCOL, 120),
    ],
)
def test_a_client_understands_the_alerts(alert, number):
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(received, sent, server_hostname="api.test")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    received.write(alert)
    with pytest.raises(ssl.SSLError, match=r"(?i)alert|unrecognized name"):
        client.do_handshake()
    assert alert[-2:] == bytes((2, number))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 520), st.binary(max_size=4))
def test_a_damaged_hello_gives_a_value_nothing_or_a_value_error(tail, position, damage):
    hello = HELLO[:position] + damage + HELLO[position + len(damage) :] + tail
    try:
        assert isinstance(parse(hello), Hello | None)
    except ValueError:
        return


HELLO = real_hello()
