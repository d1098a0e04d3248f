"""SDKs as they come from the package index, behind `sluicegate run`: no key goes in, and the calls are signed.

Each runs in a process of its own, at its provider's real host names, which lead to a server on this machine that
answers as the provider's reference says. An SDK that is not installed is skipped by name.
"""

from __future__ import annotations

import importlib.util
import json
import ssl
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trustme

from tests.running.stand import LOOPBACK, Running, Stand


class Sdk(NamedTuple):
    """One SDK and what it is asked to do.

    `script` prints what came back; `printed` is what that is. `calls` are the provider's answers by path, in the order
    in which they are asked for: content type and body. `pin` is the version header that arrives once.
    """

    module: str
    host: str
    script: str
    printed: str
    calls: Mapping[str, tuple[str, str]]
    pin: str = ""


def as_json(**fields: Any) -> tuple[str, str]:
    return "application/json", json.dumps(fields)


def as_events(*events: tuple[str, Mapping[str, Any] | str]) -> tuple[str, str]:
    """Server-sent events; an empty name leaves the `event` line out."""
    shown = []
    for name, data in events:
        line = f"event: {name}\n" if name else ""
        shown.append(f"{line}data: {data if isinstance(data, str) else json.dumps(data)}\n\n")
    return "text/event-stream", "".join(shown)


def chunk(**delta: str) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-x",
        "choices": [{"index": 0, "delta": delta, "finish_reason": None}],
    }  # fmt: skip


MODEL = {"id": "gpt-x", "object": "model", "created": 1, "owned_by": "openai"}
MESSAGE = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x", "stop_reason": "end_turn",
    "stop_sequence": None, "usage": {"input_tokens": 3, "output_tokens": 1},
}  # fmt: skip
REPOSITORY = {"id": 1, "name": "shop", "full_name": "acme/shop", "url": "https://api.github.com/repos/acme/shop"}
ISSUE = {"id": 7, "number": 7, "title": "broken", "url": "https://api.github.com/repos/acme/shop/issues/7"}
CUSTOMER = {"id": "cus_1", "object": "customer", "email": "ada@shop.test"}
STRIPE = {
    "/v1/customers": as_json(**CUSTOMER),
    "/v1/customers/cus_1": as_json(**CUSTOMER),
}

SDKS = {
    "openai": Sdk(
        "openai",
        "api.openai.com",
        """from openai import OpenAI
client = OpenAI()
asked = {"model": "gpt-x", "messages": [{"role": "user", "content": "hi"}]}
print(client.models.retrieve("gpt-x").owned_by)
print("".join(c.choices[0].delta.content or "" for c in client.chat.completions.create(stream=True, **asked)))""",
        "openai\nhello\n",
        {
            "/v1/models/gpt-x": as_json(**MODEL),
            "/v1/chat/completions": as_events(("", chunk(content="hel")), ("", chunk(content="lo")), ("", "[DONE]")),
        },
    ),
    "anthropic": Sdk(
        "anthropic",
        "api.anthropic.com",
        """from anthropic import Anthropic
client = Anthropic()
asked = {"model": "claude-x", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
print(client.messages.create(**asked).content[0].text)""",
        "hello\n",
        {"/v1/messages": as_json(**MESSAGE, content=[{"type": "text", "text": "hello"}])},
        "anthropic-version",
    ),
    "slack_sdk": Sdk(
        "slack_sdk",
        "slack.com",
        """from slack_sdk import WebClient
client = WebClient(token=os.environ["SLACK_BOT_TOKEN"])
print(client.auth_test()["team"])
print(client.chat_postMessage(channel="C1", text="hi")["ts"])""",
        "Acme\n1.2\n",
        {
            "/api/auth.test": as_json(ok=True, team="Acme", user="bot", team_id="T1", user_id="U1"),
            "/api/chat.postMessage": as_json(ok=True, channel="C1", ts="1.2", message={"text": "hi", "ts": "1.2"}),
        },
    ),
    "stripe": Sdk(
        "stripe",
        "api.stripe.com",
        """import stripe
client = stripe.StripeClient(os.environ["STRIPE_API_KEY"])
print(client.v1.customers.create({"email": "ada@shop.test"}).id)
print(client.v1.customers.retrieve("cus_1").email)""",
        "cus_1\nada@shop.test\n",
        STRIPE,
        "stripe-version",
    ),
    "stripe, at the base URL": Sdk(
        "stripe",
        "api.stripe.com",
        """import stripe
base = {"api": os.environ["SLUICEGATE_BASE_URL"] + "/stripe"}
client = stripe.StripeClient(os.environ["SLUICEGATE_SESSION"], base_addresses=base)
print(client.v1.customers.create({"email": "ada@shop.test"}).id)
print(client.v1.customers.retrieve("cus_1").email)""",
        "cus_1\nada@shop.test\n",
        STRIPE,
        "stripe-version",
    ),
    "PyGithub": Sdk(
        "github",
        "api.github.com",
        """from github import Auth, Github
repository = Github(auth=Auth.Token(os.environ["GITHUB_TOKEN"])).get_repo("acme/shop")
print(repository.full_name)
print(repository.create_issue("broken").number)""",
        "acme/shop\n7\n",
        {"/repos/acme/shop": as_json(**REPOSITORY), "/repos/acme/shop/issues": as_json(**ISSUE)},
        "x-github-api-version",
    ),
    "notion-client": Sdk(
        "notion_client",
        "api.notion.com",
        """from notion_client import Client
client = Client(auth=os.environ["NOTION_TOKEN"])
print(client.users.me()["name"])
print(client.search(query="x")["object"])""",
        "Bot\nlist\n",
        {
            "/v1/users/me": as_json(object="user", id="u1", type="bot", name="Bot", bot={}),
            "/v1/search": as_json(object="list", results=[], next_cursor=None, has_more=False, type="page_or_database"),
        },
        "notion-version",
    ),
}
NAMES = {
    "api.openai.com": "openai",
    "api.anthropic.com": "anthropic",
    "slack.com": "slack",
    "api.stripe.com": "stripe",
    "api.github.com": "github",
    "api.notion.com": "notion",
}
SECRETS = {name: f"canary-{name}-0f3b9a62c1d84e57" for name in NAMES.values()}
SENT = {"anthropic": ("x-api-key", "{}")}
"""Where a provider wants its credential, if not as bearer."""


