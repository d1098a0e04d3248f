"""`sluicegate run`, as a person starts it."""

from __future__ import annotations

import http.client
import os
import pty
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme

from proxy.running.environment import REPLACING
from tests.running.stand import CANARY, INTERCEPTED, NAMED, TUNNELLED, Running, Stand, Upstream, policy

OPENAI = {"name": "openai", "provider": "openai"}


@pytest.fixture(scope="module")
def upstream(roots: trustme.CA) -> Iterator[Upstream]:
    server = Upstream(roots)
    yield server
    server.close()


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream, roots: trustme.CA) -> Stand:
    made = Stand(tmp_path_factory.mktemp("run"), upstream, roots)
    made.write_policy(policy(upstream, *policy(upstream)["allow"], OPENAI))
    return made


@pytest.fixture(scope="module")
def running(stand: Stand) -> Iterator[Running]:
    inherited = {"OPENAI_API_KEY": "sk-real", "SHOP_TOKEN": "real", "KEPT_TOKEN": "kept", "ALL_PROXY": "socks5://x:1"}
    begun = Running(stand, ["--keep", "KEPT_TOKEN"], {**inherited, "PIP_CERT": "/etc/other.pem"})
    yield begun
    begun.stop()


def test_the_command_gets_the_variables_that_clients_read(running: Running):
    variables = running.variables
    bundle = Path(variables["SSL_CERT_FILE"])
    for name in REPLACING:
        assert variables[name] == str(bundle), name
    assert variables["NO_PROXY"] == variables["no_proxy"] == "localhost,127.0.0.1,::1"
    assert variables["HTTP_PROXY"] == variables["https_proxy"] == variables["HTTPS_PROXY"] == variables["http_proxy"]
    assert variables["NODE_USE_ENV_PROXY"] == "1"
    assert "ALL_PROXY" not in variables
    assert stat.S_IMODE(bundle.parent.stat().st_mode) == 0o700
    own, roots = Path(variables["NODE_EXTRA_CA_CERTS"]).read_text(), bundle.read_text()
    assert own.count("BEGIN CERTIFICATE") == 2, "ours and the configured one"
    assert own.strip() in roots
    assert (running.stand.folder / "roots.pem").read_text().strip() in roots
    assert roots.count("BEGIN CERTIFICATE") > 10


def test_secrets_are_taken_out_and_placeholders_put_in(running: Running):
    variables = running.variables
    assert "SHOP_TOKEN" not in variables
    assert variables["KEPT_TOKEN"] == "kept"
    assert variables["OPENAI_API_KEY"].startswith("sk-sluicegate-dummy")
    assert "GITHUB_TOKEN" not in variables, "no policy mentions github"
    assert CANARY not in str(variables)


def test_the_command_inherits_nothing_of_the_proxy(running: Running):
    assert running.report["descriptors"][:3] == [0, 1, 2]
    assert len(running.report["descriptors"]) == 4, "the fourth is the listing itself"
    assert running.report["masked"] == []
    assert running.report["umask"] == _umask()


@pytest.mark.parametrize("given", [None, "mine"])
def test_a_variable_that_the_proxy_sets_for_itself_stays_with_it(stand: Stand, given: str | None):
    environment = {k: v for k, v in stand.environment({}).items() if k != "PYDANTIC_DISABLE_PLUGINS"}
    environment |= {"PYDANTIC_DISABLE_PLUGINS": given} if given else {}
    words = ["run", "--config", str(stand.config), "--quiet", "--", "sh", "-c", "echo $PYDANTIC_DISABLE_PLUGINS"]
    done = subprocess.run([*NAMED, *words], capture_output=True, text=True, cwd=stand.folder, env=environment)
    assert done.stdout.strip() == (given or "")


def test_the_commands_calls_are_signed(running: Running, upstream: Upstream):
    upstream.seen.clear()
    done = running.client("curl", "-sS", upstream.url(INTERCEPTED, "/a"), upstream.url(TUNNELLED, "/b"))
    assert (done.returncode, done.stdout) == (0, "hello\n" * 2), done.stderr
    assert [(path, headers.get("x-shop-key")) for _, path, headers in upstream.seen] == [("/a", CANARY), ("/b", None)]
    assert "proxy-authorization" not in upstream.seen[0][2]


def test_base_urls_take_the_session_as_bearer(running: Running, upstream: Upstream):
    base = f"{running.variables['SLUICEGATE_BASE_URL']}/shop/c"
    bearer = f"Authorization: Bearer {running.variables['SLUICEGATE_SESSION']}"
    upstream.seen.clear()
    assert running.client("curl", "-sS", "-H", bearer, base).stdout == "hello\n"
    assert "authorization" not in upstream.seen[0][2]
    assert '"identity_missing"' in running.client("curl", "-sS", base).stdout


def test_another_process_gets_nowhere_without_the_session(running: Running, upstream: Upstream):
    upstream.seen.clear()
    proxy, base = urlsplit(running.variables["HTTP_PROXY"]), urlsplit(running.variables["SLUICEGATE_BASE_URL"])
    assert _status(proxy.port, "GET", f"http://{INTERCEPTED}/") == 407
    assert _status(proxy.port, "CONNECT", f"{INTERCEPTED}:443") == 407
    assert _status(base.port, "GET", "/shop/d") == 401
    java = dict(word[2:].split("=", 1) for word in running.variables["JAVA_TOOL_OPTIONS"].split() if "=" in word)
    with socket.create_connection(("127.0.0.1", int(java["https.proxyPort"]))) as client:
        try:
            client.sendall(b"CONNECT api.shop.test:443 HTTP/1.1\r\nHost: api.shop.test:443\r\n\r\n")
            assert client.recv(100) == b""
        except ConnectionError:
            pass
    assert upstream.seen == []


