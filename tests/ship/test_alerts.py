"""Every alert fires on the series it is for and stays quiet on ordinary ones, by Prometheus' own rule tester."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from proxy.audit.exposition import MetricsCollector
from proxy.audit.metrics import Metrics
from proxy.webhook.metrics import WebhookMetrics

REPOSITORY = Path(__file__).resolve().parents[2]
RULES = REPOSITORY / "helm" / "sluicegate" / "files" / "alerts.yaml"
RUNBOOKS = REPOSITORY / "docs" / "runbooks"
PROMTOOL = shutil.which("promtool")
Json = dict[str, Any]

needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")


class Case(NamedTuple):
    """Series in Prometheus' notation for a minute each; the alert's labels when it fires."""

    alert: str
    firing: dict[str, str]
    quiet: dict[str, str]
    labels: dict[str, str]
    at: str = "30m"


def calls(blame: str, each_minute: int, **labels: str) -> dict[str, str]:
    more = "".join(f',{name}="{value}"' for name, value in labels.items())
    return {f'sluicegate_calls_total{{namespace="a",pod="p",blame="{blame}"{more}}}': f"0+{each_minute}x400"}


def durations(whole: str, upstream: str) -> dict[str, str]:
    return {
        'sluicegate_call_duration_seconds_sum{namespace="a"}': f"0+{whole}x60",
        'sluicegate_upstream_duration_seconds_sum{namespace="a"}': f"0+{upstream}x60",
        'sluicegate_call_duration_seconds_count{namespace="a"}': "0+60x60",
    }


def store(good: int, bad: int) -> dict[str, str]:
    name = 'sluicegate_store_requests_total{namespace="a",store="vault",operation="read",result='
    return {f'{name}"ok"}}': f"0+{good}x60", f'{name}"error"}}': f"0+{bad}x60"}


def gauge(name: str, value: str, **labels: str) -> dict[str, str]:
    more = "".join(f',{key}="{one}"' for key, one in labels.items())
    return {f'sluicegate_{name}{{namespace="a"{more}}}': value}


DENIED = 'sluicegate_policy_decisions_total{namespace="a",decision="denied",mode="enforce"}'
WARNING, CRITICAL = {"severity": "warning"}, {"severity": "critical"}
CASES = [
    Case(
        "SluicegateFailing",
        calls("none", 98) | calls("gateway", 2),
        calls("none", 998) | calls("gateway", 2),
        {"namespace": "a", **CRITICAL},
    ),
    Case(
        "SluicegateCredentialFailures",
        calls("none", 90) | calls("credential", 10),
        calls("none", 98) | calls("credential", 2),
        {"namespace": "a", **WARNING},
    ),
    Case(
        "SluicegateProviderFailures",
        calls("none", 70, provider="slack")
        | calls("provider", 30, provider="slack")
        | calls("none", 9, provider="github"),
        calls("none", 90, provider="slack") | calls("network", 10, provider="slack"),
        {"provider": "slack", **WARNING},
    ),
    Case("SluicegateSlow", durations("60", "30"), durations("600", "598"), {"namespace": "a", **WARNING}),
    Case(
        "SluicegateRefreshFailing",
        {'sluicegate_refreshes_total{provider="slack",result="rejected"}': "0+1x60"},
        {'sluicegate_refreshes_total{provider="slack",result="ok"}': "0+1x60"},
        {"provider": "slack", **WARNING},
        "40m",
    ),
    Case(
        "SluicegateCredentialExpiring",
        gauge("credential_expiry_seconds", "600-60x60", provider="slack", pod="p")
        | calls("none", 60, provider="slack"),
        gauge("credential_expiry_seconds", "600-60x60", provider="slack", pod="p"),
        {"namespace": "a", "pod": "p", "provider": "slack", **WARNING},
    ),
    Case(
        "SluicegateCertificateExpiring",
        gauge("certificate_expiry_seconds", "100000-60x90", use="listener"),
        gauge("certificate_expiry_seconds", "864000-60x90", use="listener"),
        {"namespace": "a", "use": "listener", **WARNING},
        "60m",
    ),
    Case(
        "SluicegateCertificateExpiring",
        gauge("certificate_expiry_seconds", "28000-60x90", use="webhook"),
        gauge("certificate_expiry_seconds", "46800-60x90", use="webhook"),
        {"namespace": "a", "use": "webhook", **WARNING},
        "60m",
    ),
    Case("SluicegateStoreDown", store(1, 9), store(9, 1), {"namespace": "a", "store": "vault", **CRITICAL}),
    Case(
        "SluicegateReloadFailed",
        {'sluicegate_policy_reloads_total{namespace="a",pod="p",result="failed"}': "0x20 1x40"},
        {'sluicegate_policy_reloads_total{namespace="a",pod="p",result="ok"}': "0x20 1x40"},
        {"namespace": "a", "pod": "p", "result": "failed", **WARNING},
    ),
    Case(
        "SluicegateDeniedSpike",
        {DENIED: "0+3x440 1500+100x40"},
        {DENIED: "0+60x480"},
        {"namespace": "a", **WARNING},
        "470m",
    ),
    Case(
        "SluicegateBreakerOpen",
        gauge("breakers_open", "1x60", pod="p"),
        gauge("breakers_open", "0 0 1 1 0x56", pod="p"),
        {"namespace": "a", **WARNING},
    ),
    Case(
        "SluicegatePolicySkew",
        gauge("policy_info", "1x60", pod="p", hash="1") | gauge("policy_info", "1x60", pod="q", hash="2"),
        gauge("policy_info", "1x60", pod="p", hash="1") | gauge("policy_info", "1x60", pod="q", hash="1"),
        {"namespace": "a", **WARNING},
    ),
    Case(
        "SluicegateWebhookFailing",
        {'sluicegate_webhook_reviews_total{namespace="a",pod="p",path="/inject",result="failed"}': "0x20 1x40"},
        {'sluicegate_webhook_reviews_total{namespace="a",pod="p",path="/inject",result="refused"}': "0+5x60"},
        {"namespace": "a", "path": "/inject", **CRITICAL},
    ),
    Case(
        "SluicegateCredentialReflected",
        gauge("credentials_masked_total", "_x30 1x30", pod="p", provider="slack"),
        gauge("credentials_masked_total", "0x60", pod="p", provider="other"),
        {"namespace": "a", "provider": "slack", **WARNING},
    ),
    Case(
        "SluicegateAuditDropped",
        {'sluicegate_audit_records_total{namespace="a",pod="p",result="dropped"}': "0x20 7x40"},
        {'sluicegate_audit_records_total{namespace="a",pod="p",result="written"}': "0+50x60"},
        {"namespace": "a", "pod": "p", "result": "dropped", **CRITICAL},
    ),
]


def alerts() -> dict[str, Json]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule}


def emitted() -> dict[str, frozenset[str]]:
    """The labels of every series of ours, by its name in the exposition."""
    collectors = [MetricsCollector(Metrics("1")), WebhookMetrics(lambda: None)]
    ends = {"counter": ("_total",), "histogram": ("_sum", "_count", "_bucket"), "gauge": ("",)}
    return {
        family.name + end: frozenset(family._labelnames)  # type: ignore[attr-defined]
        for collector in collectors
        for family in collector.collect()
        for end in ends[family.type]
    }


def rule_test(case: Case, series: dict[str, str], fires: bool) -> Json:
    expected = [{"exp_labels": case.labels}] if fires else []
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [{"eval_time": case.at, "alertname": case.alert, "exp_alerts": expected}],
    }


@needs_promtool
def test_promtool_finds_no_fault_in_the_rules() -> None:
    done = subprocess.run([str(PROMTOOL), "check", "rules", str(RULES)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
@pytest.mark.parametrize("fires", [True, False], ids=["firing", "quiet"])
def test_it_fires_for_what_it_is_for(case: Case, fires: bool, tmp_path: Path) -> None:
    rules = yaml.safe_load(RULES.read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule.pop("annotations", None)  # sentences are no part of when it fires
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    test = rule_test(case, case.firing if fires else case.quiet, fires)
    (tmp_path / "test.yaml").write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "tests": [test]}))
    done = subprocess.run([str(PROMTOOL), "test", "rules", str(tmp_path / "test.yaml")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case_and_a_runbook_that_says_what_to_do() -> None:
    assert {case.alert for case in CASES} == set(alerts())
    assert {page.stem for page in RUNBOOKS.glob("*.md")} == set(alerts())
    for name, rule in alerts().items():
        assert rule["annotations"]["runbook_url"] == f"docs/runbooks/{name}.md"
        text = (RUNBOOKS / f"{name}.md").read_text()
        assert text.startswith(f"# {name}: ")
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Look", "Do"]


def test_every_series_and_label_that_a_rule_asks_for_is_one_that_the_product_emits() -> None:
    known, text = emitted(), RULES.read_text()
    known["sluicegate:calls:rate5m"] = frozenset({"namespace", "blame"})  # which the first rule records
    names = set(re.findall(r"\bsluicegate[_:][\w:]+", text))
    assert names <= known.keys()
    for name, matchers in re.findall(r"\b(sluicegate[_:][\w:]+)\{([^}]*)\}", text):
        assert set(re.findall(r"(\w+)[!=]", matchers)) <= known[name], name
    for grouped in re.findall(r"\bby \(([^)]*)\)", text):
        assert set(grouped.split(", ")) <= {"namespace", "pod"}.union(*(known[name] for name in names))
