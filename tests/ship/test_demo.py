"""`make demo` shows the main job on the product as it is, and fails when the job is not done."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
RUNNABLE = importlib.util.find_spec("proxy.app") is not None


def load_demo():  # type: ignore[no-untyped-def]
    spec = importlib.util.spec_from_file_location("demo_under_test", REPOSITORY / "examples" / "demo.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(not RUNNABLE, reason="proxy.app is not there")
def test_the_demo_shows_the_call_the_refusal_and_the_audit_line() -> None:
    script = str(REPOSITORY / "examples" / "demo.py")
    result = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=90)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "the upstream got the tenant's real key" in result.stdout
    assert "policy_denied" in result.stdout
    assert '"outcome": "denied"' in result.stdout
    assert "NOT " not in result.stdout


def test_a_key_that_did_not_arrive_fails_the_demo(capsys: pytest.CaptureFixture[str]) -> None:
    demo = load_demo()
    demo.Echo.seen[:] = [{"authorization": f"Bearer {demo.DUMMY_KEY}"}]
    verdict = demo.Verdict()
    demo.show_call(verdict, demo.Reply(200, {}, "{}"))
    assert verdict.broken == ["the upstream got the tenant's real key"]
    assert "NOT " in capsys.readouterr().out


def test_a_call_that_policy_let_through_fails_the_demo() -> None:
    demo = load_demo()
    demo.Echo.seen[:] = [{}]
    verdict = demo.Verdict()
    demo.show_refusal(verdict, demo.Reply(200, {}, "{}"), calls_before=0)
    assert len(verdict.broken) == 2


def test_an_audit_file_with_the_key_in_it_fails_the_demo(tmp_path: Path) -> None:
    demo = load_demo()
    lines = [{"outcome": outcome, "path": demo.REAL_KEY} for outcome in ("ok", "ok", "denied", "denied")]
    (tmp_path / "audit.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    verdict = demo.Verdict()
    demo.show_audit(verdict, tmp_path)
    assert verdict.broken == ["no line holds the key"]


def test_the_real_key_is_never_printed_whole(capsys: pytest.CaptureFixture[str]) -> None:
    demo = load_demo()
    demo.Echo.seen[:] = [{"authorization": f"Bearer {demo.REAL_KEY}"}]
    demo.show_call(demo.Verdict(), demo.Reply(200, {}, demo.REAL_KEY))
    assert demo.REAL_KEY not in capsys.readouterr().out
