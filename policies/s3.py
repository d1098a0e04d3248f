"""Rules for S3 name the bucket: a key that may do more must not be lent to every bucket of an account.

The bucket stands in the host (`reports.s3.eu-west-1.amazonaws.com`) or begins the path.
"""

from __future__ import annotations

import re
from typing import Final

_ENDPOINT: Final = re.compile(r"s3(?:-[a-z0-9-]+)?")
_SUFFIX: Final = re.compile(r"(.+?)\.amazonaws\.(?:com|com\.cn|eu)")
_NAMED: Final = re.compile(r"/[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](?:/.*)?")
"""Source: "General purpose bucket naming rules" in the S3 user guide."""


def unnamed_bucket(host: str, paths: tuple[str, ...] | None) -> str | None:
    """What is wrong with a rule for `host` that lends a credential; None when it names its buckets, or is not S3's."""
    match = _SUFFIX.fullmatch(host.lower().removesuffix("."))
    labels = match[1].split(".") if match else []
    if not labels or not _ENDPOINT.fullmatch(labels[0]) or any(map(_ENDPOINT.fullmatch, labels[1:])):
        return None
    if paths and all(map(_NAMED.fullmatch, paths)):
        return None
    return 'S3\'s paths begin with the bucket: name it in paths, such as "/reports" and "/reports/**"'
