"""What every signer promises, run on each row of the table. A new one adds a class like `Aws`."""

from __future__ import annotations

import pickle
from typing import ClassVar

import pytest

from signers.placement import Field
from signers.secret import Secret
from signers.signing import Outgoing, Signing, Unsignable
from signers.table import SIGNERS

NOW = 1_440_938_160.0


class Aws:
    kind = "aws"
    secrets = ("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "FwoGZXIvYXdzEJr-a-session-token")
    fields: ClassVar[dict[str, Field]] = {
        "access_key_id": "AKIDEXAMPLE",
        "secret_access_key": Secret(secrets[0]),
        "session_token": Secret(secrets[1]),
    }
    wrong: ClassVar[dict[str, Field]] = {"access_key_id": "not an id", "secret_access_key": Secret(secrets[0])}
    host = "dynamodb.eu-west-1.amazonaws.com"
    unsignable = "host.example"
    client_copies: ClassVar[set[bytes]] = {b"authorization", b"x-amz-date", b"x-amz-security-token"}


SUBJECTS = [Aws]


def outgoing(subject: type[Aws], *, length: int | None = 5, host: str = "") -> Outgoing:
    name = host or subject.host
    lines = ((b"host", name.encode()), (b"content-type", b"application/json"), (b"user-agent", b"x"))
    return Outgoing("POST", True, name, b"/a%20b?c=d", lines, length)


def test_every_row_of_the_table_is_under_contract() -> None:
    assert {subject.kind for subject in SUBJECTS} == set(SIGNERS)


@pytest.fixture(params=SUBJECTS, ids=lambda subject: str(subject.kind))
def subject(request: pytest.FixtureRequest) -> type[Aws]:
    found: type[Aws] = request.param
    return found


@pytest.fixture
def signing(subject: type[Aws]) -> Signing:
    return SIGNERS[subject.kind](subject.fields, None)


def test_it_is_pure(subject: type[Aws], signing: Signing) -> None:
    request = outgoing(subject)
    first = signing.sign(request, b"hello", NOW)
    again = SIGNERS[subject.kind](subject.fields, None).sign(outgoing(subject), b"hello", NOW)
    assert (first.target, first.lines, first.drops) == (again.target, again.lines, again.drops)
    assert request == outgoing(subject)


def test_another_attempt_is_signed_for_its_own_time_and_body(subject: type[Aws], signing: Signing) -> None:
    request = outgoing(subject)
    first = signing.sign(request, b"hello", NOW).lines
    assert signing.sign(request, b"hello", NOW + 600).lines != first
    assert signing.sign(request, b"other", NOW).lines != first
    assert signing.sign(request, b"hello", NOW).lines == first


def test_the_wire_target_is_what_was_sent(subject: type[Aws], signing: Signing) -> None:
    assert signing.sign(outgoing(subject), b"hello", NOW).target == b"/a%20b?c=d"


def test_it_shows_no_secret(subject: type[Aws], signing: Signing) -> None:
    shown = repr(signing) + str(signing)
    with pytest.raises(ValueError) as refused:
        SIGNERS[subject.kind](subject.wrong, None)
    with pytest.raises(Unsignable) as unsignable:
        signing.need(outgoing(subject, host=subject.unsignable))
    for secret in subject.secrets:
        assert secret not in shown + str(refused.value) + str(unsignable.value)


def test_it_cannot_be_pickled(signing: Signing) -> None:
    with pytest.raises(TypeError):
        pickle.dumps(signing)


def test_what_the_client_sent_in_its_place_never_passes(subject: type[Aws], signing: Signing) -> None:
    assert signing.clears >= subject.client_copies
    assert all(name == name.lower() and b"_" not in name for name in signing.clears)


def test_the_renderings_of_every_secret_are_listed_for_masking(subject: type[Aws], signing: Signing) -> None:
    for secret in subject.secrets:
        assert secret.encode() in signing.masks
        assert secret.encode().hex().encode() in signing.masks


def test_what_it_needs_of_the_body_is_declared(subject: type[Aws], signing: Signing) -> None:
    assert signing.need(outgoing(subject, length=0)).hold == 0
    assert signing.need(outgoing(subject, length=5)).hold >= 5
    with pytest.raises(Unsignable) as refused:
        signing.need(outgoing(subject, length=1 << 40))
    assert refused.value.too_large
