"""One reply held, bounded, until it is known what it means. Pure but for the clock it is given.

What is held: every failure, whatever it says of itself; and a success of an operation whose provider declares that
errors, failed items or cursors stand inside its successes. A success that outgrows the bound passes unjudged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from proxy.dialect import Answer, Dialect
from proxy.errors import GatewayError
from proxy.responses.classify import Finding, classify, failed, partial_kinds
from proxy.responses.token_masks import Written, covered
from proxy.wire.reply_head import ReplyHead

FAILURE_BYTES: Final = 65_536
SUCCESS_BYTES: Final = 1_048_576
UNREADABLE: Final = "The token endpoint's answer cannot be read, so its tokens cannot be covered; it is not passed on."


class Judging:
    """A reply whose body is being collected.

    `failing`: its status already says that it is an error. `safe`: repeating the call cannot do it twice. `tokens`: it
    is a token endpoint's, and passes with its tokens covered or not at all.
    """

    __slots__ = (
        "_body", "_dialect", "_limit", "_now", "_operation", "_paged", "bodiless", "failing", "head", "safe", "tokens",
    )  # fmt: skip

    def __init__(
        self,
        head: ReplyHead,
        bodiless: bool,
        dialect: Dialect,
        operation: str | None,
        safe: bool,
        now: Callable[[], float],
        paged: Callable[[Answer], bytes] | None = None,
        *,
        tokens: bool = False,
    ) -> None:
        self.head = head
        self.bodiless = bodiless
        self.failing = head.status >= 400
        self.safe = safe
        self.tokens = tokens and not self.failing
        self._dialect = dialect
        self._operation = operation
        self._now = now
        self._paged = paged
        self._limit = FAILURE_BYTES if self.failing else SUCCESS_BYTES
        self._body = bytearray()

    def add(self, payload: bytes) -> bool:
        """Takes body bytes; False once there are more than are looked at."""
        self._body += payload
        return len(self._body) <= self._limit

    @property
    def body(self) -> bytes:
        return bytes(self._body)

    @property
    def dialect(self) -> Dialect:
        return self._dialect

    def answer(self) -> Answer:
        section = self.head.section
        return Answer(self.head.status, section.kept, bytes(self._body), section.coding)

    def without_tokens(self) -> Written:
        """A token endpoint's answer, covered. Raises `upstream_protocol` for one that cannot be read."""
        found = covered(self.answer(), self.head.section.coding not in (b"", b"identity"))
        if found is None:
            raise GatewayError("upstream_protocol", UNREADABLE)
        return found

    def finding(self) -> Finding | None:
        """What the reply is; None for a success."""
        answer = self.answer()
        if self.failing or failed(answer, self._dialect, self._operation):
            return classify(answer, self._dialect, self._now())
        return None

    def success_lines(self) -> bytes:
        """Headers that say what is worth knowing of a success."""
        answer = self.answer()
        kinds = partial_kinds(answer, self._dialect, self._operation)
        lines = f"Sluicegate-Partial: {', '.join(kinds)}\r\n".encode("ascii") if kinds else b""
        return lines + self._paged(answer) if self._paged is not None else lines


def to_be_held(head: ReplyHead, bodiless: bool, dialect: Dialect, operation: str | None) -> bool:
    """Whether a success has to be looked at: only small JSON (or a header that is a sign), only where declared."""
    if head.status >= 300:
        return False
    here, section = dialect.at(operation), head.section
    if not here.declared:
        return False
    if any(sign.condition.place.source == "header" and sign.condition.holds(_headers(head)) for sign in here.signs):
        return True
    if bodiless or (section.length is not None and section.length > SUCCESS_BYTES):
        return False
    return _structured(head)


def streams(head: ReplyHead) -> bool:
    """Whether a success may go on for long: it has no length and is no document. It is passed on as it comes."""
    return head.section.length is None and not _structured(head)


def event_stream(head: ReplyHead) -> bool:
    """Whether a reply is a stream of server-sent events that can be read and changed under way."""
    section = head.section
    return head.status < 300 and not section.coding and _kind(head) == b"text/event-stream"


def _headers(head: ReplyHead) -> Answer:
    return Answer(head.status, head.section.kept, b"")


def _structured(head: ReplyHead) -> bool:
    """JSON or XML; a stream of events is neither."""
    kind = _kind(head)
    return kind.endswith((b"/json", b"+json", b"/xml", b"+xml")) or kind.startswith(b"application/x-amz-json")


def _kind(head: ReplyHead) -> bytes:
    """The media type, lower-case."""
    kind = next((value for name, value in head.section.kept if name.lower() == b"content-type"), b"").lower()
    return kind.partition(b";")[0].strip()
