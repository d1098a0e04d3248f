"""What a reply of AWS STS means: temporary keys, or one of four ways of having none (pure).

Source: "AssumeRole", "AssumeRoleWithWebIdentity" and "Common errors" in the STS API reference. The reply is read as
strictly as it is written: one document of the one namespace, each part of the credentials once and in its form.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from signers.grants.model import Issued, Outcome, TokenRefused, TokenReply
from signers.secret import Secret
from signers.token_reply import moment, skew

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

NAMESPACE: Final = "https://sts.amazonaws.com/doc/2011-06-15/"
LIFE: Final = (60.0, 43_200.0 + 300.0)
"""Seconds that temporary keys may live: a role's session lasts 12 hours at most; some leeway for the clocks."""
NOTABLE_SKEW: Final = 60.0
"""Seconds between AWS's clock and ours from which a refusal is blamed on it; AWS allows five minutes."""
BELIEVED_SKEW: Final = 86_400.0

_FORMS: Final = {
    "AccessKeyId": re.compile(r"[A-Za-z0-9_]{16,128}"),
    "SecretAccessKey": re.compile(r"[!-~]{16,256}"),
    "SessionToken": re.compile(r"[!-~]{4,16384}"),
    "Expiration": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)"),
}
_CODE: Final = re.compile(r"[A-Za-z0-9.]{1,64}")
_THROTTLED: Final = frozenset(["Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequestsException"])
_PASSING: Final = frozenset(
    # The key or token that we started from has run out, and is replaced where it comes from; or AWS itself is at fault.
    ["ExpiredToken", "ExpiredTokenException", "IDPCommunicationError", "InternalFailure", "ServiceUnavailable"]
)
CLOCK_ERRORS: Final = frozenset(["RequestExpired", "RequestTimeTooSkewed", "SignatureDoesNotMatch"])
"""What AWS answers to a signature that was made too long ago, or is yet to come."""


def read_keys(reply: TokenReply, action: str, role: str, now: float) -> Issued:
    """The temporary keys that the reply to `action` issues; `now` is when they were asked for. Raises TokenRefused."""
    if reply.status != 200:
        raise refusal(reply, role)
    try:
        values = _credentials(_document(reply.body), action)
        ends = moment(values["Expiration"])
    except (ValueError, KeyError):
        # Nothing is lost with an answer that cannot be read: the role can be assumed again.
        raise TokenRefused("down", "unreadable_reply", skew=skew(reply), role=role) from None
    ahead = _notable(reply)
    if ends is None or not LIFE[0] <= ends - ahead - now <= LIFE[1]:
        raise TokenRefused("down", "unbelievable_expiry", skew=skew(reply), role=role)
    token = Secret(values["SessionToken"])
    fields = {
        "access_key_id": Secret(values["AccessKeyId"]),
        "secret_access_key": Secret(values["SecretAccessKey"]),
        "session_token": token,
    }
    return Issued(token, now, ends - ahead, fields=fields)


def refusal(reply: TokenReply, role: str) -> TokenRefused:
    """What a reply without keys says of the next try."""
    code = error_code(reply) or f"status {reply.status}"
    return TokenRefused(_outcome(reply.status, code), code, skew=skew(reply), role=role)


def error_code(reply: TokenReply) -> str:
    """AWS's own code for the error, "" when there is none to be read."""
    try:
        root = _document(reply.body)
        found = _only(_only(root, "Error"), "Code").text or "" if _is(root, "ErrorResponse") else ""
    except ValueError:
        return ""
    return found if _CODE.fullmatch(found) else ""


def clock_offset(reply: TokenReply) -> float | None:
    """Seconds to add to our clock, where a refusal came of it; None where it did not."""
    ahead = _notable(reply)
    return ahead if ahead and reply.status in (400, 403) and error_code(reply) in CLOCK_ERRORS else None


def _notable(reply: TokenReply) -> float:
    """By how much AWS's clock is ahead, 0 where that is little, or more than is believed."""
    ahead = skew(reply) or 0.0
    return ahead if NOTABLE_SKEW <= abs(ahead) <= BELIEVED_SKEW else 0.0


def _outcome(status: int, code: str) -> Outcome:
    if status == 429 or code in _THROTTLED:
        return "throttled"
    if status >= 500 or code in _PASSING or not 400 <= status < 500:
        return "down"
    return "rejected"


def _document(body: bytes) -> Element:
    """The root of an XML document without a document type, which could hold entities. Raises ValueError."""
    from xml.etree.ElementTree import ParseError, fromstring  # most proxies assume no role

    text = body.decode("utf-8")  # text, or the document could name an encoding in which "<!" looks otherwise
    if "<!" in text:
        raise ValueError("declarations are not read")
    try:
        return fromstring(text)  # noqa: S314 - no declaration, so no entity, and bounded by who reads the reply
    except (ParseError, LookupError, RecursionError):
        raise ValueError("is no XML") from None


def _credentials(root: Element, action: str) -> dict[str, str]:
    if not _is(root, f"{action}Response"):
        raise ValueError("answers something else")
    block = _only(_only(root, f"{action}Result"), "Credentials")
    values = {name: _only(block, name).text or "" for name in _FORMS}
    for name, form in _FORMS.items():
        if not form.fullmatch(values[name]):
            raise ValueError(f"{name} is not one")
    return values


def _only(parent: Element, name: str) -> Element:
    found = parent.findall(f"{{{NAMESPACE}}}{name}")
    if len(found) != 1:
        raise ValueError(f"has not one {name}")
    return found[0]


def _is(root: Element, name: str) -> bool:
    return root.tag == f"{{{NAMESPACE}}}{name}"
