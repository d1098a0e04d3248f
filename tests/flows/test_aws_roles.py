"""Calls signed with the keys of a role: STS is asked once, by a request that verifies, and the keys verify upstream."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from tests.flows.aws_verifier import KEY_ID, SECRET, Verified
from tests.flows.conftest import Authority, NewFolder
from tests.flows.product import LOOPBACK, Product, origin, rule
from tests.flows.upstreams import Connection, Upstream

API, STS = "127.0.0.31", "127.0.0.32"
PLATFORM = "arn:aws:iam::111111111111:role/platform"
TENANT = "arn:aws:iam::222222222222:role/tenant"
XMLNS = 'xmlns="https://sts.amazonaws.com/doc/2011-06-15/"'


class Issuer:
    """STS as its API reference describes it: knows the keys it has issued, and what may be presented."""

    def __init__(self) -> None:
        self.keys = {KEY_ID: SECRET}
        self.tokens: dict[str, str] = {}
        self.forms: list[dict[str, str]] = []
        self.refuse = ""
        self.lock = threading.Lock()

    def __call__(self, connection: Connection) -> None:
        request = connection.request()
        with self.lock:
            form = dict(parse_qsl(request.body.decode(), strict_parsing=True))
            self.forms.append(form)
            if form["Action"] == "AssumeRole":
                verified = Verified(request, keys=self.keys)
                assert (verified.service, verified.region) == ("sts", "eu-west-1")
                assert request.all("X-Amz-Security-Token") == (
                    [self.tokens[verified.key_id]] if verified.key_id != KEY_ID else []
                )
            else:
                assert request.all("Authorization") == []
            status, body = (403, refusal(self.refuse)) if self.refuse else (200, self.issue(form["Action"]))
        head = f"HTTP/1.1 {status} X\r\nContent-Type: text/xml\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.send(head.encode() + body.encode())

    def issue(self, action: str) -> str:
        number = len(self.keys)
        key, secret, token = f"ASIAROLEKEY{number:09}", f"secret-of-the-role-{number:04}", f"token-of-the-role-{number}"
        self.keys[key], self.tokens[key] = secret, token
        ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
        return (
            f"<{action}Response {XMLNS}><{action}Result><Credentials><AccessKeyId>{key}</AccessKeyId>"
            f"<SecretAccessKey>{secret}</SecretAccessKey><SessionToken>{token}</SessionToken>"
            f"<Expiration>{ends}</Expiration></Credentials></{action}Result></{action}Response>"
        )


def refusal(code: str) -> str:
    return f"<ErrorResponse {XMLNS}><Error><Type>Sender</Type><Code>{code}</Code></Error></ErrorResponse>"


class Api:
    """A service that takes the keys that were issued, but those in `expired`; it writes back what it got."""

    def __init__(self, issuer: Issuer) -> None:
        self.issuer = issuer
        self.expired: set[str] = set()
        self.used: list[str] = []

    def __call__(self, connection: Connection) -> None:
        request = connection.request()
        verified = Verified(request, keys=self.issuer.keys)
        self.used.append(verified.key_id)
        assert request.all("X-Amz-Security-Token") == [self.issuer.tokens[verified.key_id]]
        if verified.key_id in self.expired:
            body = b'{"__type": "com.amazon.coral.service#ExpiredTokenException"}'
            connection.send(b"HTTP/1.1 400 X\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        else:
            body = f"{self.issuer.keys[verified.key_id]} {self.issuer.tokens[verified.key_id]}".encode()
            connection.send(b"HTTP/1.1 200 X\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


class Flow:
    def __init__(self, product: Product, upstream: Upstream, issuer: Issuer, api: Api) -> None:
        self.product, self.upstream, self.issuer, self.api = product, upstream, issuer, api

    def ask(self, *lines: bytes) -> Any:
        with self.product.tunnel(self.upstream) as client:
            return client.ask(origin(self.upstream, "/", *lines, method="POST", body=b"{}"), "POST")


@contextmanager
def flow(
    folder: Path, authority: Authority, record: dict[str, Any], app: dict[str, Any], **settings: Any
) -> Iterator[Flow]:
    issuer = Issuer()
    api = Api(issuer)
    with (
        Upstream(api, tls=authority.context(API), host=API) as upstream,
        Upstream(issuer, tls=authority.context(STS), host=STS) as sts,
    ):
        credential = {"name": "role", "service": "dynamodb", "region": "eu-west-1"}
        allow = [rule("dynamo", upstream, credential=credential, provider="aws-dynamodb")]
        records = {
            "role": {"kind": "aws", "app": "aws", "hosts": [API], **record},
            "apps/aws": {"token_endpoint": f"https://{sts.authority}/", "networks": LOOPBACK, "region": "eu-west-1",
                         **app},
        }  # fmt: skip
        with Product(folder, allow, records, extra_ca=authority.pem, **settings) as product:
            yield Flow(product, upstream, issuer, api)


KEYS = {"access_key_id": KEY_ID, "secret_access_key": SECRET}


def test_a_chain_of_roles_is_assumed_once_and_its_keys_verify_and_are_masked(
    new_folder: NewFolder, authority: Authority
) -> None:
    """B41, C03."""
    record = {"role_arn": TENANT, "external_id": "ext-7", "session_tags": ["tenant"]}
    with flow(new_folder(), authority, record, {**KEYS, "role_arn": PLATFORM}) as running:
        replies = [running.ask() for _ in range(4)]
        assert [reply.status for reply in replies] == [200] * 4, replies[0].body
        assert [form["RoleArn"] for form in running.issuer.forms] == [PLATFORM, TENANT]
        assert running.issuer.forms[1]["ExternalId"] == "ext-7"
        assert running.issuer.forms[1]["Tags.member.1.Value"] == "acme"
        product = running.product
        shown = product.diagnostics() + json.dumps(product.audit()) + product.ops_get("/metrics")[1]
        shown += product.run("secrets", "list").stdout.decode() + "".join(str(reply.body) for reply in replies)
        assert not re.search(r"(secret|token)-of-the-role", shown)
        assert SECRET not in shown


def test_a_web_identity_starts_the_chain_and_is_read_from_its_file(new_folder: NewFolder, authority: Authority) -> None:
    folder = new_folder()
    (folder / "projected").write_text("eyJ.projected.token\n")
    app = {"subject_token_file": str(folder / "projected"), "role_arn": PLATFORM}
    with flow(folder, authority, {"role_arn": TENANT, "external_id": "ext-7"}, app) as running:
        assert running.ask().status == 200
        first, second = running.issuer.forms
        assert (first["Action"], first["WebIdentityToken"]) == ("AssumeRoleWithWebIdentity", "eyJ.projected.token")
        assert (second["Action"], second["RoleArn"]) == ("AssumeRole", TENANT)


def test_keys_that_the_service_calls_expired_are_renewed_and_the_call_sent_once_more(
    new_folder: NewFolder, authority: Authority
) -> None:
    with flow(new_folder(), authority, {"role_arn": TENANT}, KEYS) as running:
        assert running.ask().status == 200
        running.api.expired.add(running.api.used[0])
        reply = running.ask()
        assert (reply.status, len(running.issuer.forms)) == (200, 2)
        assert len(set(running.api.used)) == 2
        running.api.expired.update(running.issuer.keys)
        assert running.ask().status == 401
        assert len(running.issuer.forms) == 2  # once a minute, whatever the service says


def test_a_role_that_aws_refuses_is_clear_and_nothing_is_sent(new_folder: NewFolder, authority: Authority) -> None:
    """C11."""
    with flow(new_folder(), authority, {"role_arn": TENANT}, KEYS) as running:
        running.issuer.refuse = "AccessDenied"
        reply = running.ask()
        assert (reply.status, reply.code) == (403, "refresh_rejected")
        assert b"trust policy" in reply.body
        assert TENANT in running.product.diagnostics()
        assert not running.api.used


def test_actors_get_sessions_of_their_own(new_folder: NewFolder, authority: Authority) -> None:
    identity = [{"kind": "static", "tenant": "acme", "agent": "bot", "actor": "jane"}]
    record = {"role_arn": TENANT, "session_tags": ["tenant", "actor"]}
    with flow(new_folder(), authority, record, KEYS, identity=identity) as running:
        assert running.ask().status == 200
        (form,) = running.issuer.forms
        assert form["RoleSessionName"] == "acme@jane"


def test_an_endpoint_in_a_network_that_the_app_does_not_list_is_not_asked(
    new_folder: NewFolder, authority: Authority
) -> None:
    with flow(new_folder(), authority, {"role_arn": TENANT}, {**KEYS, "networks": ["10.0.0.0/8"]}) as running:
        reply = running.ask()
        assert (reply.status, reply.code) == (503, "credential_unavailable")
        assert not running.issuer.forms
