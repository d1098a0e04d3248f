"""Workload identities through the whole process: the platform's token in a file becomes a token of Google or Entra.

The endpoints speak what cloud.google.com/iam/docs ("token", "generateAccessToken") and learn.microsoft.com ("OAuth 2.0
client credentials flow", federated credential) describe.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from tests.flows.conftest import NewFolder
from tests.flows.product import LOOPBACK, Product, rule
from tests.flows.upstreams import Connection, Upstream

API, ISSUER = "127.0.0.61", "127.0.0.62"
POOL = "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/k8s"
ACCOUNT = "robot@project.iam.gserviceaccount.com"
PROJECTED = "eyJ.projected.token"


def issuer(connection: Connection) -> None:
    """Google's STS and IAM credentials API, and Entra's token endpoint; 400 for what they would not take."""
    request = connection.request()
    target, answer = request.target.decode(), {"error": "invalid_grant"}
    if target == f"/v1/projects/-/serviceAccounts/{ACCOUNT}:generateAccessToken":
        if request.all("Authorization") == ["Bearer token-of-the-pool"]:
            ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
            answer = {"accessToken": "token-of-the-account", "expireTime": ends}
    else:
        form = dict(parse_qsl(request.body.decode(), strict_parsing=True))
        if target == "/v1/token" and (form["subject_token"], form["audience"]) == (PROJECTED, POOL):
            answer = {"access_token": "token-of-the-pool", "expires_in": 3600}
        elif target == "/contoso/oauth2/v2.0/token" and form.get("client_assertion") == PROJECTED:
            answer = {"access_token": "token-of-the-application", "expires_in": 3599}
    body = json.dumps(answer).encode()
    head = b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    connection.send(head % (400 if "error" in answer else 200, len(body)) + body)


@contextmanager
def flow(
    folder: Path, record: dict[str, Any], app: dict[str, Any], path: str
) -> Iterator[tuple[Product, Upstream, Upstream]]:
    """`app` may say {file} for the platform's token, {issuer} for the endpoints' address."""
    (folder / "projected").write_text(f"{PROJECTED}\n")
    with Upstream(host=API) as api, Upstream(issuer, host=ISSUER) as endpoints:
        where = {"file": str(folder / "projected"), "issuer": endpoints.url}
        filled = {name: value.format_map(where) for name, value in app.items()}
        records = {
            "cloud": {"app": "cloud", "hosts": [API], **record},
            "apps/cloud": {**filled, "token_endpoint": endpoints.url + path, "networks": LOOPBACK},
        }
        with Product(folder, [rule("cloud", api, credential={"name": "cloud"})], records) as product:
            yield product, api, endpoints


def unseen(product: Product) -> None:
    shown = product.diagnostics() + json.dumps(product.audit()) + product.ops_get("/metrics")[1]
    assert not [word for word in (PROJECTED, "token-of-the") if word in shown]


def test_google_takes_the_workloads_token_and_the_account_acts(new_folder: NewFolder) -> None:
    record = {"kind": "service_account", "client_email": ACCOUNT, "scopes": ["a"], "subject": "file"}
    app = {"audience": POOL, "subject_token_file": "{file}", "impersonation_endpoint": "{issuer}"}
    with flow(new_folder(), record, app, "/v1/token") as (product, api, endpoints):
        for _ in range(2):
            assert product.get(api, "/b").status == 200
        assert [one.all("Authorization") for one in api.requests] == [["Bearer token-of-the-account"]] * 2
        assert len(endpoints.requests) == 2
        unseen(product)


def test_google_takes_the_pools_identity_itself(new_folder: NewFolder) -> None:
    record = {"kind": "service_account", "scopes": ["a"], "subject": "file"}
    with flow(new_folder(), record, {"audience": POOL, "subject_token_file": "{file}"}, "/v1/token") as running:
        product, api, _ = running
        assert product.get(api, "/b").status == 200
        assert api.requests[0].all("Authorization") == ["Bearer token-of-the-pool"]


def test_entra_takes_the_workloads_token_for_the_clients_secret(new_folder: NewFolder) -> None:
    record = {"kind": "client_credentials", "scopes": ["https://graph.microsoft.com/.default"]}
    app = {"client_id": "client-1", "client_assertion_file": "{file}"}
    with flow(new_folder(), record, app, "/contoso/oauth2/v2.0/token") as (product, api, endpoints):
        assert product.get(api, "/b").status == 200
        assert api.requests[0].all("Authorization") == ["Bearer token-of-the-application"]
        assert endpoints.requests[0].all("Authorization") == []
        unseen(product)


def test_a_token_that_the_cloud_does_not_know_is_refused_and_nothing_is_sent(new_folder: NewFolder) -> None:
    """C11."""
    record = {"kind": "client_credentials", "scopes": ["s"]}
    app = {"client_id": "client-1", "client_assertion_file": "{file}"}
    with flow(new_folder(), record, app, "/fabrikam/oauth2/v2.0/token") as (product, api, _):
        reply = product.get(api, "/b")
        assert (reply.status, reply.code) == (403, "refresh_rejected")
        assert not api.requests
