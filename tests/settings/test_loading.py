"""Finding, reading and checking the configuration file."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies

from proxy.errors import ConfigurationError
from proxy.settings import Bind, Settings, load, settings_from

STATIC = "[{kind: static, tenant: acme, agent: bot}]"
MINIMAL = f"identity: {STATIC}\n"


def read(text: str, file: str = "/etc/sg/sluicegate.yaml") -> Settings:
    return settings_from(text, Path(file))


def faults_of(text: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        read(text)
    return [str(fault).removeprefix("/etc/sg/sluicegate.yaml:") for fault in caught.value.faults]


def test_an_identity_alone_is_a_whole_configuration():
    found = read(MINIMAL)
    assert [(one.kind, one.bind) for one in found.listeners] == [
        ("proxy", Bind("127.0.0.1", 18400)),
        ("base-url", Bind("127.0.0.1", 18401)),
    ]
    assert found.ops == Bind("127.0.0.1", 18490)
    assert found.store.kind == "file"
    assert found.policies.default == "deny"
    assert found.limits.stalled_body_seconds == 4


def test_relative_paths_start_at_the_folder_of_the_file_defaults_included():
    found = read(
        MINIMAL + "store: {kind: file, path: records/all.enc, key_file: /run/key}\nupstream: {extra_ca_file: x.pem}"
    )
    assert found.store.path == Path("/etc/sg/records/all.enc")
    assert found.store.key_file == Path("/run/key")
    assert found.upstream.extra_ca_file == Path("/etc/sg/x.pem")
    assert found.policies.dirs == (Path("/etc/sg/policies"),)
    assert found.control == Path("/etc/sg/run/control.sock")
    assert found.ca.dir == Path("/etc/sg/ca")


def test_all_faults_come_at_once_each_with_its_line():
    assert faults_of(
        "listeners:\n"
        "  - {kind: proxy, bind: 127.0.0.1:18400}\n"
        "  - {kind: smtp, bind: 127.0.0.1:18401}\n"
        "identity:\n"
        "  - kind: static\n"
        "    tenant: a/b\n"
        "    agent: bot\n"
        "colour: red\n"
        "store: {kind: vault, address: 'https://v:8200', auth: {kind: jwt, role: r}}\n"
        "routes:\n"
        "  slack: {timeouts: {connect: -1}}\n"
    ) == [
        "3: listeners.1.kind: should be 'proxy', 'base-url', 'tools' or 'transparent'",
        "6: identity.chain.0.static.tenant: must be 1 to 128 letters, digits, '.', '_' or '-', and not '.' or '..'",
        "8: colour: no such setting; see docs/configuration.md",
        "9: store.vault.auth.jwt.token_file: is required",
        "11: routes.slack.timeouts.connect: should be greater than 0",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("listeners: [{kind: proxy, bind: 0.0.0.0:1}]", "can be reached from other machines, so it needs tls"),
        ("listeners: [{kind: proxy, bind: '[::]:1'}]", "can be reached from other machines"),
        ("listeners: [{kind: proxy, bind: 10.0.0.1:1}]", "can be reached from other machines"),
        ("listeners: [{kind: proxy, bind: example.com:1}]", "IP literal or localhost"),
        ("listeners: [{kind: proxy, bind: 127.0.0.1:70000}]", "must be HOST:PORT"),
        ("listeners: [{kind: proxy, bind: 8080}]", "must be HOST:PORT"),
        ("listeners: []", "needs at least one"),
        ("listeners: [{kind: proxy, bind: 127.0.0.1:5}, {kind: base-url, bind: 127.0.0.1:5}]", "share the address"),
        ("ops: 127.0.0.1:18400", "share the address 127.0.0.1:18400"),
        ("control: ./run/sock", "must be unix:PATH or null"),
        ("tenants: ['..']", "letters, digits"),
        ("store: {kind: memory}", "'file', 'vault'"),
        ("store: {kind: vault, address: 'https://u:p@v', auth: {kind: token, token_file: t}}", "without user"),
        ("store: {kind: vault, address: v:8200, auth: {kind: token, token_file: t}}", "http(s)://HOST"),
        ("store: {kind: vault, address: [], auth: {kind: token, token_file: t}}", "needs at least one"),
        (
            "store: {kind: vault, address: 'http://v', path: x, auth: {kind: token, token_file: t}}",
            "must hold each of {credential}, {tenant} once",
        ),
        ("store: {kind: vault, address: 'http://v', kv: 3, auth: {kind: token, token_file: t}}", "should be 1 or 2"),
        ("upstream: {proxy: 'http://user:pw@proxy:3128'}", "hold no user or password"),
        ("upstream: {proxy: 'socks5://proxy:1080'}", "must be http://HOST:PORT"),
        ("audit: {sink: file}", "is required"),
        ("limits: {in_flight: 0}", "greater than or equal to 1"),
        ("limits: {grace_seconds: 0}", "greater than 0"),
        ("policies: {default: allow}", "'deny' or 'warn'"),
        ("tenants: [a]\ntenants: [b]", "stands here a second time (first on line 2)"),
        ("limits: {1: 2}", "should be strings"),
        ("? [a]\n: b", "a key must be plain text"),
        ("tenants: [a", "not valid YAML"),
        ("tenants: !!python/object/apply:os.system [id]", "not valid YAML"),
        ("tenants: 2026-99-99", "impossible form"),
    ],
)
def test_a_setting_that_cannot_hold_is_refused(text: str, expected: str):
    found = faults_of(MINIMAL + text)
    assert len(found) == 1
    assert expected in found[0]
    assert not found[0].startswith("0")


@pytest.mark.parametrize(
    ("identity", "expected"),
    [
        ("[]", "needs at least one"),
        (
            "[{kind: static, tenant: a, agent: b}, {kind: client_certificate, rules: [{dns: x, tenant: a, agent: b}]}]",
            "only member",
        ),
        ("{chain: [{kind: static, tenant: a, agent: b}], per_call: required}", "not static"),
        ("{chain: [{kind: static, tenant: a, agent: b}], per_call: sometimes}", "'required' or 'optional'"),
        ("[{kind: session_token, issuers: []}]", "needs at least one"),
        ("[{kind: client_certificate, rules: [{dns: '{agent}.x', tenant: a, agent: b}]}]", "needs tls: {client_ca}"),
        ("[{kind: client_certificate, rules: [{tenant: a, agent: b}]}]", "exactly one of spiffe and dns"),
        ("[{kind: client_certificate, rules: []}]", "needs at least one"),
        ("[{kind: service_account, issuer: i, audience: a, jwks_file: k}]", "is required"),
        (f"{{chain: {STATIC}, revocations_file: x, revocations_url: 'https://x'}}", "takes one of"),
        (f"{{chain: {STATIC}, revocations_url: 'http://x'}}", "must start with https://"),
        ("[{kind: magic}]", "'static', 'session_token'"),
    ],
)
def test_an_identity_that_cannot_hold_is_refused(identity: str, expected: str):
    found = faults_of(f"identity: {identity}")
    assert len(found) == 1
    assert expected in found[0]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"algorithms": "[HS256]"}, "'ES256'"),
        ({"algorithms": "[none]"}, "'ES256'"),
        ({"jwks_file": None}, "exactly one of jwks_file and jwks_url"),
        ({"jwks_url": "https://idp/keys"}, "exactly one of jwks_file and jwks_url"),
        ({"jwks_file": None, "jwks_url": "http://idp/keys"}, "must start with https://"),
        ({"tenants": None}, "is required"),
        ({"audience": "[]"}, "needs at least one"),
    ],
)
def test_an_issuer_pins_keys_algorithms_audience_and_tenants(change: dict[str, str | None], expected: str):
    issuer = {"issuer": "https://idp", "audience": "sg", "algorithms": "[ES256]", "jwks_file": "k", "tenants": "['*']"}
    issuer |= change
    fields = ", ".join(f"{name}: {value}" for name, value in issuer.items() if value is not None)
    found = faults_of(f"identity: [{{kind: session_token, issuers: [{{{fields}}}]}}]")
    assert len(found) == 1
    assert expected in found[0]


def test_per_call_identity_is_a_mapping_with_a_chain():
    issuer = "{issuer: i, audience: [a, b], algorithms: [ES256], jwks_file: k.json, tenants: [acme]}"
    found = read(f"identity: {{per_call: required, chain: [{{kind: session_token, issuers: [{issuer}]}}]}}")
    assert found.identity.per_call == "required"
    assert found.identity.chain[0].issuers[0].audience == ("a", "b")
    assert found.identity.chain[0].issuers[0].jwks_file == Path("/etc/sg/k.json")


def test_a_listener_can_have_an_identity_of_its_own():
    found = read(
        MINIMAL
        + "listeners:\n"
        + "  - {kind: proxy, bind: 127.0.0.1:1}\n"
        + "  - {kind: base-url, bind: 127.0.0.1:2, identity: [{kind: static, tenant: other, agent: bot}]}\n"
    )
    assert [found.identity_of(one).chain[0].tenant for one in found.listeners] == ["acme", "other"]


def test_a_listener_with_tls_may_be_reached_from_elsewhere():
    found = read(MINIMAL + "listeners: [{kind: proxy, bind: '[::]:1', tls: {cert: c.pem, key: k.pem}}]")
    assert found.listeners[0].bind == Bind("::", 1)
    assert str(found.listeners[0].bind) == "[::]:1"


@pytest.mark.parametrize(
    ("auth", "kind"),
    [
        ("{kind: token, token_file: t}", "token"),
        ("{kind: approle, role_id: r, secret_id_file: s}", "approle"),
        ("{kind: jwt, role: r, token_file: t}", "jwt"),
        ("{kind: kubernetes, role: r}", "kubernetes"),
    ],
)
def test_vault_has_four_ways_to_log_in(auth: str, kind: str):
    found = read(MINIMAL + f"store: {{kind: vault, address: ['https://a/', 'http://b:8200'], auth: {auth}}}")
    assert found.store.address == ("https://a", "http://b:8200")
    assert found.store.auth.kind == kind


def test_a_route_is_the_hosts_else_the_providers_else_the_stars():
    found = read(
        MINIMAL
        + "routes:\n"
        + "  api.x.example: {timeouts: {head: 1}}\n"
        + "  x: {timeouts: {head: 2}}\n"
        + "  '*': {timeouts: {head: 3}}\n"
    )
    assert found.route("x", "api.x.example").timeouts.head == 1
    assert found.route("x", "other.x.example").timeouts.head == 2
    assert found.route(None, "elsewhere.example").timeouts.head == 3
    assert read(MINIMAL).route(None, "elsewhere.example").timeouts.head == 300


def test_settings_do_not_change():
    with pytest.raises(ValueError, match="frozen"):
        read(MINIMAL).tenants = ("x",)


def test_a_fault_found_later_names_the_line_of_its_setting():
    found = read(MINIMAL + "audit:\n  sink: file\n  path: x.log\n")
    assert str(found.fault(("audit", "path"), "full")) == "/etc/sg/sluicegate.yaml:4: full"
    assert found.fault(("log", "level"), "default").line == 1


def test_no_fault_repeats_what_was_written():
    text = (
        MINIMAL
        + "store: {kind: vault, address: 'https://u:hunter2@v', auth: {kind: token, token: hunter2}}\nops: hunter2"
    )
    assert not any("hunter2" in fault for fault in faults_of(text))


def test_the_file_is_named_by_argument_then_variable_then_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("argument", "variable", "sluicegate"):
        (tmp_path / f"{name}.yaml").write_text(f"identity: [{{kind: static, tenant: {name}, agent: bot}}]")
    monkeypatch.chdir(tmp_path)
    environment = {"SLUICEGATE_CONFIG": str(tmp_path / "variable.yaml")}
    assert load(tmp_path / "argument.yaml", environment).identity.chain[0].tenant == "argument"
    assert load(None, environment).identity.chain[0].tenant == "variable"
    assert load(None, {}).identity.chain[0].tenant == "sluicegate"


def test_without_any_file_the_operator_is_told_how_to_name_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=r"sluicegate.yaml: not found; name a configuration with --config"):
        load(None, {})


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "cannot be read: No such file"),
        (b"\xff\xfe\x00", "is not UTF-8"),
        (b"", "must be a mapping"),
        (b"- a", "mapping"),
    ],
)
def test_a_file_that_is_no_configuration_is_named(tmp_path: Path, content: bytes | None, expected: str):
    file = tmp_path / "some.yaml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=expected) as caught:
        load(file, {})
    assert caught.value.faults[0].file == str(file)


@given(strategies.text(alphabet="abcdkinds:{}[]-,'\"&*!? \n\t#0159.", max_size=80))
@settings(max_examples=150, deadline=None)
def test_any_text_is_either_settings_or_a_configuration_error(text: str):
    with suppress(ConfigurationError):
        assert isinstance(read(text), Settings)
