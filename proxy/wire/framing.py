"""HTTP/1.1 message framing as pure functions: request line, status line, header section, body length (RFC 9112).

The header section is judged by llhttp (through httptools). What llhttp lets through is judged here: request-line form
and version, Host, transfer codings other than `chunked`, Transfer-Encoding in HTTP/1.0, bodies on CONNECT and Upgrade,
odd Content-Length values, header names with underscores that pose as framing, and every size limit.

A fault raises GatewayError: `malformed_request` for what a client sent, `upstream_protocol` for what a provider sent.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import httptools

from proxy.errors import GatewayError
from proxy.model import Headers


class Limits(NamedTuple):
    """Size limits of one message, in bytes unless said otherwise. llhttp has none of its own."""

    target: int = 16_384
    head: int = 65_536
    lines: int = 256
    chunk_line: int = 1_024
    trailers: int = 8_192
    interim: int = 16


# RFC 9112 section 3: method SP request-target SP HTTP-version; a method is a token (RFC 9110 section 5.6.2). One in
# small letters is another method to policy, but the same one to a server that compares without case: it never passes.
# The target's bytes are judged where its form is known (proxy/listeners/target.py); blanks and controls never pass.
_REQUEST_LINE: Final = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Z]{1,64}) ([\x21-\x7e]+) HTTP/1\.([01])")
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: ([\t\x20-\x7e\x80-\xff]{0,1024}))?")
_LENGTH: Final = re.compile(rb"0|[1-9][0-9]{0,17}")


def malformed(detail: str, status: int = 400) -> GatewayError:
    return GatewayError("malformed_request", detail, status=status)


def broken_reply(detail: str) -> GatewayError:
    return GatewayError("upstream_protocol", detail)


class _Lines:
    """Collects header lines from llhttp; `complete` is set when the section ended well."""

    __slots__ = ("complete", "lines")

    def __init__(self) -> None:
        self.lines: Headers = []
        self.complete = False

    def on_header(self, name: bytes, value: bytes) -> None:
        # llhttp trims leading blanks only; both sides of the value are optional white space (RFC 9112 section 5.1)
        self.lines.append((name, value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        self.complete = True


def header_section(section: bytes) -> Headers | None:
    """Header lines of a section that ends in CRLF CRLF (or is CRLF alone), in order; None when llhttp refuses it."""
    collected = _Lines()
    # GET gives llhttp no reason to judge the body: that is this file's own work
    parser = httptools.HttpRequestParser(collected)
    try:
        parser.feed_data(b"GET / HTTP/1.1\r\n" + section)
    except httptools.HttpParserUpgrade:
        pass
    except httptools.HttpParserError:
        return None
    return collected.lines if collected.complete else None


def request_line(line: bytes, limits: Limits) -> tuple[str, bytes, int]:
    """(method, request target, minor version) of a request line without its CRLF."""
    match = _REQUEST_LINE.fullmatch(line)
    if match is None:
        if line.startswith(b"PRI * HTTP/2"):
            raise GatewayError("protocol_unsupported", "The client began to speak HTTP/2.")
        raise malformed(
            "The request line is not `METHOD target HTTP/1.1` with one space between its parts."
            if len(line) <= limits.target
            else "The request line is too long.",
            400 if len(line) <= limits.target else 414,
        )
    method, target, minor = match.groups()
    if len(target) > limits.target:
        raise malformed(f"The request target has more than {limits.target} bytes.", 414)
    return method.decode("ascii"), target, 1 if minor == b"1" else 0


def status_line(line: bytes) -> tuple[int, bytes, int]:
    """(status, reason, minor version) of a status line without its CRLF."""
    match = _STATUS_LINE.fullmatch(line)
    if match is None:
        raise broken_reply("The provider's answer does not begin with an HTTP/1.1 status line.")
    minor, status, reason = match.groups()
    return int(status), reason or b"", 1 if minor == b"1" else 0


def comparable(name: bytes) -> bytes:
    """The name under which two header names count as the same."""
    return name.lower().replace(b"_", b"-")


def content_length(values: list[bytes]) -> int | None:
    """The one Content-Length; None without one. Raises ValueError for repeats and anything but plain digits.

    RFC 9112 section 6.3 lets equal repeats pass; refusing them leaves nothing for two parsers to read differently.
    """
    if not values:
        return None
    if len(values) > 1 or _LENGTH.fullmatch(values[0]) is None:
        raise ValueError("Content-Length")
    return int(values[0])


def is_chunked(values: list[bytes]) -> bool:
    """Whether the body is chunked; raises ValueError for any other transfer coding (RFC 9112 section 6.1)."""
    if not values:
        return False
    if len(values) > 1 or values[0].lower() != b"chunked":
        raise ValueError("Transfer-Encoding")
    return True


def tokens(values: list[bytes]) -> frozenset[bytes]:
    """Lower-case members of a comma-separated list header (RFC 9110 section 5.6.1)."""
    if not values:
        return frozenset()
    return frozenset(part.strip(b" \t").lower() for value in values for part in value.split(b",") if part.strip(b" \t"))
