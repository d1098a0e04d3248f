"""`sluicegate doctor` and `sluicegate check`: what is injected is proved on the wire, and nothing of it is shown."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import trustme

from tests.running.stand import CANARY, INTERCEPTED, Stand, Upstream, policy

RULES = [
    {"name": "plain", "host": "plain.test", "plaintext": True, "credential": {"name": "plain", "query": "key"}},
    {"name": "cookie", "host": "c.test", "credential": {"name": "cookie", "cookie": "sid"}},
    {"name": "open", "host": "open.test"},
    {"name": "mutual", "host": "mutual.test", "credential": {"name": "mutual"}, "tls": {"min_version": "1.3"}},
    {"name": "login", "host": "login.test", "credential": {"name": "plain", "placeholders": [{"json": "/secret"}]}},
    {"name": "anthropic", "provider": "anthropic", "operations": ["messages.create"]},
    {"name": "linear", "provider": "linear", "operations": ["graphql.query.*"]},
    {"name": "missing", "provider": "stripe"},
    {"name": "elsewhere", "host": "elsewhere.test", "credential": {"name": "shop", "header": "X-Key"}},
]


def certificate() -> dict[str, str]:
    leaf = trustme.CA().issue_cert("bot.test")
    chain = "".join(part.bytes().decode() for part in leaf.cert_chain_pems)
    return {"certificate": chain, "private_key": leaf.private_key_pem.bytes().decode()}


def test_each_rule_is_proved_on_the_wire(stand: Stand, upstream: Upstream):
    stand.write_policy(policy(upstream, *policy(upstream)["allow"], *RULES))
    stand.store(
        {
            "tenants/acme/plain": {"kind": "api_key", "value": CANARY, "hosts": ["plain.test"]},
            "tenants/acme/cookie": {"kind": "api_key", "value": CANARY, "hosts": ["c.test"]},
            "tenants/acme/mutual": {"kind": "mtls", "hosts": ["mutual.test"], **certificate()},
            "tenants/acme/anthropic": {"kind": "api_key", "value": CANARY},
            "tenants/acme/linear": {"kind": "api_key", "value": CANARY},
        }
    )
    done = stand.command("doctor", "--no-clients", "--json", "--config", str(stand.config))
    assert done.returncode == 1, done.stderr
    assert CANARY not in done.stdout + done.stderr
    found = {rule["rule"]: rule for rule in json.loads(done.stdout)["rules"]}
    proved = {name: (rule["credential"], rule["placed"]) for name, rule in found.items() if rule["result"] == "ok"}
    assert proved == {
        "shop": ("shop@1", ["header X-Shop-Key"]),
        "plain": ("plain@1", ["query key"]),
        "cookie": ("cookie@1", ["cookie sid"]),
        "open": ("", []),
        "mutual": ("mutual@1", ["client certificate"]),
        "anthropic": ("anthropic@1", ["header x-api-key"]),
        "linear": ("linear@1", ["header Authorization"]),
    }
    assert found["files"]["result"] == "skipped"
    assert (found["login"]["result"], "placeholder" in found["login"]["why"]) == ("skipped", True)
    assert found["missing"]["why"].startswith("credential_missing")
    assert found["elsewhere"]["why"].startswith("credential_unbound")
    assert upstream.seen == []
    assert stand.audit() == [], "the operator's audit is of real calls"


def test_a_person_reads_lines_and_files_are_named(stand: Stand):
    (stand.folder / ".netrc").write_text("machine x login y password z")
    done = stand.command("doctor", "--no-clients", "--config", str(stand.config))
    assert done.returncode == 0, done.stderr
    call = f"GET {INTERCEPTED}:{stand.upstream.port}/doctor"
    assert f"ok      shop / shop: {call}: shop@1 in header X-Shop-Key" in done.stdout
    assert str(stand.folder / ".netrc") in done.stdout
    assert "password" not in done.stdout


def test_clients_are_asked_whether_they_trust_us(stand: Stand, tmp_path: Path):
    tools = tmp_path / "tools"
    tools.mkdir()
    found = [name for name in ("curl", "git") if (path := shutil.which(name)) and not (tools / name).symlink_to(path)]
    done = stand.command("doctor", "--json", "--config", str(stand.config), environment={"PATH": str(tools)})
    clients = {client["name"]: client for client in json.loads(done.stdout)["clients"]}
    assert set(clients) == {*found, "python"}
    assert all(client["run"] is True and client["here"] is False for client in clients.values())


def test_check_opens_the_store(stand: Stand):
    good = stand.command("check", "--config", str(stand.config))
    assert (good.returncode, "the store can be read" in good.stdout) == (0, True)
    assert json.loads(stand.command("check", "--json", "--config", str(stand.config)).stdout)["ok"] is True
    (stand.folder / "secrets.key").unlink()
    bad = stand.command("check", "--config", str(stand.config))
    assert bad.returncode == 1
    assert "secrets.key: the key file is missing" in bad.stdout
    assert len(bad.stdout.splitlines()) == 1


def test_check_names_faults_of_every_part_at_once(tmp_path: Path, upstream: Upstream, roots: trustme.CA):
    stand = Stand(tmp_path, upstream, roots)
    (stand.folder / "secrets.key").chmod(0o644)
    stand.write_policy({**policy(upstream), "unknown": 1})
    said = stand.command("check", "--config", str(stand.config)).stdout
    assert "secrets.key" in said
    assert "unknown" in said


def test_check_says_when_the_store_does_not_answer(tmp_path: Path, upstream: Upstream, roots: trustme.CA):
    stand = Stand(tmp_path, upstream, roots)
    token = stand.folder / "token"
    token.write_text("t")
    token.chmod(0o600)
    auth = "{kind: token, token_file: ./token}"
    with stand.config.open("a") as file:
        file.write(f"store: {{kind: vault, address: 'http://127.0.0.1:1', auth: {auth}}}\n")
    done = stand.command("check", "--config", str(stand.config))
    assert done.returncode == 1
    assert ": store: " in done.stdout
    assert len(done.stdout.splitlines()) == 1
