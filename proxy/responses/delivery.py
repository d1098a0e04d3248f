"""The reply on its way to the client: head rendered, credential masked, body framed anew, or a refusal of our own."""

from __future__ import annotations

from proxy.errors import GatewayError
from proxy.model import Call, Headers
from proxy.responses.classify import Finding
from proxy.responses.events import EventErrors
from proxy.responses.judging import Judging
from proxy.responses.kinds import kind_of
from proxy.responses.links import pointing_back
from proxy.responses.masking import SHORTEST, CompressedGuard, Masks, PlainMasker, Reflected, masker
from proxy.responses.problem import render
from proxy.responses.rewriting import annotated, described_anew, reason, rewritten, verdict_lines
from proxy.wire.chunks import frame, frame_end
from proxy.wire.reply_head import ReplyHead, ReplySection
from proxy.wire.server_connection import ServerConnection

_LENGTH, _CODING = b"content-length", b"transfer-encoding"


def _block(lines: Headers) -> bytes:
    parts: list[bytes] = []
    for name, value in lines:
        parts += (name, b": ", value, b"\r\n")
    return b"".join(parts)


def without_cookies(lines: Headers) -> Headers:
    """The lines but those that set cookies (RFC 6265 and, long obsolete, RFC 2965)."""
    return [line for line in lines if line[0].lower() not in (b"set-cookie", b"set-cookie2")]


