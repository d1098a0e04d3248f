"""A call for each rule, made up of the rule's own patterns."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from proxy.diagnosis.probes import Probe, probes_for
from proxy.model import Caller
from proxy.rules import load_rules

CALLER = Caller("acme", "bot")


def probes(tmp_path: Path, *allow: dict[str, object], deny: list[dict[str, object]] | None = None) -> list[Probe]:
    document = {
        "apiVersion": "sluicegate/v1",
        "kind": "EgressPolicy",
        "metadata": {"name": "p"},
        "subjects": [{"tenant": "acme", "agent": "*"}],
        "allow": list(allow),
        **({"deny": deny} if deny else {}),
    }
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(document))
    return list(probes_for(load_rules([tmp_path], None, [], "deny"), CALLER))


@pytest.mark.parametrize(
    ("rule", "call"),
    [
        ({"host": "a.test"}, "GET https://a.test/doctor"),
        ({"host": "a.test", "port": 8443, "methods": ["PUT", "POST"]}, "POST https://a.test:8443/doctor"),
        ({"host": "a.test", "plaintext": True, "paths": ["/v1/*/x/**"]}, "GET http://a.test/v1/doctor/x/doctor"),
        ({"host": "*.a.test", "credential": "none"}, "GET https://doctor.a.test/doctor"),
        ({"provider": "stripe", "methods": ["GET"]}, "GET https://api.stripe.com"),
        ({"provider": "openai", "operations": ["chat.completions.create"]}, "POST https://api.openai.com/v1/chat/"),
    ],
)
def test_a_call_matches_its_rule(tmp_path: Path, rule: dict[str, object], call: str):
    (probe,) = probes(tmp_path, {"name": "r", **rule})
    assert probe.destination is not None, probe.why_not
    assert f"{probe.method} {probe.destination.origin}{probe.path}".startswith(call)


@pytest.mark.parametrize(
    ("rule", "path", "said"),
    [
        (
            {"provider": "linear", "operations": ["graphql.mutation.issueCreate"]},
            "/graphql",
            "mutation { issueCreate }",
        ),
        (
            {"provider": "aws-s3", "host": "b.s3.eu-west-1.amazonaws.com", "operations": ["objects.policy.put"]},
            "/doctor?acl",
            "",
        ),
        ({"provider": "aws-dynamodb", "host": "d.test", "operations": ["PutItem"]}, "/", "example.PutItem"),
    ],
)
def test_a_call_says_which_operation_it_is(tmp_path: Path, rule: dict[str, object], path: str, said: str):
    (probe,) = probes(tmp_path, {"name": "r", **rule})
    assert probe.path == path
    assert said in probe.body.decode() + " ".join(value for _, value in probe.lines)


def test_a_deny_is_gone_around_where_it_can_be(tmp_path: Path):
    deny: list[dict[str, object]] = [{"name": "no", "host": "a.test", "methods": ["GET"]}]
    (probe,) = probes(tmp_path, {"name": "r", "host": "a.test"}, deny=deny)
    assert probe.method == "HEAD"
    (none,) = probes(tmp_path, {"name": "r", "host": "a.test"}, deny=[{"name": "no", "host": "a.test"}])
    assert "other rules decide" in none.why_not


def test_what_cannot_be_tried_says_why(tmp_path: Path):
    (probe,) = probes(tmp_path, {"name": "r", "tunnel": "a.test", "reason": "pinned"})
    assert "nothing is injected" in probe.why_not
