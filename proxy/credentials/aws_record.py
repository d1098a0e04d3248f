"""What a record or an application says of AWS roles, without I/O.

    access_key_id, secret_access_key, session_token   the key that assumes the first role
    role_arn, external_id, duration                    one role, or
    roles: [{role_arn, external_id, duration}, …]      several, each assumed by the one before
    session_tags: [tenant, actor, agent]               facts of the caller that become session tags
    region                                             whose STS endpoint is asked

Roles of the application come before those of the tenant's record. A record without any key in either starts from the
application's `subject_token_file`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from proxy.credentials.faults import RecordError
from proxy.credentials.field_reader import FieldReader
from proxy.model import Caller
from signers.aws import KEY_ID, NAME
from signers.grants.assume_role import LIFETIME, ROLE_ARN, Role, Session, session_of
from signers.sigv4 import Keys

TAGS: Final = ("tenant", "actor", "agent")
MAX_ROLES: Final = 4
DURATIONS: Final = range(900, 43_201)
"""Seconds that AWS lets a session last."""
MAX_EXTERNAL_ID: Final = 1224


@dataclass(frozen=True, slots=True, repr=False)
class AwsRoles:
    """One record's part: `keys` None leaves the start to the application. `tags` are names of TAGS."""

    roles: tuple[Role, ...] = ()
    keys: Keys | None = None
    tags: tuple[str, ...] = ()
    region: str = ""

    def session(self, caller: Caller) -> Session:
        """For whom a role is assumed. Raises ValueError when the caller lacks what is to be a tag."""
        facts = {"tenant": caller.tenant, "actor": caller.actor, "agent": caller.agent}
        tags = {name: facts[name] for name in self.tags}
        for name, value in tags.items():
            if not value:
                raise ValueError(f"the record tags sessions with the caller's {name}, and the call has none")
        return session_of(caller.tenant, tags.get("actor"), tags)


def parse_roles(name: str, stored: Mapping[str, Any]) -> AwsRoles:
    """The roles of the record or application `name`. Raises RecordError."""
    texts = FieldReader(name, stored)
    region = texts.optional("region") or texts.mapped("vars").get("region", "")
    if region and not NAME.fullmatch(region):
        raise RecordError(name, "region", "must be letters, digits and hyphens")
    return AwsRoles(_roles(texts, stored), _keys(texts), _tags(texts), region)


def _roles(texts: FieldReader, stored: Mapping[str, Any]) -> tuple[Role, ...]:
    several = stored.get("roles")
    if several is None:
        return (_role(texts, ""),) if texts.optional("role_arn") else ()
    if texts.optional("role_arn"):
        raise RecordError(texts.name, "roles", "and role_arn cannot both be there")
    if not isinstance(several, list) or not 0 < len(several) <= MAX_ROLES:
        raise RecordError(texts.name, "roles", f"must be a list of one to {MAX_ROLES} roles")
    found = []
    for index, each in enumerate(several):
        field = f"roles[{index}]"
        one = {"role_arn": each} if isinstance(each, str) else each
        if not isinstance(one, Mapping) or not set(one) <= {"role_arn", "external_id", "duration"}:
            raise RecordError(texts.name, field, "must be a role's ARN, or hold role_arn, external_id, duration")
        found.append(_role(FieldReader(texts.name, one), f"{field}."))
    return tuple(found)


def _role(texts: FieldReader, prefix: str) -> Role:
    arn, external_id = texts.needed("role_arn"), texts.optional("external_id")
    if not ROLE_ARN.fullmatch(arn):
        raise RecordError(texts.name, f"{prefix}role_arn", "must be like arn:aws:iam::123456789012:role/NAME")
    if external_id and not (2 <= len(external_id) <= MAX_EXTERNAL_ID and external_id.isascii()):
        raise RecordError(texts.name, f"{prefix}external_id", f"must be 2 to {MAX_EXTERNAL_ID} characters of ASCII")
    duration = texts.optional("duration") or str(LIFETIME)
    if not duration.isascii() or not duration.isdigit() or int(duration) not in DURATIONS:
        fault = f"must be seconds from {DURATIONS.start} to {DURATIONS.stop - 1}"
        raise RecordError(texts.name, f"{prefix}duration", fault)
    return Role(arn, external_id, int(duration))


def _keys(texts: FieldReader) -> Keys | None:
    identifier, secret = texts.optional("access_key_id"), texts.secret("secret_access_key")
    if not identifier and secret is None:
        return None
    if not KEY_ID.fullmatch(identifier):
        raise RecordError(texts.name, "access_key_id", "is not the id of an access key")
    token = texts.secret("session_token")
    if secret is None or not all(each.reveal().isascii() for each in (secret, token) if each is not None):
        raise RecordError(texts.name, "secret_access_key", "and session_token must be visible ASCII")
    return Keys(identifier, secret, token)


def _tags(texts: FieldReader) -> tuple[str, ...]:
    tags = texts.listed("session_tags")
    if not set(tags) <= set(TAGS):
        raise RecordError(texts.name, "session_tags", f"must be of {', '.join(TAGS)}")
    return tags
