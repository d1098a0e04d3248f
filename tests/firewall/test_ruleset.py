"""The rendered ruleset: what passes, in which order, and that nft takes it."""

from __future__ import annotations

import ipaddress
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from proxy.cli import run
from proxy.firewall.ruleset import Direct, Firewall, ruleset

NFT = shutil.which("nft", path="/usr/sbin:/sbin:/usr/bin:/bin")
DATABASE = Direct(ipaddress.ip_network("10.1.2.0/24"), "tcp", (5432, 6432), "the tenants' database")
CLOSED = Firewall(64100, {}, {})
OPEN = Firewall(64100, {4: 18403, 6: 18403}, {4: 18453, 6: 18453}, (DATABASE,))


def chain(text: str, name: str) -> list[str]:
    body = text.partition(f"chain {name} {{")[2].partition("}\n  ")[0]
    return [line.strip() for line in body.splitlines() if line.strip(" }")]


def test_what_nothing_lets_pass_is_refused() -> None:
    outgoing = chain(ruleset(OPEN), "outgoing")
    assert outgoing[0].endswith("policy drop;")
    assert chain(ruleset(OPEN), "applications")[-1] == outgoing[-1] == "counter reject with icmpx type admin-prohibited"


def test_the_proxys_user_comes_before_everything() -> None:
    for name in ("redirected", "outgoing"):
        assert chain(ruleset(OPEN), name)[1].startswith("meta skuid 64100 ")


def test_a_remembered_connection_of_the_proxys_carries_no_applications_packets() -> None:
    rules = chain(ruleset(OPEN), "outgoing")
    applications = next(i for i, rule in enumerate(rules) if rule == "meta skuid != 64100 goto applications")
    assert applications < min(i for i, rule in enumerate(rules) if rule.startswith("ct mark"))


def test_names_are_redirected_before_loopback_is_let_pass_and_tcp_after() -> None:
    rules = chain(ruleset(OPEN), "redirected")
    at = {
        word: min(i for i, rule in enumerate(rules) if word in rule) for word in ("dport 53", "127.0.0.0/8", ":18403")
    }
    assert at["dport 53"] < at["127.0.0.0/8"] < at[":18403"]


def test_a_direct_entry_never_opens_a_metadata_address() -> None:
    everywhere = Direct(ipaddress.ip_network("0.0.0.0/0"), "tcp", (80,), "careless")
    rules = chain(ruleset(CLOSED._replace(direct=(everywhere,))), "applications")
    refused = next(i for i, rule in enumerate(rules) if "169.254.169.254" in rule and "reject" in rule)
    assert refused < next(i for i, rule in enumerate(rules) if "0.0.0.0/0" in rule)


def test_without_a_transparent_listener_nothing_is_redirected() -> None:
    assert "redirect" not in ruleset(CLOSED).replace("chain redirected", "")


@pytest.mark.parametrize("firewall", [CLOSED, OPEN], ids=["explicit", "transparent"])
def test_nft_takes_it_twice(firewall: Firewall) -> None:
    if NFT is None or os.geteuid() != 0:
        pytest.skip("nft is not installed, or this is not root")
    done = subprocess.run([NFT, "--check", "-f", "-"], input=ruleset(firewall) * 2, capture_output=True, text=True)
    if "Operation not permitted" in done.stderr:
        pytest.skip("this machine permits no nftables")
    assert done.returncode == 0, done.stderr


CONFIG = """\
identity: [{kind: static, tenant: acme, agent: bot}]
listeners:
  - {kind: transparent, bind: 127.0.0.1:18403, names: {bind: 127.0.0.1:18453}}
firewall:
  user: 1234
  direct: [{to: 10.1.0.0/16, ports: [5432], reason: "database"}]
"""


def test_the_command_prints_what_the_configuration_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG)
    assert run(["firewall", "--config", str(tmp_path / "c.yaml")]) == 0
    text = capsys.readouterr().out
    assert "meta skuid 1234 return" in text
    assert "ip daddr 10.1.0.0/16 tcp dport { 5432 } return" in text
    assert "meta nfproto ipv4 meta l4proto tcp redirect to :18403" in text
    assert "meta nfproto ipv4 udp dport 53 redirect to :18453" in text
    assert "ipv6 meta l4proto" not in text


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (('reason: "database"', "reason: 'x\" accept comment \"'"), "firewall.direct.0.reason"),
        (("10.1.0.0/16", "10.1.0.1/16"), "without host bits"),
        (("names: {bind: 127.0.0.1:18453}", "names: {bind: 0.0.0.0:18453}"), "loopback"),
        (("bind: 127.0.0.1:18403,", "bind: 0.0.0.0:18403,"), "loopback"),
        (("kind: transparent", "kind: proxy"), "transparent"),
    ],
)
def test_a_faulty_configuration_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: tuple[str, str], complaint: str
) -> None:
    assert change[0] in CONFIG
    (tmp_path / "c.yaml").write_text(CONFIG.replace(*change))
    assert run(["firewall", "--config", str(tmp_path / "c.yaml")]) == 1
    assert complaint in capsys.readouterr().err
