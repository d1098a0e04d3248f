"""Refusals that a newer token cures, in the provider's own words, and those that it does not."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.flows.conftest import NewFolder
from tests.flows.product import LOOPBACK, Product, rule
from tests.flows.test_issued_tokens import Issuer, token
from tests.flows.upstreams import Connection, Script, Upstream

HOST, ENDPOINT = "127.0.0.25", "127.0.0.26"
OURS = """
name: strict-crm
title: Strict CRM
verified: 2026-09-30
source: [https://crm.example.com/docs]
hosts: [crm.example.com]
auth: {bearer: {header: Authorization, format: "Bearer {value}"}}
unauthorized: permission
"""


def answering_unless(accepted: str, status: int, refusal: Any) -> Script:
    """200 and what was sent for one token, the provider's refusal for every other."""

    def script(connection: Connection) -> None:
        request = connection.request()
        good = request.all("Authorization") == [f"Bearer {accepted}"]
        sent = {name: request.all(name) for name in ("Xero-Tenant-Id",)}
        body = json.dumps({"ok": True, "sent": sent} if good else refusal).encode()
        head = f"HTTP/1.1 {200 if good else status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        connection.send(head.encode() + b"\r\n\r\n" + body)

    return script


@contextmanager
def flow(folder: Path, provider: str, script: Script, **fields: Any) -> Iterator[tuple[Product, Upstream, Upstream]]:
    """A token that still lives, and a token endpoint that would give another."""
    (folder / "providers").mkdir()
    (folder / "providers" / "strict-crm.yaml").write_text(OURS)
    with Upstream(script, host=HOST) as api, Upstream(Issuer(token(1)), host=ENDPOINT) as endpoint:
        live = {"refresh_token": "r", "access_token": "the-access-token-in-hand", "expires_at": time.time() + 3000}
        records = {
            "crm": {"kind": "oauth2", "app": "crm", "hosts": [HOST], **live, **fields},
            "apps/crm": {
                "client_id": "c", "client_secret": "s", "token_endpoint": f"http://{endpoint.authority}/token",
                "networks": LOOPBACK,
            },
        }  # fmt: skip
        allow = [rule("crm", api, provider=provider, credential={"name": "crm"})]
        with Product(folder, allow, records, providers=["./providers"]) as product:
            yield product, api, endpoint


@pytest.mark.parametrize("error", ["token_expired", "invalid_auth"])
def test_slack_says_in_a_200_that_a_token_is_over_and_one_renewal_follows(new_folder: NewFolder, error: str) -> None:
    script = answering_unless("issued-access-token-1", 200, {"ok": False, "error": error})
    with flow(new_folder(), "slack", script) as (product, api, endpoint):
        reply = product.get(api, "/api/chat.postMessage", method="POST", body=b"{}")
        assert (reply.status, len(api.requests), len(endpoint.requests)) == (200, 2, 1)
        assert api.requests[1].body == b"{}"


def test_slack_says_it_again_and_there_is_no_loop(new_folder: NewFolder) -> None:
    script = answering_unless("nothing is accepted", 200, {"ok": False, "error": "token_expired"})
    with flow(new_folder(), "slack", script) as (product, api, endpoint):
        for _ in range(2):
            reply = product.get(api, "/api/chat.postMessage", method="POST", body=b"{}")
            assert (reply.status, reply.json()["kind"]) == (401, "auth")
        assert (len(api.requests), len(endpoint.requests)) == (3, 1)


@pytest.mark.parametrize(
    ("provider", "refusal"),
    [
        ("jira", {"code": 401, "message": "Unauthorized; scope does not match"}),
        ("strict-crm", {"message": "not for you"}),
    ],
)
def test_a_401_that_means_permission_costs_no_token(new_folder: NewFolder, provider: str, refusal: Any) -> None:
    with flow(new_folder(), provider, answering_unless("x", 401, refusal)) as (product, api, endpoint):
        reply = product.get(api, "/rest/api/3/myself")
        assert (reply.status, reply.json()["kind"]) == (403, "permission")
        assert (len(api.requests), len(endpoint.requests)) == (1, 0)


def test_the_organisation_that_was_consented_to_goes_with_the_token_and_no_other(new_folder: NewFolder) -> None:
    script = answering_unless("the-access-token-in-hand", 401, {})
    organisation = "70784a63-d24b-46a9-a4db-0e70a274b056"
    with flow(new_folder(), "xero", script, vars={"tenant": organisation}) as (product, api, _):
        reply = product.get(api, "/api.xro/2.0/Invoices", b"xero-tenant-id: another")
        assert reply.json()["sent"] == {"Xero-Tenant-Id": [organisation]}
