"""Tenants take turns on one kept tunnel and one kept base-URL connection, in every order: each call carries its own
tenant's credential, and no byte of another's reaches an upstream with it."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from proxy.identity.minting import mint
from proxy.identity.signing_key import SigningKey
from tests.flows.conftest import Authority
from tests.flows.product import Product, record, rule
from tests.flows.upstreams import Upstream
from tests.flows.ways import Session

CANARIES = {"acme": "sk-canary-acme-0123456789", "globex": "sk-canary-globex-9876543210"}
OPENER = "acme"
"""Who opened the tunnel, and so calls through it where a call names nobody."""


class Call(NamedTuple):
    """`who` is a tenant, "nobody" for a call that names none, or "forged" for a token that another key has signed."""

    way: str
    who: str
    body: bytes

    @property
    def tenant(self) -> str:
        """Whose call it is; empty for one that is refused."""
        return OPENER if (self.way, self.who) == ("tunnel", "nobody") else self.who if self.who in CANARIES else ""


CALLS = st.builds(
    Call,
    st.sampled_from(["tunnel", "base-url"]),
    st.sampled_from([*CANARIES, *CANARIES, "nobody", "forged"]),
    st.sampled_from([b"", b"{}", b"x" * 5000]),
)
BATCHES = st.lists(st.lists(CALLS, min_size=1, max_size=4), min_size=1, max_size=6)
"""Calls of one batch are written before the first reply is read: pipelined on each of the two connections."""


class Flow:
    def __init__(self, upstreams: dict[str, Upstream], sessions: dict[str, Session], tokens: dict[str, str]) -> None:
        self.upstreams = upstreams
        self.sessions = sessions
        self.tokens = tokens

    def written(self, number: int, call: Call) -> bytes:
        lines = [b"X-Number: %d" % number]
        if call.who in self.tokens:
            lines.append(b"Sluicegate-Session: " + self.tokens[call.who].encode())
        return self.sessions[call.way].request("POST", f"/{call.way}/{number}", *lines, body=call.body)

    def run(self, batches: Sequence[Sequence[Call]]) -> list[tuple[Call, int]]:
        """Every call with the status of its reply, in the order of the numbers that they carry."""
        calls = [call for batch in batches for call in batch]
        statuses: dict[int, int] = {}
        first = 0
        for batch in batches:
            numbered = list(enumerate(batch, first))
            first += len(batch)
            for way, session in self.sessions.items():
                own = [(number, call) for number, call in numbered if call.way == way]
                session.client.send(b"".join(self.written(number, call) for number, call in own))
                for number, _ in own:
                    statuses[number] = session.client.reply("POST").status
        return [(call, statuses[number]) for number, call in enumerate(calls)]


@pytest.fixture(scope="module")
def flow(folder: Path, authority: Authority) -> Iterator[Flow]:
    key, other = SigningKey.generate(), SigningKey.generate()
    (folder / "keys.json").write_text(json.dumps(key.public_set()))
    claims = {"iss": "https://idp.test", "aud": "sluicegate", "agent": "bot"}
    tokens = {tenant: mint(key, {**claims, "tenant": tenant}, 3600, time.time()) for tenant in CANARIES}
    tokens["forged"] = mint(other, {**claims, "tenant": "globex"}, 3600, time.time())
    issuer = {
        "issuer": claims["iss"],
        "audience": claims["aud"],
        "algorithms": ["ES256"],
        "jwks_file": "./keys.json",
        "tenants": ["*"],
    }
    records = {
        f"tenants/{tenant}/key": record("api_key", "127.0.0.1", "localhost", value=value)
        for tenant, value in CANARIES.items()
    }
    credential = {"name": "key", "header": "X-Api-Key"}
    with ExitStack() as stack:
        tls = stack.enter_context(Upstream(host="localhost", tls=authority.context("localhost")))
        plain = stack.enter_context(Upstream())
        rules = [rule("tls", tls, credential=credential), rule("plain", plain, credential=credential)]
        product = stack.enter_context(
            Product(
                folder,
                rules,
                records,
                extra_ca=authority.pem,
                identity=[{"kind": "session_token", "issuers": [issuer]}],
            )
        )
        opener = b"Proxy-Authorization: Basic " + b64encode(f"agent:{tokens[OPENER]}".encode())
        outer = product.client()
        assert outer.connect(tls.authority, opener).status == 200
        sessions = {
            "tunnel": Session(outer.start_tls(product.trust(), "localhost"), b"", tls.authority),
            "base-url": Session(product.base_client(), b"/plain", f"127.0.0.1:{product.base}"),
        }
        for session in sessions.values():
            stack.enter_context(session)
        yield Flow({"tunnel": tls, "base-url": plain}, sessions, tokens)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example([[Call("tunnel", who, b"") for who in ("acme", "globex", "nobody", "globex", "forged", "acme")]])
@example([[Call("base-url", who, b"{}")] for who in ("globex", "nobody", "acme", "forged", "globex", "acme")])
@given(BATCHES)
def test_whatever_the_order_every_call_carries_its_own_tenants_credential(flow: Flow, batches: list[list[Call]]):
    for upstream in flow.upstreams.values():
        upstream.forget()
    answered = flow.run(batches)
    assert [status == 200 for _, status in answered] == [bool(call.tenant) for call, _ in answered]
    seen = {int(request.all("X-Number")[0]): request for one in flow.upstreams.values() for request in one.requests}
    assert set(seen) == {number for number, (call, _) in enumerate(answered) if call.tenant}
    for number, request in seen.items():
        call = answered[number][0]
        assert request.all("X-Api-Key") == [CANARIES[call.tenant]]
        assert request.body == call.body
    wanted = Counter(CANARIES[call.tenant] for call, _ in answered if call.tenant)
    received = b"".join(upstream.received for upstream in flow.upstreams.values())
    assert {canary: received.count(canary.encode()) for canary in CANARIES.values()} == {
        canary: wanted[canary] for canary in CANARIES.values()
    }, "a credential stands somewhere else than in its own calls"
    assert not any(token.encode() in received for token in flow.tokens.values())
