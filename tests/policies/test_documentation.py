"""docs/policy.md is true: its documents load, its cookbook does what it says, its precedence table is what happens."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from policies.cases import CaseCall, CaseFile, decide_call, load_cases, run_cases
from policies.decide import Allowed
from policies.document import AllowRule, DenyRule, EgressPolicy
from policies.load import load
from policies.schema import policy_schema
from tests.policies.documents import SHIPPED, classify, document

PAGE = (Path(__file__).parents[2] / "docs" / "policy.md").read_text()
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
POLICIES = [block for block in BLOCKS if block.startswith("apiVersion")]
COOKBOOK = PAGE[PAGE.index("## Cookbook") : PAGE.index("## Testing policies")]
RECIPES = re.findall(r"```yaml\n(apiVersion[^`]*)```\n\n```yaml\n(cases:[^`]*)```", COOKBOOK)
ROWS = re.findall(r"^\| `(\{.*?\})` \| `(\{.*?\})` \| `(\w+) (\S+)` \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("text", POLICIES, ids=lambda text: re.search(r"metadata: \{name: (.*?)\}", text)[1])
def test_every_document_of_the_page_loads(write, text):
    assert load([write(text)], None, SHIPPED).size.documents == 1


@pytest.mark.parametrize(("text", "cases"), RECIPES, ids=[re.search(r"name: (.*?)\}", text)[1] for text, _ in RECIPES])
def test_a_recipe_of_the_cookbook_does_what_its_cases_say(write, text, cases):
    results = run_cases(load([write(text)], None, SHIPPED), load_cases([write(cases, "recipe_test.yaml")]), classify)
    assert [result for result in results if not result.passed] == []


@pytest.mark.parametrize("key", ["when", "limits", "query", "labels", "namespace"])
def test_the_cookbook_has_a_recipe_with_cases_for(key):
    assert any(re.search(rf"\b{key}:", text) for text, _ in RECIPES)


def test_the_cases_of_the_page_are_cases():
    (block,) = (block for block in BLOCKS if block.startswith("cases") and block not in COOKBOOK)
    assert CaseFile.model_validate(yaml.safe_load(block), strict=False).cases


def test_the_page_has_a_precedence_table():
    assert len(ROWS) >= 10


@pytest.mark.parametrize(("winner", "loser", "method", "url"), ROWS)
def test_the_more_specific_allow_decides(loaded, write, winner, loser, method, url):
    for names in (("a", "b"), ("b", "a")):
        rules = [{"name": names[0], **yaml.safe_load(winner)}, {"name": names[1], **yaml.safe_load(loser)}]
        for allow in (rules, rules[::-1], rules[:1], rules[1:]):
            policies = load([write(document(allow=allow))], None, SHIPPED)
            verdict = decide_call(policies, CaseCall(method=method, url=url), classify)
            assert isinstance(verdict, Allowed)
            assert verdict.rule == (names[0] if rules[0] in allow else names[1])


@pytest.mark.parametrize("model", [AllowRule, DenyRule, EgressPolicy])
def test_every_key_is_on_the_page(model):
    assert [name for name in model.model_fields if f"`{name}" not in PAGE and f"{name}:" not in PAGE] == []


def test_the_schema_describes_every_key_and_refuses_others():
    schema = policy_schema()
    assert set(schema["properties"]) == set(EgressPolicy.model_fields)
    assert schema["additionalProperties"] is False
    rule: dict[str, Any] = schema["$defs"]["AllowRule"]
    assert set(rule["properties"]) == set(AllowRule.model_fields)
    assert rule["additionalProperties"] is False
    assert set(rule["properties"]["errors"]["enum"]) == set(get_args(AllowRule.model_fields["errors"].annotation))
