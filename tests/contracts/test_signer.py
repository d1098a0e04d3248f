"""What every signer promises, run on each row of the table. A new one adds a class like `Hmac`."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest

from proxy.credentials.record import FIELDS_OF, OPTIONAL_FIELDS_OF
from signers import table
from signers.hmac_template import HmacTemplate
from signers.placeholders import Placeholders, Position
from signers.placement import Field
from signers.secret import Secret
from signers.signing import Need, Outgoing, Signed, Signing, Unsignable
from signers.table import SIGNERS, Row

NOW = 1_440_938_160.0
COPY = b"what-the-client-brought"


class Subject:
    """One row under contract, with a request that it can sign.

    how            what the rule or the provider says
    wrong          fields that do not make a signer
    unsignable     changes to the request that make it one that cannot be signed
    copies         header lines of the client's that stand where the signer writes
    timed          a signature is for a moment; otherwise every attempt is the same
    """

    kind: str
    secrets: tuple[str, ...]
    fields: ClassVar[Mapping[str, Field]]
    how: Any = None
    wrong: ClassVar[Mapping[str, Field]]
    host = "api.example"
    target = b"/a%20b?c=d"
    lines: tuple[tuple[bytes, bytes], ...] = ((b"content-type", b"application/json"), (b"user-agent", b"x"))
    body = b"hello"
    unsignable: ClassVar[Mapping[str, Any]]
    copies: tuple[tuple[bytes, bytes], ...] = ()
    timed = True

    @classmethod
    def request(cls, **changed: Any) -> Outgoing:
        lines = ((b"host", cls.host.encode()), *cls.lines)
        made = Outgoing("POST", True, cls.host, cls.target, lines, len(cls.body))
        return made._replace(**changed)

    @classmethod
    def signing(cls) -> Signing:
        return table.SIGNERS[cls.kind].prepare(cls.fields, cls.how)


class Aws(Subject):
    kind = "aws"
    secrets = ("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "FwoGZXIvYXdzEJr-a-session-token")
    fields: ClassVar[Mapping[str, Field]] = {
        "access_key_id": "AKIDEXAMPLE",
        "secret_access_key": Secret(secrets[0]),
        "session_token": Secret(secrets[1]),
    }
    wrong: ClassVar[Mapping[str, Field]] = {"access_key_id": "not an id", "secret_access_key": Secret(secrets[0])}
    host = "dynamodb.eu-west-1.amazonaws.com"
    unsignable: ClassVar[Mapping[str, Any]] = {"host": "host.example"}
    copies = ((b"authorization", COPY), (b"x-amz-date", COPY), (b"x-amz-security-token", COPY))


class Hmac(Subject):
    kind = "hmac"
    secrets = ("NhqPtmdSJYdKjVHjA7PZj4Mge3R5YNiP", "a-key-id-that-opens-some-doors")
    fields: ClassVar[Mapping[str, Field]] = {"key_id": Secret(secrets[1]), "secret": Secret(secrets[0])}
    how = HmacTemplate(
        "sha256",
        "{timestamp}{method}{target}{body}",
        headers=(("X-Key", "{key_id}"), ("X-Time", "{timestamp}"), ("X-Sign", "{signature}")),
        query=(("signature", "{signature}"),),
    )
    wrong: ClassVar[Mapping[str, Field]] = {"key_id": Secret("zwölf-\x01"), "secret": Secret(secrets[0])}
    target = b"/a%20b?c=d&signature=" + COPY
    unsignable: ClassVar[Mapping[str, Any]] = {"length": 1 << 40}
    copies = ((b"x-key", COPY), (b"x-time", COPY), (b"x-sign", COPY))


class PlaceholdersOfARule(Subject):
    kind = table.PLACEHOLDERS
    secrets = ('s3cret-of-"the"-record',)
    fields: ClassVar[Mapping[str, Field]] = {"value": Secret(secrets[0])}
    how = Placeholders(
        (
            Position("header", "X-Api-Key", "{value}", "", "sluicegate:shop"),
            Position("query", "key", "{value}", "", "sluicegate:shop"),
            Position("json", "/login/secret", "{value}", "", "sluicegate:shop"),
        )
    )
    wrong: ClassVar[Mapping[str, Field]] = {"value": Secret(secrets[0] + "\r\n")}
    target = b"/a%20b?c=d&key=sluicegate:shop"
    lines = ((b"content-type", b"application/json"), (b"x-api-key", b"sluicegate:shop"))
    body = b'{"login": {"secret": "sluicegate:shop"}, "note": "sluicegate:shop"}'
    unsignable: ClassVar[Mapping[str, Any]] = {"target": b"/a?key=sluicegate:other"}
    timed = False


SUBJECTS: list[type[Subject]] = [Aws, Hmac, PlaceholdersOfARule]


@pytest.fixture(params=SUBJECTS, ids=lambda subject: str(subject.kind))
def subject(request: pytest.FixtureRequest) -> type[Subject]:
    found: type[Subject] = request.param
    return found


def written(subject: type[Subject], request: Outgoing, body: bytes, now: float = NOW) -> bytes:
    """Target, lines and body as they leave."""
    signing = subject.signing()
    signed = signing.sign(request, body, now)
    kept = [
        name + b": " + value
        for name, value in request.lines
        if name.replace(b"_", b"-") not in signing.clears and name not in signed.drops
    ]
    return b"\n".join([signed.target, *kept, signed.lines, body if signed.body is None else signed.body])


def parts(signed: Signed) -> tuple[object, ...]:
    return signed.target, signed.lines, signed.drops, signed.body


def test_every_row_of_the_table_is_under_contract() -> None:
    assert {subject.kind for subject in SUBJECTS} == set(SIGNERS)


# The contract.


def test_it_is_pure(subject: type[Subject]) -> None:
    request = subject.request()
    first = subject.signing().sign(request, subject.body, NOW)
    assert parts(first) == parts(subject.signing().sign(subject.request(), subject.body, NOW))
    assert request == subject.request()


def test_another_attempt_is_right_for_its_own_time_and_body(subject: type[Subject]) -> None:
    signing, request, other = subject.signing(), subject.request(), subject.body.replace(b"l", b"L")
    first = signing.sign(request, subject.body, NOW)
    assert first.timed == subject.timed
    if subject.timed:
        assert signing.sign(request, subject.body, NOW + 600).lines != first.lines
        assert signing.sign(request, other, NOW).lines != first.lines
    assert parts(signing.sign(request, subject.body, NOW)) == parts(first)


def test_what_the_client_asked_for_is_kept(subject: type[Subject]) -> None:
    target = subject.signing().sign(subject.request(), subject.body, NOW).target
    assert target.startswith(b"/a%20b?c=d")


def test_it_shows_no_secret(subject: type[Subject]) -> None:
    signing = subject.signing()
    shown = repr(signing) + str(signing) + repr(signing.sign(subject.request(), subject.body, NOW))
    with pytest.raises(ValueError) as refused:
        table.SIGNERS[subject.kind].prepare(subject.wrong, subject.how)
    with pytest.raises(Unsignable) as unsignable:
        subject.signing().need(subject.request(**subject.unsignable))
    for secret in subject.secrets:
        assert secret not in shown + str(refused.value) + str(unsignable.value)


def test_it_cannot_be_pickled(subject: type[Subject]) -> None:
    with pytest.raises(TypeError):
        pickle.dumps(subject.signing())


def test_what_the_client_sent_in_its_place_never_passes(subject: type[Subject]) -> None:
    signing = subject.signing()
    assert all(name == name.lower() and b"_" not in name for name in signing.clears)
    given = subject.request(lines=(*subject.request().lines, *subject.copies))
    assert COPY not in written(subject, given, subject.body)


def test_the_renderings_of_every_secret_are_listed_for_masking(subject: type[Subject]) -> None:
    masks = subject.signing().masks
    for secret in subject.secrets:
        assert secret.encode() in masks
        assert secret.encode().hex().encode() in masks


def test_what_it_needs_of_the_body_is_declared(subject: type[Subject]) -> None:
    signing = subject.signing()
    assert signing.need(subject.request(length=0)).hold == 0
    assert signing.need(subject.request()).hold >= len(subject.body)
    with pytest.raises(Unsignable) as refused:
        signing.need(subject.request(length=1 << 40))
    assert refused.value.too_large


# Adding one.


class _ToySigning:
    """Writes the length of the body, reversed key in front."""

    clears = frozenset({b"x-toy"})

    def __init__(self, key: Secret) -> None:
        from signers.masks import renderings

        self._key, self.masks = key, renderings([key.reveal()])

    def __repr__(self) -> str:
        return "ToySigning(•••)"

    def need(self, request: Outgoing) -> Need:
        if request.host != "api.example":
            raise Unsignable("only for api.example")
        if request.length and request.length > 99:
            raise Unsignable("at most 99 bytes", too_large=True)
        return Need(99 if request.length else 0)

    def sign(self, request: Outgoing, body: bytes | None, now: float) -> Signed:
        mark = hash((self._key.reveal(), body, now))
        return Signed(request.target, b"X-Toy: %d\r\n" % mark)


def prepare_toy(fields: Mapping[str, Field], how: object) -> Signing:
    key = fields["toy_key"]
    if not isinstance(key, Secret) or key.reveal() == "bad":
        raise ValueError("field 'toy_key' is bad")
    return _ToySigning(key)


class Toy(Subject):
    kind = "toy"
    secrets = ("the-key-of-the-toy",)
    fields: ClassVar[Mapping[str, Field]] = {"toy_key": Secret(secrets[0])}
    wrong: ClassVar[Mapping[str, Field]] = {"toy_key": Secret("bad")}
    unsignable: ClassVar[Mapping[str, Any]] = {"host": "other.example"}
    copies = ((b"x-toy", COPY), (b"x_toy", COPY))


CONTRACT: list[Callable[[type[Subject]], None]] = [
    test_it_is_pure,
    test_another_attempt_is_right_for_its_own_time_and_body,
    test_what_the_client_asked_for_is_kept,
    test_it_shows_no_secret,
    test_it_cannot_be_pickled,
    test_what_the_client_sent_in_its_place_never_passes,
    test_the_renderings_of_every_secret_are_listed_for_masking,
    test_what_it_needs_of_the_body_is_declared,
]


def test_a_new_signer_is_one_file_one_row_and_one_class_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "SIGNERS", {**SIGNERS, "toy": Row(prepare_toy, ("toy_key",))})
    for promise in CONTRACT:
        promise(Toy)


def test_the_fields_of_a_row_are_those_of_its_records() -> None:
    for kind, row in SIGNERS.items():
        assert FIELDS_OF.get(kind, ()) == row.fields
        assert OPTIONAL_FIELDS_OF.get(kind, ()) == row.optional
