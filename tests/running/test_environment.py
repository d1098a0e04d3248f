"""The environment of a command behind its own proxy, as a function of what it was started in."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from proxy.model import Caller
from proxy.rules import load_rules
from proxy.running.environment import TrustFiles, Ways, child_environment, java_options, placeholders_of

WAYS = Ways("127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3", "TOKEN")
TRUST = TrustFiles(Path("/t/ca.pem"), Path("/t/bundle.pem"), Path("/t/store.p12"), Path("/t/python"))


def prepared(inherited: dict[str, str], placeholders: dict[str, str] | None = None, *keep: str):
    return child_environment(inherited, WAYS, TRUST, placeholders or {}, keep)


def test_a_proxy_that_was_set_is_replaced_and_not_called_a_secret():
    made = prepared({"HTTPS_PROXY": "http://me:pw@corp:1", "all_proxy": "socks5://x", "PATH": "/bin"})
    assert made.variables["HTTPS_PROXY"] == "http://agent:TOKEN@127.0.0.1:1"
    assert made.variables["PATH"] == "/bin"
    assert "all_proxy" not in made.variables
    assert made.removed == ()


def test_a_placeholder_takes_the_place_of_a_secret_but_not_of_what_is_kept():
    inherited = {"OPENAI_API_KEY": "real", "OTHER_API_KEY": "real"}
    dummies = {"OPENAI_API_KEY": "dummy", "OTHER_API_KEY": "dummy"}
    made = prepared(inherited, dummies, "OTHER_API_KEY")
    assert (made.variables["OPENAI_API_KEY"], made.variables["OTHER_API_KEY"]) == ("dummy", "real")
    assert (made.removed, made.placeholders) == (("OPENAI_API_KEY",), ("OPENAI_API_KEY",))


def test_variables_that_would_name_other_roots_are_turned_to_ours():
    made = prepared({"NIX_SSL_CERT_FILE": "/etc/x"})
    assert made.variables["NIX_SSL_CERT_FILE"] == "/t/bundle.pem"
    assert "HTTPLIB2_CA_CERTS" not in made.variables


def test_the_folder_for_python_comes_first_unless_its_variable_is_kept():
    assert prepared({}).variables["PYTHONPATH"] == "/t/python"
    assert prepared({"PYTHONPATH": "/own"}).variables["PYTHONPATH"] == "/t/python:/own"
    assert prepared({"PYTHONPATH": "/own"}, None, "PYTHONPATH").variables["PYTHONPATH"] == "/own"
    assert "PYTHONPATH" not in prepared({}, None, "PYTHONPATH").variables


def test_options_for_java_come_behind_those_that_were_there():
    options = prepared({"JAVA_TOOL_OPTIONS": "-Xmx1g"}).variables["JAVA_TOOL_OPTIONS"].split()
    assert options[0] == "-Xmx1g"
    assert options[1:] == list(java_options("127.0.0.1:3", TRUST.java))
    assert "-Dhttps.proxyPort=3" in options


@pytest.mark.parametrize(("agent", "names"), [("bot", {"ANTHROPIC_API_KEY"}), ("other", set())])
def test_placeholders_are_of_providers_that_policies_mention_for_this_caller(
    tmp_path: Path, agent: str, names: set[str]
):
    document = {
        "apiVersion": "sluicegate/v1",
        "kind": "EgressPolicy",
        "metadata": {"name": "p"},
        "subjects": [{"tenant": "acme", "agent": "bot"}],
        "allow": [{"name": "a", "provider": "anthropic"}, {"name": "b", "host": "b.test"}],
    }
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(document))
    rules = load_rules([tmp_path], None, [], "deny")
    assert set(placeholders_of(rules.policies, rules.catalog, Caller("acme", agent))) == names
