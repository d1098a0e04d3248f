"""One name decides policy, credential, dial, certificate and log, however the client spells it."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.flows.conftest import Authority, NewFolder
from tests.flows.product import LOOPBACK, Product, absolute, origin, record, rule
from tests.flows.upstreams import Upstream
from tests.flows.wire import PeerEnded

SECRET = "sk-live-0123456789abcdef"


class Flow:
    def __init__(self, product: Product, plain: Upstream, tls: Upstream, paths: Upstream) -> None:
        self.product = product
        self.plain = plain
        self.tls = tls
        self.paths = paths


@pytest.fixture(scope="module")
def running(folder: Path, authority: Authority) -> Iterator[Flow]:
    credential = {"name": "key", "header": "X-Api-Key"}
    with ExitStack() as stack:
        plain = stack.enter_context(Upstream(host="localhost"))
        tls = stack.enter_context(Upstream(host="localhost", tls=authority.context("localhost")))
        paths = stack.enter_context(Upstream(host="127.0.0.2"))
        rules = [
            rule("plain", plain, credential=credential),
            rule("tls", tls, credential=credential),
            rule("paths", paths, paths=["/x/**", "/", "/admin-not"]),
        ]
        deny = [
            {
                "name": "no-admin",
                "host": "127.0.0.2",
                "port": paths.port,
                "plaintext": True,
                "paths": ["/admin", "/admin/**"],
            },
            {"name": "no-slack", "provider": "slack"},
        ]
        records = {"key": record("api_key", "localhost", value=SECRET)}
        product = stack.enter_context(Product(folder, rules, records, deny=deny, extra_ca=authority.pem))
        yield Flow(product, plain, tls, paths)


@pytest.fixture
def flow(running: Flow) -> Flow:
    for upstream in (running.plain, running.tls, running.paths):
        upstream.forget()
    return running


@pytest.mark.parametrize("host", ["other.test", "127.0.0.1", "localhost:1", "localhost"])
@pytest.mark.parametrize("tls", [False, True])
def test_a_host_that_differs_from_the_tunnels_name_is_refused(flow: Flow, host: str, tls: bool) -> None:
    """B01: 421, nothing upstream; `localhost` alone means the default port, another one than the tunnel's."""
    upstream = flow.tls if tls else flow.plain
    with flow.product.tunnel(upstream, tls=tls) as client:
        reply = client.ask(b"GET / HTTP/1.1\r\nHost: %s\r\n\r\n" % host.encode())
    assert reply.status == 421
    assert reply.code == "destination_mismatch"
    assert upstream.received == b""


def test_a_second_request_on_the_tunnel_with_another_host_is_refused(flow: Flow) -> None:
    """B01."""
    with flow.product.tunnel(flow.tls) as client:
        assert client.ask(origin(flow.tls, "/1")).status == 200
        assert client.ask(b"GET /2 HTTP/1.1\r\nHost: other.test\r\n\r\n").status == 421
    assert [request.target for request in flow.tls.requests] == [b"/1"]


@pytest.mark.parametrize("host", ["[localhost]", "[127.0.0.1]", "[::1"])
def test_brackets_around_a_name_are_malformed(flow: Flow, host: str) -> None:
    """B01."""
    with flow.product.client() as client:
        assert client.connect(f"{host}:{flow.plain.port}").status == 400
    assert flow.plain.connections == []


def test_a_host_in_another_case_or_with_a_trailing_dot_is_the_same_host(flow: Flow) -> None:
    """B01, C01."""
    with flow.product.tunnel(flow.plain, tls=False) as client:
        for host in (f"LOCALHOST:{flow.plain.port}", f"localhost.:{flow.plain.port}", f"Localhost:{flow.plain.port}"):
            assert client.ask(b"GET / HTTP/1.1\r\nHost: %s\r\n\r\n" % host.encode()).status == 200
    assert {tuple(request.all("X-Api-Key")) for request in flow.plain.requests} == {(SECRET,)}


@pytest.mark.parametrize("name", ["LOCALHOST", "localhost.", "LocalHost."])
def test_every_spelling_of_a_host_gets_the_same_decision_and_credential(flow: Flow, name: str) -> None:
    """C01: absolute-form and CONNECT."""
    authority = f"{name}:{flow.plain.port}".encode()
    with flow.product.client() as client:
        assert client.ask(b"GET http://%s/ HTTP/1.1\r\nHost: %s\r\n\r\n" % (authority, authority)).status == 200
    with flow.product.client() as client:
        assert client.connect(authority.decode()).status == 200
        assert client.ask(b"GET / HTTP/1.1\r\nHost: %s\r\n\r\n" % authority).status == 200
    assert [request.all("X-Api-Key") for request in flow.plain.requests] == [[SECRET], [SECRET]]


