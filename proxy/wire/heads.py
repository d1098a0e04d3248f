"""Cuts heads out of a byte stream, linear in their size however they are split, and refuses hopeless ones early."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from proxy.errors import GatewayError
from proxy.wire.framing import Limits, broken_reply, malformed, request_line, status_line

_LONE_LF: Final = re.compile(rb"(?<!\r)\n")
_TOKEN_START: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]")
_END: Final = b"\r\n\r\n"


class HeadCutter:
    """Collects bytes until an empty line.

    `feed(data)` returns (head, rest), or None while the head is not whole. `first_line` judges the start line as soon
    as it is there, `fault` makes the error for what no start line can be blamed for. Limits are counted over all bytes
    of the head, so that a head in one segment and one in single bytes meet the same limit at the same size.
    """

    __slots__ = ("_fault", "_first_line", "_judged", "_limits", "_partial", "_too_long", "started")

    def __init__(
        self,
        limits: Limits,
        first_line: Callable[[bytes, Limits], object],
        fault: Callable[[str], GatewayError],
        too_long: Callable[[str], GatewayError],
    ) -> None:
        self._limits = limits
        self._first_line = first_line
        self._fault = fault
        self._too_long = too_long
        self._partial = bytearray()
        self._judged = False
        self.started = False
        """Some bytes of a head have arrived, but not all."""

    def feed(self, data: bytes) -> tuple[bytes, bytes] | None:
        if not self.started:
            end = data.find(_END)
            if 0 < end <= self._limits.head:
                return data[: end + 4], data[end + 4 :]
        return self._collect(data)

    def _collect(self, data: bytes) -> tuple[bytes, bytes] | None:
        partial = self._partial
        seen = len(partial)
        partial += data
        self.started = True
        end = partial.find(_END, max(0, seen - 3))
        self._judge(seen, end + 4 if end >= 0 else len(partial))
        # up to three bytes of the empty line that ends the head may have come already
        if (end if end >= 0 else len(partial) - 3) > self._limits.head:
            raise self._too_long(f"The header section has more than {self._limits.head} bytes.")
        if end < 0:
            return None
        head, rest = bytes(partial[: end + 4]), bytes(partial[end + 4 :])
        self._partial = bytearray()
        self._judged = self.started = False
        return head, rest

    def _judge(self, seen: int, end: int) -> None:
        partial = self._partial
        if not _TOKEN_START.match(partial):
            raise self._fault("The message does not begin with a start line.")
        if _LONE_LF.search(partial, seen, end):
            raise self._fault("A line ends in LF without CR.")
        if self._judged:
            return
        line_end = partial.find(b"\r\n")
        if line_end >= 0:
            self._judged = True
            self._first_line(bytes(partial[:line_end]), self._limits)
        elif len(partial) > self._limits.target + 80:
            self._first_line(bytes(partial), self._limits)
            raise self._fault("The start line is too long.")


def request_cutter(limits: Limits) -> HeadCutter:
    return HeadCutter(limits, request_line, malformed, lambda detail: malformed(detail, 431))


def reply_cutter(limits: Limits) -> HeadCutter:
    return HeadCutter(limits, lambda line, _: status_line(line), broken_reply, broken_reply)
