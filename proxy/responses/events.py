"""Errors inside a stream of server-sent events, rewritten in place (HTML Living Standard, section 9.2.6).

Once the head has left, an event is the only place for an error. Events that cannot be one pass as their bytes come.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec

from proxy.dialect import Answer, Dialect
from proxy.model import Headers
from proxy.responses.classify import Finding, classify
from proxy.responses.rewriting import replacement

LONGEST: Final = 65_536
"""Bytes of an event that are held until it is known what it is; a longer one passes as it is."""
_END: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LINE: Final = re.compile(rb"\r\n|\n|\r")
_TAIL: Final = 3


class EventErrors:
    """Takes the bytes of one stream and gives back those to send. `found` is called with each error's finding.

    `mode` is how errors are shown: "problem" or "native" take the place of the event's data, "annotate" leaves it and
    puts a comment in front. `now` gives epoch seconds.
    """

    __slots__ = ("_call_id", "_dialect", "_found", "_headers", "_mode", "_now", "_passing", "_pending", "_tail")

    def __init__(
        self,
        dialect: Dialect,
        headers: Headers,
        call_id: str,
        mode: str,
        now: Callable[[], float],
        found: Callable[[Finding], None],
    ) -> None:
        self._dialect = dialect
        self._headers = headers
        self._call_id = call_id
        self._mode = mode
        self._now = now
        self._found = found
        self._pending = b""
        self._passing = False  # the event that has begun is no error: the rest of it needs no look
        self._tail = b""

    def feed(self, payload: bytes) -> bytes:
        """What may be sent on of the stream so far."""
        out = []
        left = self._pending + payload
        self._pending = b""
        while left:
            taken, left = self._passed(left) if self._passing else self._looked_at(left)
            if not taken:
                self._pending = left
                break
            out.append(taken)
        return b"".join(out)

    def end(self) -> bytes:
        """The rest, when the stream has ended: readers may take an event without its empty line for one."""
        left, self._pending = self._pending, b""
        return self._judged(left) if left else b""

    def _passed(self, data: bytes) -> tuple[bytes, bytes]:
        """Bytes of an event that is no error, and what follows it. Its end may have begun in an earlier piece."""
        end = _END.search(self._tail + data)
        if end is None:
            self._tail = (self._tail + data)[-_TAIL:]
            return data, b""
        at = end.end() - len(self._tail)
        self._passing, self._tail = False, b""
        return data[:at], data[at:]

    def _looked_at(self, data: bytes) -> tuple[bytes, bytes]:
        """The first event of `data` and what follows it; nothing yet where it is not known what the event is."""
        end = _END.search(data)
        if end is not None:
            return self._judged(data[: end.end()]), data[end.end() :]
        if len(data) > LONGEST or self._harmless(data):
            self._passing, self._tail = True, b""
            return self._passed(data)
        return b"", data

    def _harmless(self, begun: bytes) -> bool:
        """Whether an event that has begun cannot become an error any more, by its name alone."""
        if self._dialect.event_errors:
            return False
        names = [value for name, value in _fields(begun, whole=False) if name == b"event"]
        return bool(names) and names[0].decode("utf-8", "replace") not in self._dialect.event_names

    def _judged(self, event: bytes) -> bytes:
        fields = _fields(event)
        data = b"\n".join(value for name, value in fields if name == b"data")
        named = [value.decode("utf-8", "replace") for name, value in fields if name == b"event"]
        answer = Answer(200, self._headers, data)
        dialect = self._dialect
        if not data or not (
            any(name in dialect.event_names for name in named)
            or any(sign.holds(answer) for sign in dialect.event_errors)
        ):
            return event
        finding = classify(answer, dialect, self._now())
        self._found(finding)
        if self._mode == "annotate":
            return f": sluicegate-error-kind: {finding.kind}; the data is the provider's, untrusted\n".encode() + event
        body, _ = replacement(finding, dialect, self._call_id, self._mode, safe=False)
        if not named and self._mode == "problem":
            body = _with_error(body)
        name = b"event: error\n" if named else b""
        return name + b"".join(b"data: %b\n" % line for line in body.split(b"\n")) + b"\n"


def _with_error(problem: bytes) -> bytes:
    """The problem with a member `error` (RFC 9457 section 3.2): where events have no names, clients know a failure by
    that member alone and would take the end of the stream for an answer's."""
    document = msgspec.json.decode(problem)
    error = {"message": document["detail"], "type": document["kind"], "code": document["code"]}
    return msgspec.json.encode({**document, "error": error})


def _fields(event: bytes, *, whole: bool = True) -> list[tuple[bytes, bytes]]:
    """The fields of an event; without `whole` those whose line has ended."""
    lines = _LINE.split(event.removeprefix(b"\xef\xbb\xbf"))
    found = []
    for line in lines if whole else lines[:-1]:
        name, _, value = line.partition(b":")
        if name:
            found.append((name, value.removeprefix(b" ")))
    return found