@pytest.mark.parametrize("name", ["127.0.0.2", "other.test"])
def test_an_sni_that_differs_from_the_tunnels_name_gets_an_alert(flow: Flow, name: str) -> None:
    """B02."""
    with flow.product.client() as client:
        assert client.connect(f"localhost:{flow.tls.port}").status == 200
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        sni = "other.test" if name == "127.0.0.2" else name
        with pytest.raises(ssl.SSLError, match=r"(?i)unrecognized.name"):
            client.start_tls(context, sni)
    assert flow.tls.received == b""


def test_a_mismatch_of_names_is_told_once(flow: Flow) -> None:
    """B02: one audit line, under the name that policy judged."""

    def lines_so_far() -> int:
        """Of mismatches; lines are written in order, so a later call's line shows that they are all there."""
        flow.product.audited(flow.product.get(flow.plain).call_id)
        told = [line for line in flow.product.audit() if line.get("code") == "destination_mismatch"]
        assert {line["host"] for line in told} <= {"localhost"}
        return len(told)

    before = lines_so_far()
    with flow.product.client() as client:
        assert client.connect(flow.tls.authority).status == 200
        with pytest.raises(ssl.SSLError):
            client.start_tls(ssl.create_default_context(), "other.test")
    assert lines_so_far() == before + 1


