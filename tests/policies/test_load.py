"""Policy files are read whole or not at all, and everything wrong with them is said at once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from policies.load import PolicyError, load
from tests.policies.documents import PROVIDERS, document

HEAD = "apiVersion: sluicegate/v1\nkind: EgressPolicy\nmetadata: {name: bot}\nsubjects: [{agent: bot}]\n"


def faults_of(*paths: Path, floor: Path | None = None) -> list[tuple[int, str]]:
    with pytest.raises(PolicyError) as caught:
        load(paths, floor, PROVIDERS)
    return [(fault.line, fault.message) for fault in caught.value.faults]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("allow: [{name: a, provider: slak}]\n", 5, 'no provider "slak"; did you mean "slack"?'),
        ("allow:\n- name: a\n  provider: slack\n  operations:\n  - chat.postMesage\n", 9, "chat.postMessage"),
        ("allow:\n- name: a\n  provider: slack\n  operations: [chta.*]\n", 8, 'no operation "chta.*"'),
        ("deny:\n- name: a\n  provider: slack\n  operations: [admin.y]\n", 8, 'no operation "admin.y"'),
        ("allow:\n- name: a\n  host: x.test\n  operations: [chat.postMessage]\n", 8, "name the provider"),
        ("allow:\n- name: a\n  host: x.test\n  methds: [GET]\n", 8, 'unknown key "methds"; did you mean "methods"?'),
        ("allow:\n- name: a\n  host: x.test\n  methods: [get]\n", 8, "capitals"),
        ("allow:\n- name: a\n  host: x.test\n  methods: [CONNECT]\n", 8, "CONNECT"),
        ("allow:\n- name: a\n  host: x.test\n  methods: []\n", 8, "must not be empty"),
        ("allow:\n- name: a\n  host: a*.x.test\n", 7, "is not a host"),
        ("allow:\n- name: a\n  host: x.test:8443\n", 7, "a port has its own key"),
        ("allow:\n- name: a\n  host: x.test\n  port: 70000\n", 8, "port"),
        ("allow:\n- name: a\n  host: x.test\n  port: '443'\n", 8, "port must be a whole number"),
        ("allow:\n- name: a\n  host: x.test\n  paths:\n  - /a\n  - /a/../b\n", 10, "more than one way"),
        ("allow:\n- name: a\n  host: x.test\n  networks: [10.2.0.1/16]\n", 8, "host bits"),
        ("allow:\n- name: a\n  host: x.test\n  presigned: yes\n", 8, "presigned must be 'allow' or 'refuse'"),
        ("allow:\n- name: a\n  host: x.test\n  errors: raw\n", 8, "errors must be"),
        ("allow:\n- name: a\n  host: x.test\n  max_bytes: 5\n", 8, "only a tunnel"),
        ("allow:\n- name: a\n  provider: slack\n  port: 8443\n", 8, "port needs a host"),
        ("allow:\n- name: a\n  provider: slack\n  plaintext: true\n", 8, "plaintext needs a host"),
        ("allow:\n- name: a\n  methods: [GET]\n", 6, "provider, host or tunnel"),
        ("allow:\n- name: a\n  tunnel: x.test\n  methods: [GET]\n", 8, "methods cannot hold"),
        ("allow:\n- name: a\n  tunnel: x.test:0\n", 7, "1 to 65535"),
        ("allow:\n- name: a\n  host: '*.x.test'\n  credential: {name: k}\n", 7, "never goes to a wildcard host"),
        ("allow:\n- name: a\n  provider: slack\n  host: '*.slack.com'\n", 8, "never goes to a wildcard host"),
        ("allow:\n- name: a\n  host: s3.amazonaws.com\n  credential: {name: k}\n", 7, "begin with the bucket"),
        ("allow:\n- name: a\n  host: x.test\n  credential: {name: k, header: A, query: b}\n", 8, "one place"),
        ("allow:\n- name: a\n  host: x.test\n  credential: {name: k, format: 'x {value}'}\n", 8, "format"),
        ("allow:\n- name: a\n  host: x.test\n  credential: {name: k, header: A, format: x}\n", 8, '"{value}" once'),
        ("allow:\n- name: a\n  host: x.test\n  credential: {name: k, header: Host}\n", 8, "cannot carry a credential"),
        ("allow:\n- name: a\n  host: x.test\n  credential: {name: ../k}\n", 8, "a name has"),
        ("allow:\n- name: a\n  host: x.test\n  credential: some\n", 8, "credential must be 'none'"),
        ("allow:\n- name: a\n  host: x.test\n- name: a\n  host: y.test\n", 8, 'named "a" already'),
        ("allow:\n- name: a\n  host: x.test\ndeny:\n- name: a\n  host: y.test\n", 9, 'named "a" already'),
        ("deny:\n- name: a\n", 6, "say what is denied"),
        ("requires: [time-travel]\nallow:\n- name: a\n  host: x.test\n", 5, '"time-travel"'),
        ("mode: dry\nallow:\n- name: a\n  host: x.test\n", 5, "mode must be 'enforce' or 'warn'"),
        ("allow:\n- name: a\n  host: x.test\nallow: []\n", 8, '"allow" stands here twice'),
        ("allow:\n- name: a\n  name: b\n  host: x.test\n", 7, '"name" stands here twice'),
        ("allow:\n- &a\n  name: a\n  host: x.test\n- *a\n", 6, "aliases"),
        ("allow:\n- name: a\n  host: [\n", 8, "not YAML"),
        ("allow:\n- name: a\n  <<: {host: x.test}\n", 7, "merge keys"),
        ("allow:\n- name: a\n  provider: slack\n  operations: [chat **]\n", 8, "an operation's name"),
        ("allow:\n- name: a\n  tunnel: https://x.test\n", 7, "HOST or HOST:PORT"),
        ("allow:\n- name: a\n  host: x.test\n  credential: {name: k, header: A b}\n", 8, "not a header's name"),
        ("allow:\n- name: a\n  host: x.test\n  credential: {name: k, query: a&b}\n", 8, "not a parameter's name"),
        ("allow:\n- name: no\n  host: x.test\n", 6, "put it in quotes"),
        ("", 3, "neither allow nor deny"),
    ],
)  # fmt: skip
def test_a_fault_is_named_with_its_line(write, text, line, message):
    found = faults_of(write(HEAD + text))
    assert [at for at, _ in found] == [line]
    assert message in found[0][1]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"subjects": []}, "subjects must not be empty"),
        ({"subjects": [{}]}, "a subject names"),
        ({"subjects": [{"agent": "a*b"}]}, "team-*"),
        ({"subjects": [{"agents": "a"}]}, 'unknown key "agents"'),
        ({"apiVersion": "sluicegate/v2"}, "apiVersion must be 'sluicegate/v1'"),
        ({"kind": "Policy"}, "kind must be 'EgressPolicy'"),
        ({"metadata": {"name": ".."}}, "a name has"),
    ],
)
def test_a_head_that_says_nothing_or_too_much_is_refused(write, keys, message):
    found = faults_of(write(document(allow=[{"name": "a", "host": "x.test"}], **keys)))
    assert len(found) == 1
    assert message in found[0][1]


def test_every_fault_of_every_file_is_named_at_once(write):
    first = write(
        HEAD + "allow:\n- name: a\n  host: x..test\n  methods: [get]\n- name: b\n  provider: nope\n", "1.yaml"
    )
    second = write("kind: EgressPolicy\n", "2.yaml")
    found = faults_of(first, second)
    assert [line for line, _ in found] == [7, 8, 10, 1, 1, 1]


def test_two_documents_of_one_name_are_refused(write):
    write(document("bot", allow=[{"name": "a", "host": "x.test"}]), "1.yaml")
    directory = write(document("bot", allow=[{"name": "a", "host": "y.test"}]), "2.yaml").parent
    (fault,) = faults_of(directory)
    assert 'a document named "bot" already stands at' in fault[1]
    assert "1.yaml:1" in fault[1]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"host": "x.test"}, {"host": "x.test"}),
        ({"host": "x.test"}, {"host": "X.test."}),
        ({"host": "x.test", "methods": ["GET"]}, {"host": "x.test", "methods": ["GET", "POST"]}),
        ({"host": "x.test", "paths": ["/ab/*"]}, {"host": "x.test", "paths": ["/*/ab"]}),
        ({"host": "x.test", "paths": ["/a/**"]}, {"host": "x.test", "paths": ["/b", "/a/*"]}),
        ({"host": "slack.com"}, {"provider": "slack"}),
        ({"provider": "slack", "operations": ["chat.*"]}, {"provider": "slack", "operations": ["chat.postMessage"]}),
    ],
)
def test_two_equally_specific_allows_with_different_credentials_are_refused(write, one, other):
    rules: list[dict[str, Any]] = [
        {"name": "a", "credential": {"name": "one"}, **one},
        {"name": "b", "credential": {"name": "two"}, **other},
    ]
    (fault,) = faults_of(write(document(allow=rules)))
    assert "different credentials" in fault[1]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"host": "x.test", "methods": ["GET"]}, {"host": "x.test", "methods": ["POST"]}),
        ({"host": "x.test", "methods": ["GET"]}, {"host": "x.test"}),
        ({"host": "x.test", "access": "read"}, {"host": "x.test", "access": "write"}),
        ({"host": "x.test", "port": 8443}, {"host": "x.test"}),
        ({"host": "x.test", "plaintext": True}, {"host": "x.test"}),
        ({"host": "x.test", "paths": ["/a/**"]}, {"host": "x.test", "paths": ["/b/**"]}),
        ({"host": "x.test", "paths": ["/a/**"]}, {"host": "x.test", "paths": ["/a/bc"]}),
        ({"host": "x.test"}, {"host": "y.test"}),
        ({"provider": "slack", "operations": ["chat.*"]}, {"provider": "slack", "operations": ["admin.x"]}),
        ({"provider": "slack", "operations": ["chat.*"]}, {"provider": "slack"}),
    ],
)
def test_allows_that_differ_in_specificity_or_cannot_meet_may_use_different_credentials(write, one, other):
    rules: list[dict[str, Any]] = [
        {"name": "a", "credential": {"name": "one"}, **one},
        {"name": "b", "credential": {"name": "two"}, **other},
    ]
    assert load([write(document(allow=rules))], None, PROVIDERS).size == (1, 2)


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        ({"tenant": "acme"}, {"tenant": "globex"}, False),
        ({"tenant": "acme"}, {"agent": "bot"}, True),
        ({"tenant": "acme", "agent": "bot"}, {"agent": "bot"}, True),
        ({"agent": "team-*"}, {"agent": "team-red"}, True),
        ({"agent": "team-*"}, {"agent": "other"}, False),
        ({"agent": "bot", "actor": "ann"}, {"agent": "bot", "actor": "bob"}, False),
        ({"agent": "*"}, {"agent": "bot"}, True),
    ],
)
def test_credentials_conflict_only_where_one_caller_can_be_meant_by_both(write, one, other, meet):
    for name, subject in (("one", one), ("two", other)):
        rule = {"name": "a", "host": "x.test", "credential": {"name": name}}
        path = write(document(name, subjects=[subject], allow=[rule]), f"{name}.yaml")
    if meet:
        assert len(faults_of(path.parent)) == 1
    else:
        load([path.parent], None, PROVIDERS)


def test_a_wildcard_host_may_carry_a_credential_where_it_is_the_providers_own_template(write):
    rule = {"name": "a", "provider": "shopify", "host": "*.myshopify.com"}
    assert load([write(document(allow=[rule]))], None, PROVIDERS).size == (1, 1)


def test_only_policy_files_are_read_and_a_mounted_config_map_is_followed(write, tmp_path):
    data = write(document("one", allow=[{"name": "a", "host": "x.test"}]), "one.yaml", "..2026_01").parent
    mount = tmp_path / "mount"
    mount.mkdir()
    os.symlink(data, mount / "..data")
    os.symlink("..data/one.yaml", mount / "one.yaml")
    write(document("two", allow=[{"name": "a", "host": "x.test"}]), "two.yml", "mount")
    for name in ("bot_test.yaml", "bot_test.yml", "notes.txt", ".hidden.yaml"):
        (mount / name).write_text("no policy")
    (mount / "folder.yaml").mkdir()
    assert load([mount], None, PROVIDERS).size == (2, 2)


def test_one_file_may_hold_several_documents(write):
    path = write(
        HEAD + "allow: [{name: a, host: x.test}]\n---\n" + HEAD.replace("bot", "b2") + "deny: [{name: a, host: y}]\n"
    )
    assert load([path], None, PROVIDERS).size == (2, 2)


def test_a_directory_that_cannot_be_read_is_a_fault(tmp_path):
    assert faults_of(tmp_path / "absent")[0][1].startswith("cannot be read")


def test_a_file_over_four_mebibytes_is_refused(write):
    assert "4 MiB" in faults_of(write(HEAD + "#" * (4 << 20)))[0][1]


def test_bytes_that_are_not_utf_8_are_refused(write):
    path = write(HEAD)
    path.write_bytes(HEAD.encode() + b"# \xff\n")
    assert faults_of(path) == [(5, "not UTF-8")]


@pytest.mark.parametrize("text", ["[" * 100_000, "- " * 100_000, "a: " + "[" * 500 + "]" * 500, "a:\n- " * 40])
def test_deep_nesting_is_a_fault_and_not_a_crash(write, text):
    assert faults_of(write(text))


def test_an_alias_bomb_is_refused_before_it_grows(write):
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60)]
    assert any("aliases" in message for _, message in faults_of(write("\n".join(lines))))


def test_a_fault_never_repeats_a_value_that_may_be_secret(write):
    text = HEAD + "allow:\n- name: a\n  host: x.test\n  credential: {name: k, value: hunter2-hunter2}\n"
    assert "hunter2" not in str(faults_of(write(text)))


def test_the_hash_is_of_what_documents_say(write):
    one = write("# a remark\n" + HEAD + "allow: [{name: a, host: X.test}, {name: b, host: y.test}]\n", "1.yaml")
    other = write(HEAD + "mode: enforce\nallow: [{name: b, host: y.test}, {name: a, host: x.test}]\n", "2.yaml")
    changed = write(HEAD + "allow: [{name: b, host: y.test}, {name: a, host: z.test}]\n", "3.yaml")
    hashes = [load([path], None, PROVIDERS).hash for path in (one, other, changed)]
    assert hashes[0] == hashes[1] != hashes[2]
    assert load([one], None, PROVIDERS, "warn").hash != hashes[0]
    assert load([], one, PROVIDERS).hash != hashes[0]
    assert len(hashes[0]) == 12
