"""`tls` and `credential.placeholders` of a rule: what they load as, and what is refused with its line."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme

from policies.decide import Allowed
from policies.load import PolicyError, load
from policies.placeholders import Stand
from policies.tls_terms import TlsTerms
from tests.policies.documents import PROVIDERS

HEAD = "apiVersion: sluicegate/v1\nkind: EgressPolicy\nmetadata: {name: bot}\nsubjects: [{agent: bot}]\n"
RULE = "allow:\n- name: a\n  host: x.test\n"
PIN = "A" * 43 + "="
CA = trustme.CA().cert_pem.bytes().decode()


def written(folder: Path, text: str, name: str = "policy.yaml") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(HEAD + text)
    return folder


def allowed(folder: Path, text: str) -> Allowed:
    policies = load([written(folder, text)], None, PROVIDERS)
    plan = policies.plan("acme", "bot", "", ("https", "x.test", 443), None)
    verdict = plan.decide("GET", "/", None, write=False)
    assert isinstance(verdict, Allowed)
    return verdict


def fault_of(folder: Path, text: str) -> tuple[int, str]:
    with pytest.raises(PolicyError) as caught:
        load([written(folder, text)], None, PROVIDERS)
    (fault,) = caught.value.faults
    return fault.line, fault.message


# TLS.


def test_terms_reach_the_verdict_with_the_authorities_read(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text(CA)
    tls = f"  tls: {{ca: ca.pem, server_name: Orders.Mesh., pins: [sha256/{PIN}], min_version: 1.3}}\n"
    assert allowed(tmp_path, RULE + tls).tls == TlsTerms(CA, "orders.mesh", frozenset({PIN}), "1.3")
    assert allowed(tmp_path, RULE).tls is None


def test_authorities_may_stand_in_the_document(tmp_path: Path) -> None:
    block = "".join(f"      {line}\n" for line in CA.splitlines())
    terms = allowed(tmp_path, RULE + "  tls:\n    ca: |\n" + block).tls
    assert terms is not None
    assert terms.ca == CA


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("  tls:\n    ca: none.pem\n", 9, "the file cannot be read"),
        ("  tls:\n    min_version: '1.3'\n    ca: policy.yaml\n", 10, "no certificates in PEM form"),
        ("  tls:\n    server_name: '*.x.test'\n", 9, "one exact host name"),
        ("  tls:\n    pins: [abc]\n", 9, "SubjectPublicKeyInfo"),
        ("  tls:\n    pins: []\n", 9, "must not be empty"),
        ("  tls:\n    min_version: '1.1'\n", 9, "min_version must be '1.2' or '1.3'"),
        ("  tls:\n    verify: false\n", 9, 'unknown key "verify"'),
        ("  plaintext: true\n  tls: {pins: [" + PIN + "]}\n", 9, "plain text has no TLS"),
    ],
)
def test_terms_that_cannot_hold_are_faults_with_their_line(tmp_path: Path, text: str, line: int, message: str) -> None:
    found, said = fault_of(tmp_path, RULE + text)
    assert found == line
    assert message in said


def test_a_tunnel_has_no_terms(tmp_path: Path) -> None:
    line, message = fault_of(tmp_path, f"allow:\n- name: a\n  tunnel: x.test\n  tls: {{pins: [{PIN}]}}\n")
    assert (line, "tls cannot hold" in message) == (8, True)


def test_the_hash_of_the_policies_changes_with_the_authorities(tmp_path: Path) -> None:
    hashes = set()
    for ca in (CA, trustme.CA().cert_pem.bytes().decode()):
        (tmp_path / "ca.pem").write_text(ca)
        hashes.add(load([written(tmp_path, RULE + "  tls: {ca: ca.pem}\n")], None, PROVIDERS).hash)
    assert len(hashes) == 2


def test_two_allows_for_one_call_with_different_terms_are_a_conflict(tmp_path: Path) -> None:
    line, message = fault_of(tmp_path, RULE + "- name: b\n  host: x.test\n  tls: {min_version: '1.3'}\n")
    assert (line, "TLS terms" in message) == (8, True)


# Placeholders.


def test_positions_reach_the_verdict_with_their_placeholders_written_out(tmp_path: Path) -> None:
    text = """\
  credential:
    name: shop
    placeholders:
    - {header: X-Api-Key, format: "Key {value}"}
    - {basic: password, field: password}
    - {json: /a~1b/0, placeholder: SK-DUMMY}
    - {path: 2}
"""
    use = allowed(tmp_path, RULE + text).credential
    assert use is not None
    assert use.placement == (
        Stand("header", "X-Api-Key", "Key {value}", "", "sluicegate:shop"),
        Stand("basic", "password", "{value}", "password", "sluicegate:shop.password"),
        Stand("json", "/a~1b/0", "{value}", "", "SK-DUMMY"),
        Stand("path", "2", "{value}", "", "sluicegate:shop"),
    )


@pytest.mark.parametrize(
    ("positions", "line", "message"),
    [
        ("[]", 8, "must not be empty"),
        ("[{header: Host}]", 8, "frames the message"),
        ("[{header: X, query: k}]", 8, "one place"),
        ("[{format: 'a{value}'}]", 8, "one place"),
        ("[{basic: both}]", 8, "basic must be 'username' or 'password'"),
        ("[{json: a}]", 8, "JSON pointer"),
        ("[{path: 0}]", 8, "path"),
        ("[{header: X, format: 'a'}]", 8, "{value}"),
        ("[{header: X, format: 'ä{value}'}]", 8, "ASCII"),
        ("[{query: k, placeholder: 'a b c d'}]", 8, "visible ASCII"),
        ("[{query: k}, {query: k}]", 8, "already"),
        ("[{form: a}, {json: /a}]", 8, "not both"),
        ("[{basic: password}, {header: Authorization}]", 8, "not both"),
        ("[{basic: password, format: 'x{value}'}]", 8, "alone"),
        ("[{cookie: k}]", 8, 'unknown key "cookie"'),
    ],
)
def test_positions_that_cannot_hold_are_faults_with_their_line(
    tmp_path: Path, positions: str, line: int, message: str
) -> None:
    found, said = fault_of(tmp_path, RULE + f"  credential: {{name: shop, placeholders: {positions}}}\n")
    assert found == line
    assert message in said


def test_a_credential_has_a_place_or_placeholders(tmp_path: Path) -> None:
    text = "  credential: {name: shop, header: X, placeholders: [{query: k}]}\n"
    assert "not both" in fault_of(tmp_path, RULE + text)[1]


@pytest.mark.parametrize("feature", ["tls", "placeholders"])
def test_a_document_may_require_them(tmp_path: Path, feature: str) -> None:
    load([written(tmp_path, f"requires: [{feature}]\n" + RULE)], None, PROVIDERS)