class Fake:
    """Every provider at once, told apart by Host; `seen` holds (host, method, path, header lines) of each request."""

    def __init__(self, authority: trustme.CA) -> None:
        self.seen: list[tuple[str, str, str, list[tuple[str, str]]]] = []
        fake = self

        class Answer(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                lines = [(name.lower(), value) for name, value in self.headers.items()]
                host, path = self.headers["Host"], self.path.partition("?")[0]
                fake.seen.append((host, self.command, path, lines))
                self._read()
                answer = next(
                    (sdk.calls[path] for sdk in SDKS.values() if sdk.host == host and path in sdk.calls), None
                )
                kind, body = answer or as_json(error="unknown path")
                self.send_response(200 if answer else 404)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

            do_POST = do_GET

            def _read(self) -> None:
                if self.headers.get("Transfer-Encoding") == "chunked":
                    while size := int(self.rfile.readline(), 16):
                        self.rfile.read(size + 2)
                    self.rfile.readline()
                self.rfile.read(int(self.headers.get("Content-Length", 0)))

            def log_message(self, *_: object) -> None:
                pass

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(*NAMES).configure_cert(context)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self._server.daemon_threads = True
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class SdkStand(Stand):
    """Every provider allowed, each with a credential of the tenant."""

    def __init__(self, folder: Path, fake: Fake, roots: trustme.CA) -> None:
        self.program = [
            sys.executable, str(Path(__file__).with_name("redirected.py")), ",".join(NAMES), str(fake.port),
        ]  # fmt: skip
        super().__init__(folder, fake, roots)  # type: ignore[arg-type]
        self.write_policy(
            {
                "apiVersion": "sluicegate/v1",
                "kind": "EgressPolicy",
                "metadata": {"name": "shop"},
                "subjects": [{"tenant": "acme", "agent": "bot"}],
                "allow": [
                    {
                        "name": name,
                        "provider": name,
                        "host": host,
                        "networks": [*LOOPBACK],
                        "credential": {"name": name},
                    }
                    for host, name in NAMES.items()
                ],
            }
        )
        self.store({f"tenants/acme/{name}": {"kind": "api_key", "value": value} for name, value in SECRETS.items()})


@pytest.fixture(scope="module")
def fake(roots: trustme.CA) -> Iterator[Fake]:
    made = Fake(roots)
    yield made
    made.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, fake: Fake, roots: trustme.CA) -> Iterator[Running]:
    begun = Running(SdkStand(tmp_path_factory.mktemp("s"), fake, roots))
    yield begun
    begun.stop()


SEARCH = """
import re
pattern = re.compile(rb"canary-[a-z]+-0f3b9a62")  # does not match itself
with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
    for line in maps:
        (start, _, end), access = line.split()[0].partition("-"), line.split()[1]
        if access.startswith("rw"):
            memory.seek(int(start, 16))
            assert not pattern.search(memory.read(int(end, 16) - int(start, 16))), "the process holds the credential"
"""
"""Looks for the credential in all that the process holds, once its calls are over."""


@pytest.mark.parametrize("name", SDKS)
def test_an_sdk_without_a_key_makes_calls_that_are_signed(running: Running, fake: Fake, name: str):
    sdk = SDKS[name]
    if importlib.util.find_spec(sdk.module) is None:
        pytest.skip(f"{sdk.module} is not installed")
    provider = NAMES[sdk.host]
    fake.seen.clear()
    done = running.client(sys.executable, "-c", f"import os\n{sdk.script}\n{SEARCH}")
    assert (done.returncode, done.stdout) == (0, sdk.printed), done.stderr
    assert SECRETS[provider] not in done.stdout + done.stderr + str(running.variables)
    assert [(host, path) for host, _, path, _ in fake.seen] == [(sdk.host, path) for path in sdk.calls]
    header, form = SENT.get(provider, ("authorization", "Bearer {}"))
    for *_, lines in fake.seen:
        assert [value for key, value in lines if key == header] == [form.format(SECRETS[provider])]
        assert str(lines).count(SECRETS[provider]) == 1
        assert "dummy" not in str(lines).lower()
        assert running.variables["SLUICEGATE_SESSION"] not in str(lines)
        assert not sdk.pin or len([key for key, _ in lines if key == sdk.pin]) == 1