class Delivery:
    """Writes one call's reply to the client's connection; when that goes on is the exchange's to say. Nothing waits.

    `started` says whether the reply's head has left (after that only `cut` can tell the client of a failure);
    `status` and `bytes_out` are for the audit record; `hits` counts maskings; `mode` is the rule's choice of how a
    provider's failures are shown: "problem", "native" or "annotate"; `events` looks for them among streamed events.
    """

    __slots__ = (
        "_call", "_chunked", "_coding", "_connection", "_drops_cookies", "_hits", "_left", "_masker", "_masks", "_most",
        "_pending",
        "bytes_out", "events", "keep", "mode", "started", "status",
    )  # fmt: skip

    def __init__(self, connection: ServerConnection, call: Call) -> None:
        self._connection = connection
        self._call = call
        self._masks: Masks | None = None
        self._masker: PlainMasker | CompressedGuard | None = None
        self._pending = b""
        self._coding = b""
        self._chunked = False
        self._left: int | None = None
        self._most: int | None = None
        self._drops_cookies = False
        self.events: EventErrors | None = None
        self.keep = False
        self.mode = "problem"
        self.started = False
        self.status = 0
        self.bytes_out = 0
        self._hits = 0

    @property
    def hits(self) -> int:
        """How often the credential was found so far, in a reply that is cut too."""
        return self._hits + (self._masker.hits if self._masker is not None else 0)

    def mask(self, masks: Masks | None) -> None:
        """From now on replies are searched for these renderings."""
        self._masks = masks

    def restrict(self, most: int | None, drop_cookies: bool) -> None:
        """From now on replies' bodies have at most so many bytes, and perhaps no cookies are set."""
        self._most, self._drops_cookies = most, drop_cookies

    def interim(self, head: ReplyHead) -> None:
        """Passes a 1xx on, without what frames or closes: an HTTP/1.0 client does not know them (RFC 9110 15.2)."""
        if self._call.minor == 0 or self.started:
            return
        lines = [line for line in head.section.kept if line[0].lower() not in (_LENGTH, _CODING)]
        self._connection.write(b"%b%b\r\n" % (self._status_line(head), self._masked(_block(lines))))

    def head(
        self, head: ReplyHead, bodiless: bool, more: bool, extra: bytes = b"", finding: Finding | None = None
    ) -> None:
        """The final head. It waits for the body bytes that came with it, so that both leave in one write. `finding` is
        what the reply is, where that was looked at; else its status says it."""
        if self.events is not None and not bodiless and head.section.length is not None:
            head = head.unsized()  # an event told in our words has another length
        section, call = head.section, self._call
        connection = self._connection
        close_delimited = not bodiless and section.length is None and not section.chunked
        self.status = head.status
        self._left = 0 if bodiless else section.length
        self._chunked = not bodiless and call.minor == 1 and (section.chunked or close_delimited)
        self.keep = connection.keeps and (bodiless or self._chunked or section.length is not None)
        front = self._front(head, bodiless)
        call_id = call.call_id.encode("ascii")
        if self.keep and call.minor and head.status < 400 and not extra and not close_delimited:
            self._pending = b"%bSluicegate-Call-Id: %b\r\n\r\n" % (front, call_id)  # what nearly every reply is
        else:
            rest = self._further_lines(head, finding, close_delimited)
            self._pending = b"%bSluicegate-Call-Id: %b\r\n%b%b\r\n" % (front, call_id, rest, extra)
        self._coding = section.coding
        if not more:
            self._send(b"")

    def _status_line(self, head: ReplyHead) -> bytes:
        reason = self._masked(head.reason) if len(head.reason) >= SHORTEST else head.reason
        return b"HTTP/1.1 %d %b\r\n" % (head.status, reason)

    def _further_lines(self, head: ReplyHead, finding: Finding | None, close_delimited: bool) -> bytes:
        lines = b""
        if close_delimited and self._chunked:
            lines += b"Transfer-Encoding: chunked\r\n"
        kind = kind_of(head.status) if finding is None else None
        if kind is not None:
            lines += b"Sluicegate-Error-Kind: %b\r\nSluicegate-Error-Source: provider\r\n" % kind.encode("ascii")
        if not self.keep:
            lines += b"Connection: close\r\n"
        elif self._call.minor == 0:
            lines += b"Connection: keep-alive\r\n"
        return lines

    def _front(self, head: ReplyHead, bodiless: bool) -> bytes:
        """Status line and header block, remembered with the head while nothing that they depend on changes."""
        call, section = self._call, head.section
        plain = (
            not (section.pointing and call.place.segment)
            and call.minor == 1
            and not (bodiless and self.status < 300)
            and not self._drops_cookies
        )
        if plain and head.memo is not None and head.memo[0] is self._masks:
            return head.memo[1]
        lines = section.kept if plain else self._adapted(section.kept, section)
        found = self._hits
        front = self._status_line(head) + self._masked(_block(lines))
        if plain and self._hits == found:  # each reply that gives the credential back is counted
            head.memo = (self._masks, front)
        return front

    def _adapted(self, lines: Headers, section: ReplySection) -> Headers:
        call = self._call
        if section.pointing and call.place.segment:
            lines = pointing_back(lines, call)
        if self._drops_cookies:
            lines = without_cookies(lines)
        if call.minor == 0:
            lines = [line for line in lines if line[0].lower() != _CODING]
        if self.status in (101, 204):
            lines = [line for line in lines if line[0].lower() not in (_LENGTH, _CODING)]  # RFC 9110 section 8.6
        return lines

    def _masked(self, block: bytes) -> bytes:
        if self._masks is None:
            return block
        covered, hits = self._masks.cover(block)
        self._hits += hits
        return covered

    def body(self, payload: bytes) -> None:
        """Body bytes, unframed. Raises `upstream_protocol` when a compressed body gives the credential away."""
        if self._most is not None and self.bytes_out + (self._left or len(payload)) > self._most:
            raise GatewayError(
                "upstream_protocol", f"The answer is larger than the {self._most} bytes that its rule allows."
            )
        if self._left is not None:
            self._left -= len(payload)
        if self.events is not None:
            payload = self.events.feed(payload)
        if self._masks is not None:
            payload = self._searched(self._masks, payload)
        self._send(payload)

    def _searched(self, masks: Masks, payload: bytes) -> bytes:
        if self._masker is None:
            if self._left == 0 and not self._coding:
                return self._masked(payload)  # the whole body in one piece: nothing to hold back
            self._masker = masker(masks, self._coding)
        try:
            return self._masker.feed(payload, self._left == 0)
        except Reflected:
            raise GatewayError(
                "upstream_protocol", "The provider's compressed answer holds the credential that was sent."
            ) from None

    def _send(self, payload: bytes) -> None:
        self.bytes_out += len(payload)
        if self._chunked and payload:
            payload = frame(payload)
        if self._pending:
            payload = self._pending + payload
            self._pending = b""
            self.started = True
        if payload:
            self._connection.write(payload)

    def end(self, trailers: Headers) -> None:
        """The reply is whole."""
        if self.events is not None:
            events, self.events = self.events, None
            self.body(events.end())
        if self._masker is not None:
            self._send(self._masker.end())
        elif self._pending:
            self._send(b"")
        if self._chunked:
            trailers = without_cookies(trailers) if self._drops_cookies else trailers
            self._connection.write(self._masked(frame_end(trailers)))

    def cut(self) -> None:
        """The reply cannot be ended truthfully: the client must see that."""
        self._connection.cut()

    def judged(self, judging: Judging, finding: Finding, extra: bytes) -> None:
        """A provider's failure, whole: rewritten, or with mode "annotate" as it is beside what we make of it."""
        if self.mode == "annotate":
            self._annotated(judging, finding, extra)
            return
        call, connection, head = self._call, self._connection, judging.head
        self.keep = connection.keeps
        lines = self._adapted(head.section.kept, head.section)
        reply = rewritten(finding, judging.dialect, lines, call.call_id, self.mode, judging.safe)
        self.status = reply.status
        block = self._masked(_block(reply.kept)) + self._masked(reply.ours) + extra
        if not self.keep:
            block += b"Connection: close\r\n"
        elif call.minor == 0:
            block += b"Connection: keep-alive\r\n"
        body = b"" if call.method == "HEAD" else self._masked(reply.body)
        self.started = True
        self.bytes_out = len(body)
        connection.write(
            b"HTTP/1.1 %d %b\r\nSluicegate-Call-Id: %b\r\n%b\r\n%b"
            % (reply.status, reason(reply.status), call.call_id.encode("ascii"), block, body)
        )

    def replay(self, status: int, lines: Headers, body: bytes) -> None:
        """The stored reply of the same call."""
        call = self._call
        self.status, self.keep, self.started = status, self._connection.keeps, True
        lines = without_cookies(lines) if self._drops_cookies else lines
        block = self._masked(_block(lines)) + b"Content-Length: %d\r\n" % len(body)
        if not self.keep:
            block += b"Connection: close\r\n"
        elif call.minor == 0:
            block += b"Connection: keep-alive\r\n"
        body = self._masked(body)
        self.bytes_out = len(body)
        self._connection.write(
            b"HTTP/1.1 %d %b\r\nSluicegate-Call-Id: %b\r\nSluicegate-Replayed: true\r\n%b\r\n%b"
            % (status, reason(status), call.call_id.encode("ascii"), block, body)
        )

    def _annotated(self, judging: Judging, finding: Finding, extra: bytes) -> None:
        self.untouched(judging, False, extra, finding)
        self.end([])

    def untouched(self, judging: Judging, more: bool, extra: bytes, finding: Finding | None = None) -> None:
        """What was held, as it came. `more`: write it only with what follows."""
        if judging.tokens:
            self._covered(judging, extra)
            return
        head = judging.head
        if finding is not None:
            head = head.with_lines(annotated(head.section.kept))
            extra += verdict_lines(finding, judging.safe) + b"Sluicegate-Untrusted: body\r\n"
        body = judging.body
        self.head(head, judging.bodiless, more or bool(body), extra, finding)
        if body:
            self.body(body)

    def _covered(self, judging: Judging, extra: bytes) -> None:
        """A token endpoint's answer, written anew without its tokens."""
        kind, body = judging.without_tokens()
        call, head = self._call, judging.head
        self.status, self.keep, self.started = head.status, self._connection.keeps, True
        lines = described_anew(self._adapted(head.section.kept, head.section))
        block = self._masked(_block(lines)) + b"Content-Type: %b\r\nContent-Length: %d\r\n%b" % (kind, len(body), extra)
        if not self.keep:
            block += b"Connection: close\r\n"
        elif call.minor == 0:
            block += b"Connection: keep-alive\r\n"
        body = b"" if judging.bodiless else self._masked(body)
        self.bytes_out = len(body)
        self._connection.write(
            b"%bSluicegate-Call-Id: %b\r\n%b\r\n%b"
            % (self._status_line(head), call.call_id.encode("ascii"), block, body)
        )

    def problem(self, error: GatewayError, *, provider: str | None = None, idempotent: bool = False) -> None:
        """A refusal of ours in place of a reply."""
        self.status = error.status
        self.keep = self._connection.keeps
        self._pending = b""
        self.started = True
        reply = render(
            error, self._call.call_id, self._call.method, self.keep, provider=provider, idempotent=idempotent
        )
        self.bytes_out = len(reply)
        self._connection.write(reply)