@pytest.mark.parametrize("segment", ["slack", "slack@SLACK.COM", "slack@slack.com.", "slack@Slack.Com:443"])
def test_a_denied_host_is_denied_in_every_spelling_of_a_base_url_segment(flow: Flow, segment: str) -> None:
    """C01: the explicit default port too."""
    with flow.product.base_client() as client:
        reply = client.ask(b"GET /%s/api/auth.test HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % segment.encode())
    assert (reply.status, reply.code) == (403, "policy_denied")
    line = flow.product.audited(reply.call_id)
    assert (line["host"], line["provider"], line["rule"]) == ("slack.com", "slack", "no-slack")


@pytest.mark.parametrize("sni", ["localhost", "LOCALHOST", "localhost.", None])
def test_an_equal_or_absent_sni_is_served_under_the_tunnels_name(flow: Flow, sni: str | None) -> None:
    """B02."""
    with flow.product.client() as client:
        assert client.connect(f"localhost:{flow.tls.port}").status == 200
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = sni is not None and not sni.endswith(".")
        context.load_verify_locations(cadata=flow.product.ca_certificate())
        inner = client.start_tls(context, sni)
        assert inner.ask(origin(flow.tls, "/")).status == 200
    assert flow.tls.requests[0].all("X-Api-Key") == [SECRET]


def test_the_authority_of_an_absolute_target_wins_over_host(flow: Flow) -> None:
    """B03; design section 5: a Host that disagrees may be refused as 421."""
    with flow.product.client() as client:
        reply = client.ask(b"GET %s/x?q HTTP/1.1\r\nHost: b.test\r\n\r\n" % flow.plain.url.encode())
    if reply.status == 200:
        (request,) = flow.plain.requests
        assert request.target == b"/x?q"
        assert request.all("Host") == [flow.plain.authority]
    else:
        assert reply.status == 421
        assert flow.plain.received == b""


@pytest.mark.parametrize(
    "line",
    [
        "GET {a} HTTP/1.1",
        "GET / HTTP/1.1",
        "GET * HTTP/1.1",
        "GET //{a}/ HTTP/1.1",
        "GET ftp://{a}/ HTTP/1.1",
        "GET http:///x HTTP/1.1",
        "GET http:{a}/ HTTP/1.1",
        "CONNECT http://{a}/ HTTP/1.1",
        "CONNECT / HTTP/1.1",
        "CONNECT localhost HTTP/1.1",
    ],
)
def test_a_target_of_another_form_is_refused_on_the_proxy_listener(flow: Flow, line: str) -> None:
    """B03: authority-form without CONNECT, origin-form and asterisk-form name no destination."""
    authority = flow.plain.authority
    with flow.product.client() as client:
        reply = client.ask(line.format(a=authority).encode() + b"\r\nHost: " + authority.encode() + b"\r\n\r\n")
    assert reply.status in (400, 421)
    assert flow.plain.received == b""


@pytest.mark.parametrize(
    "path",
    [
        "/x/../admin",
        "/x/..%2fadmin",
        "/x/%2e%2e/admin",
        "//admin",
        "/x//admin",
        "/x/..;/admin",
        "/x%5c..%5cadmin",
        "/x\\..\\admin",
        "/x/%00",
        "/admin%00",
        "/x%2Fy",
        "/x/%0d%0a",
        "/x/%c0%af",
        "/x/%252e%252e/admin",
        "/x/./y",
    ],
)
def test_an_ambiguous_path_is_refused_where_a_path_rule_decides(flow: Flow, path: str) -> None:
    """C02, B25."""
    reply = flow.product.get(flow.paths, path)
    assert reply.status in (400, 403), reply.body
    assert reply.code in ("policy_denied", "malformed_request")
    assert flow.paths.received == b""


@pytest.mark.parametrize("path", ["/admin", "/%61dmin", "/admin/", "/admin/x", "/%61%64min/x?y"])
def test_another_spelling_of_a_denied_path_is_denied(flow: Flow, path: str) -> None:
    """C02."""
    reply = flow.product.get(flow.paths, path)
    assert (reply.status, reply.code) == (403, "policy_denied")
    assert flow.paths.received == b""


@pytest.mark.parametrize("path", ["/x/y", "/x/%7Ea", "/x/a%20b", "/", "/admin-not", "/x/y?p=../admin"])
def test_an_unambiguous_path_passes_as_sent(flow: Flow, path: str) -> None:
    assert flow.product.get(flow.paths, path).status == 200
    assert flow.paths.requests[0].target == path.encode()


def test_plain_http_to_a_rule_that_means_https_is_denied(flow: Flow) -> None:
    """B46."""
    reply = flow.product.get(flow.tls)
    assert (reply.status, reply.code) == (403, "policy_denied")
    with flow.product.tunnel(flow.tls, tls=False) as client:
        assert client.ask(origin(flow.tls, "/")).status == 403
    assert flow.tls.received == b""


def test_https_to_a_rule_that_means_plain_http_is_denied(flow: Flow) -> None:
    """B46."""
    with flow.product.client() as client:
        reply = client.connect(f"localhost:{flow.plain.port}")
        if reply.status == 200:
            inner = client.start_tls(flow.product.trust(), "localhost")
            reply = inner.ask(origin(flow.plain, "/"))
    assert reply.status == 403
    assert flow.plain.received == b""


def test_a_bare_host_means_https_on_443(new_folder: NewFolder) -> None:
    """B46: plain http, other ports and the name's other spellings of the port are judged by that one meaning."""
    with Product(new_folder(), [{"name": "bare", "host": "127.0.0.1", "networks": LOOPBACK}]) as product:
        for target in ("http://127.0.0.1/", "http://127.0.0.1:443/", "http://127.0.0.1:8443/"):
            with product.client() as client:
                reply = client.ask(f"GET {target} HTTP/1.1\r\nHost: {target[7:-1]}\r\n\r\n".encode())
            assert (reply.status, reply.code) == (403, "policy_denied"), target
        with product.client() as client:
            assert client.connect("127.0.0.1:8443").status == 403
        with product.client() as client:
            assert client.connect("127.0.0.1:443").status in (200, 502)


def test_the_audit_line_holds_the_canonical_name(flow: Flow) -> None:
    """B02: one name in the log too."""
    authority = f"LOCALHOST.:{flow.plain.port}".encode()
    with flow.product.client() as client:
        reply = client.ask(b"GET http://%s/ HTTP/1.1\r\nHost: %s\r\n\r\n" % (authority, authority))
    assert flow.product.audited(reply.call_id)["host"].split(":")[0] == "localhost"


def test_a_denied_host_is_refused_at_connect(flow: Flow) -> None:
    with flow.product.client() as client:
        reply = client.connect("not-listed.test:443")
        assert (reply.status, reply.code) == (403, "policy_denied")
        assert client.ask(absolute(flow.plain, "/")).status == 200


def test_an_unfinished_connect_head_reaches_nothing(flow: Flow) -> None:
    with flow.product.client() as client:
        client.send(b"CONNECT localhost:%d HTTP/1.1\r\nHost: lo" % flow.plain.port)
        client.half_close()
        try:
            assert client.reply("CONNECT").status == 400
        except PeerEnded:
            pass
    assert flow.plain.received == b""
