"""The changes an Injection makes to a request target and to its cookies, on bytes, touching nothing else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote_to_bytes

from signers.placement import Injection

# Any one of these says that the URL is signed: AWS Signature V4, Google Cloud Storage V4.
_SIGNED_BY_ONE: Final = frozenset(
    f"x-{signer}-{parameter}" for signer in ("amz", "goog") for parameter in ("signature", "credential", "algorithm")
)
# A signature parameter, and the companions that tell it from an ordinary parameter of that name.
_SIGNED_BY_TWO: Final[tuple[tuple[str, frozenset[str]], ...]] = (
    ("sig", frozenset({"se", "sv", "sp", "sr"})),  # Azure shared access signature
    ("signature", frozenset({"awsaccesskeyid", "googleaccessid", "ossaccesskeyid", "key-pair-id"})),  # V2, CloudFront
)
# Every signed URL holds one of these; most queries hold none, and need not be taken apart.
_PERHAPS_SIGNED: Final = re.compile(rb"(?i)sig|x-amz-|x-goog-|%")


def edit_target(target: bytes, injection: Injection) -> bytes:
    """An origin-form target with the client's copies of credential parameters removed and the injected ones appended.

    Parameters are compared by decoded name; the others keep their bytes and order. `&` alone separates parameters
    (WHATWG URL, section 5.1). Returns the same object when there is nothing to change.
    """
    if injection.path is not None:
        target = _with_segment(target, *injection.path)
    if not injection.query and not injection.query_clears:
        return target
    path, mark, query = target.partition(b"?")
    if path == b"*" or not (mark or injection.query):
        return target
    given = query.split(b"&") if query else []
    kept = [parameter for parameter in given if parameter_name(parameter) not in injection.query_clears]
    if not injection.query and len(kept) == len(given):
        return target
    kept += [b"%s=%s" % pair for pair in injection.query]
    return path + b"?" + b"&".join(kept) if kept else path


def _with_segment(target: bytes, start: str, segment: bytes) -> bytes:
    """The target with `segment` in place of the first one that begins with `start`; in front where none does."""
    path, mark, query = target.partition(b"?")
    if path == b"*":
        return target
    segments = path.split(b"/")[1:]
    for number, given in enumerate(segments):
        if unquote_to_bytes(given).startswith(start.encode("ascii")):
            segments[number] = segment
            break
    else:
        segments.insert(0, segment)
    return b"/" + b"/".join(segments) + mark + query


def edit_cookies(values: Sequence[bytes], injection: Injection) -> bytes | None:
    """The value of the one Cookie header to send for the client's Cookie headers; None to send none.

    Cookies with a cleared name are dropped, the injected ones follow the kept ones (RFC 6265 section 4.2.1).
    """
    given = (cookie.strip(b" \t") for value in values for cookie in value.split(b";"))
    kept = [cookie for cookie in given if cookie and _cookie_name(cookie) not in injection.cookie_clears]
    return b"; ".join((*kept, *injection.cookies)) or None


def presigned(target: bytes) -> bool:
    """Whether the target's query already holds a signature, so that a credential beside it would be refused.

    Known: AWS V4 and V2, Google Cloud Storage V4 and V2, Azure shared access signatures, CloudFront, Alibaba OSS.
    Names are compared decoded and without case.
    """
    _, mark, query = target.partition(b"?")
    if not mark or not _PERHAPS_SIGNED.search(query):
        return False
    names = {parameter_name(parameter).lower() for parameter in query.split(b"&")}
    if not names.isdisjoint(_SIGNED_BY_ONE):
        return True
    return any(one in names and not names.isdisjoint(others) for one, others in _SIGNED_BY_TWO)


def parameter_name(parameter: bytes) -> str:
    """A parameter's name as a server reads it. Octets that are not UTF-8 can match no name of ours."""
    name = parameter.partition(b"=")[0]
    if b"%" in name or b"+" in name:
        name = unquote_to_bytes(name.replace(b"+", b" "))
    return name.decode("utf-8", "replace")


def _cookie_name(cookie: bytes) -> bytes:
    return cookie.partition(b"=")[0].rstrip(b" \t")
