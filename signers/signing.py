"""Signers: credentials whose place in a request depends on the request itself (pure).

A kind of credential that is written the same way into every request is prepared once (`signers.placement`). A kind that
signs what it is sent with implements `Signing`, in one file, and has one row in `signers.table`.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Unsignable(ValueError):
    """This request cannot be signed. `args[0]` says why and what to send instead; it never holds a secret.

    `too_large`: a smaller body could be signed.
    """

    def __init__(self, why: str, *, too_large: bool = False) -> None:
        super().__init__(why)
        self.too_large = too_large


class Outgoing(NamedTuple):
    """A request as it will leave, before it is signed."""

    method: str
    secure: bool
    """It leaves over TLS."""
    host: str
    """Canonical name of the destination, without port."""
    target: bytes
    """Origin-form, byte for byte as on the wire."""
    lines: tuple[tuple[bytes, bytes], ...]
    """(lower-case name, value) of all header lines that leave, Host among them, those in `Signing.clears` not."""
    length: int | None
    """Bytes of the body; 0 without one, None when it is chunked and its length not known."""
    region: str = ""
    service: str = ""
    """What the policy rule says of these; empty leaves it to the record and to the host."""


class Need(NamedTuple):
    """What of the body has to be there before the head can be signed."""

    hold: int = 0
    """Hold the whole body, up to so many bytes; 0: the head can be signed at once."""
    streams: bool = False
    """A body that turns out longer may be sent on as it comes; otherwise it is refused."""


class Coder(Protocol):
    """Writes a body anew while it streams through, for signatures that stand inside it. Raises Unsignable."""

    def feed(self, data: bytes) -> bytes: ...
    def end(self) -> bytes: ...


class Signed(NamedTuple):
    """What signing changes: the target, header lines to add and to leave out, what becomes of the body."""

    target: bytes
    lines: bytes
    """Complete header lines, each ending in CRLF."""
    drops: frozenset[bytes] = frozenset()
    """Lower-case names."""
    coder: Coder | None = None
    body: bytes | None = None
    """What goes instead of a body that was held; None leaves it as it is."""
    timed: bool = True
    """It holds for a while only, so that a refusal may come of a clock that is wrong."""

    def __repr__(self) -> str:  # a placeholder's value stands in it
        return "Signed(•••)"


class Signing(Protocol):
    """One credential, ready to sign any request. Holds secrets: its repr shows none.

    clears  lower-case names of headers that never pass from the client, with hyphens for underscores
    masks   renderings of the secrets, looked for in replies (signers.masks)
    """

    @property
    def clears(self) -> frozenset[bytes]: ...
    @property
    def masks(self) -> tuple[bytes, ...]: ...

    def need(self, request: Outgoing) -> Need:
        """Raises Unsignable when no body could make this request signable."""

    def sign(self, request: Outgoing, body: bytes | None, now: float) -> Signed:
        """Sign one attempt. `body` is the whole body, None when it is streamed; `now` epoch seconds. Pure: equal
        arguments give equal results."""
