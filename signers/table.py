"""The signers: one row for each record kind that signs what it is sent with, and one for placeholders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from signers.aws import prepare_aws
from signers.hmac_signing import prepare_hmac
from signers.placeholders import prepare_placeholders
from signers.placement import Field
from signers.signing import Signing


class Row(NamedTuple):
    """A signer.

    prepare   makes it of a record's fields and of how rule or provider want it: a Placement, a template, the positions
              of placeholders, or None. Raises ValueError where the two do not fit, never with a secret in it
    fields    that a record of this kind must have, each one line of text; none for what is no kind of record
    optional  fields that it may have
    """

    prepare: Callable[[Mapping[str, Field], Any], Signing]
    fields: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


PLACEHOLDERS: Final = "placeholders"
"""The row that takes the place of a record's own kind where a rule names placeholders."""

SIGNERS: Final[Mapping[str, Row]] = {
    "aws": Row(prepare_aws, ("access_key_id", "secret_access_key"), ("session_token", "region", "service")),
    "hmac": Row(prepare_hmac, ("key_id", "secret")),
    PLACEHOLDERS: Row(prepare_placeholders),
}