def test_policies_are_frozen_at_the_start(running: Running, stand: Stand, upstream: Upstream):
    before = (stand.folder / "policies" / "shop.yaml").read_text()
    stand.write_policy(policy(upstream, {"name": "nothing", "host": "other.test"}))
    try:
        assert running.client("curl", "-sS", upstream.url(INTERCEPTED)).stdout == "hello\n"
    finally:
        (stand.folder / "policies" / "shop.yaml").write_text(before)


def test_what_was_changed_is_said_and_cleaned_up(stand: Stand):
    done = stand.run(
        "sh", "-c", "echo $SSL_CERT_FILE; exit 7", options=(), environment={"OPENAI_API_KEY": "x", "A_SECRET": "y"}
    )
    assert done.returncode == 7
    assert not Path(done.stdout.strip()).parent.exists()
    first, second, third = done.stderr.splitlines()
    assert "A_SECRET, OPENAI_API_KEY" in first
    assert second.endswith("OPENAI_API_KEY")
    assert third.endswith("audit.jsonl")
    assert "=" not in done.stderr


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        (["sh", "-c", "kill -KILL $$"], 137, ""),
        (["no-such-command"], 127, "sluicegate: no-such-command: command not found\n"),
        (["./sluicegate.yaml"], 126, "sluicegate: ./sluicegate.yaml: is not an executable file\n"),
    ],
    ids=["killed", "missing", "not executable"],
)
def test_the_exit_code_is_the_commands(stand: Stand, command: list[str], code: int, said: str):
    done = stand.run(*command)
    assert (done.returncode, done.stderr) == (code, said)


def test_a_bad_configuration_is_one_line_for_each_fault(tmp_path: Path, stand: Stand):
    config = tmp_path / "sluicegate.yaml"
    config.write_text("identity: [{kind: static, tenant: acme}]\nlisten: 1\n")
    done = stand.command("run", "--config", str(config), "--", "true")
    assert done.returncode == 1
    assert [line.split(": ")[0] for line in done.stderr.splitlines()] == [f"{config}:1", f"{config}:2"]


def test_the_working_directory_has_no_say(stand: Stand, tmp_path: Path):
    done = stand.command("run", "--", "true", environment={"XDG_CONFIG_HOME": str(tmp_path)})
    expected = tmp_path / "sluicegate" / "sluicegate.yaml"
    assert done.returncode == 1
    assert done.stderr == f"{expected}: not found; make it, or name a configuration with --config FILE\n"
    relative = stand.command("run", "--", "true", environment={"XDG_CONFIG_HOME": "."})
    assert str(stand.folder / ".config" / "sluicegate") in relative.stderr
    expected.parent.mkdir()
    expected.symlink_to(stand.config)
    for name in ("policies", "roots.pem"):
        (expected.parent / name).symlink_to(stand.folder / name)
    assert stand.command("run", "--quiet", "--", "true", environment={"XDG_CONFIG_HOME": str(tmp_path)}).returncode == 0


def test_a_caller_that_the_configuration_does_not_name_has_to_be_named(tmp_path: Path, stand: Stand, roots: trustme.CA):
    keys = [{"issuer": "i", "audience": "a", "algorithms": ["ES256"], "jwks_url": "https://x.test", "tenants": ["*"]}]
    other = Stand(
        tmp_path, stand.upstream, roots, identity=[{"kind": "session_token", "issuers": keys}], tenants=["acme"]
    )
    assert other.run("true").stderr.startswith("sluicegate: identity is taken from tokens here, so name the caller")
    wrong = other.run("true", options=["--tenant", "globex", "--agent", "bot"])
    assert (wrong.returncode, "tenant globex is not among" in wrong.stderr) == (1, True)
    url = stand.upstream.url(INTERCEPTED)
    done = other.run("curl", "-sS", url, options=["--quiet", "--tenant", "acme", "--agent", "bot"])
    assert done.stdout == "hello\n"


TRAP = (
    "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\nprint('up', flush=True)\nsignal.pause()"
)
COUNT = """
import signal, sys, time
got = []
signal.signal(signal.SIGINT, lambda *_: got.append(1))
print("up", flush=True)
while not got:
    time.sleep(0.01)
time.sleep(0.25)
print("interrupts:", len(got), flush=True)
"""


def test_a_signal_is_passed_on(stand: Stand):
    words = ["run", "--config", str(stand.config), "--quiet", "--", sys.executable, "-c", TRAP]
    with subprocess.Popen(
        [*NAMED, *words], stdout=subprocess.PIPE, cwd=stand.folder, env=stand.environment({})
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 9


def test_an_interrupt_from_the_terminal_arrives_once(stand: Stand):
    pid, terminal = pty.fork()
    if pid == 0:
        words = ["run", "--config", str(stand.config), "--quiet", "--", sys.executable, "-c", COUNT]
        os.chdir(stand.folder)
        os.execve(NAMED[0], [*NAMED, *words], stand.environment({}))
    said = b""
    while b"up" not in said:
        said += os.read(terminal, 1000)
    os.write(terminal, b"\x03")
    while b"interrupts" not in said:
        said += os.read(terminal, 1000)
    assert b"interrupts: 1" in said
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(terminal)


def _status(port: int | None, method: str, target: str) -> int:
    client = http.client.HTTPConnection("127.0.0.1", port or 0, timeout=10)
    try:
        client.request(method, target, headers={"Host": target} if method == "CONNECT" else {})
        return client.getresponse().status
    finally:
        client.close()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
