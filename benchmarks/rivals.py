"""Configuration of the programs measured beside Sluicegate, and of the upstream they all call."""

from __future__ import annotations

from typing import Any

from benchmarks.ground import ACCESS_KEY_ID, DATA_PATH, NAME, REGION, SERVICE, SIGNED_PATH, Ground, reply_body

ENVOY_TYPES = "type.googleapis.com/envoy.extensions."
Settings = dict[str, Any]


def nginx_frame(ground: Ground, name: str, http: str) -> str:
    """An nginx.conf around `http`: one worker, everything it writes inside the folder."""
    temporary = " ".join(
        f"{kind}_temp_path {ground.file(name)}-{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return f"""daemon off; worker_processes 1; pid {ground.file(name)}.pid; error_log {ground.file(name)}.log warn;
events {{ worker_connections 4096; }}
http {{
  access_log off; {temporary}
  keepalive_timeout 600s; keepalive_requests 100000000; tcp_nodelay on;
{http}
}}
"""


def nginx_upstream(ground: Ground) -> str:
    """Answers 200 with 1 KB only to the exact bearer token, or to what has the form of a signature by the key.

    Anything else is a 401 and counts as bad. nginx computes no signature: that they hold is what the tests show.
    """
    scope = f"{ACCESS_KEY_ID}/[0-9]{{8}}/{REGION}/{SERVICE}/aws4_request"
    signed = f"^AWS4-HMAC-SHA256 Credential={scope}, ?SignedHeaders=[a-z0-9;-]+, ?Signature=[0-9a-f]{{64}}$"
    return nginx_frame(
        ground,
        "upstream",
        f"""  server {{
    listen 127.0.0.1:{ground.plain_port};
    listen 127.0.0.1:{ground.tls_port} ssl;
    ssl_certificate {ground.upstream_chain}; ssl_certificate_key {ground.upstream_chain};
    ssl_protocols TLSv1.2 TLSv1.3; ssl_session_cache shared:sessions:10m;
    default_type application/json;
    location = {DATA_PATH} {{
      if ($http_authorization != "Bearer {ground.secret}") {{ return 401 '{{"error":"not the credential"}}'; }}
      return 200 '{reply_body()}';
    }}
    location = {SIGNED_PATH} {{
      if ($http_authorization !~ "{signed}") {{ return 401 '{{"error":"not signed"}}'; }}
      if ($http_x_amz_date = "") {{ return 401 '{{"error":"not dated"}}'; }}
      return 200 '{reply_body()}';
    }}
  }}""",
    )


def nginx_proxy(ground: Ground, plain: int, tls: int) -> str:
    """nginx as the proxy: it sets one header and relays, to the plain and to the verified TLS upstream."""
    return nginx_frame(
        ground,
        "nginx",
        f"""  upstream plain {{ server 127.0.0.1:{ground.plain_port}; keepalive 128; keepalive_requests 100000000; }}
  upstream tls {{ server 127.0.0.1:{ground.tls_port}; keepalive 128; keepalive_requests 100000000; }}
  proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Authorization "Bearer {ground.secret}";
  proxy_ssl_trusted_certificate {ground.upstream_ca}; proxy_ssl_verify on; proxy_ssl_name {NAME};
  proxy_ssl_server_name on; proxy_ssl_protocols TLSv1.3;
  server {{ listen 127.0.0.1:{plain}; location / {{ proxy_pass http://plain; }} }}
  server {{ listen 127.0.0.1:{tls}; location / {{ proxy_pass https://tls; }} }}""",
    )


def envoy(ground: Ground, plain: int, tls: int, tunnel: int, signed: int) -> Settings:
    """Envoy with its credential injector on three listeners: plain upstream, TLS upstream, and CONNECT taken apart; and
    with its AWS signer on a fourth.

    The tunnel listener hands the CONNECT stream to an internal listener that ends TLS with a fixed leaf: no minting,
    no policy, no audit, so what is compared is the least that Envoy can do there.
    """
    secret = ground.write("envoy-secret.json", {"resources": [_envoy_secret(ground)]})
    inject = _envoy_injector(str(secret))
    inside = {
        "name": "inside",
        "internal_listener": {},
        "filter_chains": [
            {"transport_socket": _envoy_leaf(ground), "filters": [_envoy_http("inside", [inject], _route("tls"))]}
        ],
    }
    listeners = [
        _envoy_listener("plain", plain, _envoy_http("plain", [inject], _route("plain"))),
        _envoy_listener("tls", tls, _envoy_http("tls", [inject], _route("tls"))),
        _envoy_listener("signed", signed, _envoy_http("signed", [_envoy_signer(ground)], _route("plain"))),
        _envoy_listener("tunnel", tunnel, _envoy_http("tunnel", [], _connect_route("inside"), upgrade=True)),
        inside,
    ]
    clusters = [
        _envoy_cluster("plain", ground.plain_port),
        {**_envoy_cluster("tls", ground.tls_port), "transport_socket": _envoy_verified_tls(ground)},
        _envoy_inside_cluster(),
    ]
    bootstrap = {
        "name": "envoy.bootstrap.internal_listener",
        "typed_config": {"@type": ENVOY_TYPES + "bootstrap.internal_listener.v3.InternalListener"},
    }
    return {
        "node": {"id": "bench", "cluster": "bench"},
        "bootstrap_extensions": [bootstrap],
        "static_resources": {"listeners": listeners, "clusters": clusters},
    }


def _envoy_secret(ground: Ground) -> Settings:
    return {
        "@type": ENVOY_TYPES + "transport_sockets.tls.v3.Secret",
        "name": "credential",
        "generic_secret": {"secret": {"filename": str(ground.secret_file)}},
    }


def _envoy_injector(secret_file: str) -> Settings:
    source = {"name": "credential", "sds_config": {"path_config_source": {"path": secret_file}}}
    generic = {
        "@type": ENVOY_TYPES + "http.injected_credentials.generic.v3.Generic",
        "header": "Authorization",
        "header_value_prefix": "Bearer ",
        "credential": source,
    }
    return {
        "name": "envoy.filters.http.credential_injector",
        "typed_config": {
            "@type": ENVOY_TYPES + "filters.http.credential_injector.v3.CredentialInjector",
            "overwrite": True,
            "allow_request_without_credential": False,
            "credential": {"name": "envoy.http.injected_credentials.generic", "typed_config": generic},
        },
    }


def _envoy_signer(ground: Ground) -> Settings:
    """Signs what Sluicegate signs: headers that clients and Envoy itself add are left out."""
    left_out = [{"prefix": "x-envoy"}, {"prefix": "x-forwarded"}, {"exact": "user-agent"}, {"exact": "accept"}]
    keys = {"access_key_id": ACCESS_KEY_ID, "secret_access_key": ground.secret}
    return {
        "name": "envoy.filters.http.aws_request_signing",
        "typed_config": {
            "@type": ENVOY_TYPES + "filters.http.aws_request_signing.v3.AwsRequestSigning",
            "service_name": SERVICE,
            "region": REGION,
            "host_rewrite": f"{NAME}:{ground.plain_port}",
            "match_excluded_headers": left_out,
            "credential_provider": {"inline_credential": keys},
        },
    }


def _envoy_http(name: str, filters: list[Settings], route: Settings, upgrade: bool = False) -> Settings:
    router = {
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": ENVOY_TYPES + "filters.http.router.v3.Router"},
    }
    connection = {
        "@type": ENVOY_TYPES + "filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": name,
        "codec_type": "HTTP1",
        "generate_request_id": False,
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [*filters, router],
    }
    if upgrade:
        connection["upgrade_configs"] = [{"upgrade_type": "CONNECT"}]
    return {"name": "envoy.filters.network.http_connection_manager", "typed_config": connection}


def _route(cluster: str) -> Settings:
    return {"match": {"prefix": "/"}, "route": {"cluster": cluster, "timeout": "30s"}}


def _connect_route(cluster: str) -> Settings:
    upgrade = {"upgrade_type": "CONNECT", "connect_config": {}}
    return {"match": {"connect_matcher": {}}, "route": {"cluster": cluster, "upgrade_configs": [upgrade]}}


def _envoy_address(port: int) -> Settings:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def _envoy_listener(name: str, port: int, http: Settings) -> Settings:
    return {"name": name, "address": _envoy_address(port), "filter_chains": [{"filters": [http]}]}


def _envoy_endpoint(name: str, address: Settings) -> Settings:
    endpoint = {"endpoint": {"address": address}}
    assignment = {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]}
    return {"name": name, "type": "STATIC", "connect_timeout": "2s", "load_assignment": assignment}


def _envoy_cluster(name: str, port: int) -> Settings:
    return _envoy_endpoint(name, _envoy_address(port))


def _envoy_inside_cluster() -> Settings:
    raw = {
        "name": "envoy.transport_sockets.raw_buffer",
        "typed_config": {"@type": ENVOY_TYPES + "transport_sockets.raw_buffer.v3.RawBuffer"},
    }
    socket = {
        "name": "envoy.transport_sockets.internal_upstream",
        "typed_config": {
            "@type": ENVOY_TYPES + "transport_sockets.internal_upstream.v3.InternalUpstreamTransport",
            "transport_socket": raw,
        },
    }
    cluster = _envoy_endpoint("inside", {"envoy_internal_address": {"server_listener_name": "inside"}})
    return {**cluster, "transport_socket": socket}


def _envoy_leaf(ground: Ground) -> Settings:
    pair = {"certificate_chain": {"filename": str(ground.leaf)}, "private_key": {"filename": str(ground.leaf)}}
    return {
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": ENVOY_TYPES + "transport_sockets.tls.v3.DownstreamTlsContext",
            "common_tls_context": {"tls_certificates": [pair]},
        },
    }


def _envoy_verified_tls(ground: Ground) -> Settings:
    validation = {
        "trusted_ca": {"filename": str(ground.upstream_ca)},
        "match_typed_subject_alt_names": [{"san_type": "DNS", "matcher": {"exact": NAME}}],
    }
    version = {"tls_minimum_protocol_version": "TLSv1_3", "tls_maximum_protocol_version": "TLSv1_3"}
    return {
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": ENVOY_TYPES + "transport_sockets.tls.v3.UpstreamTlsContext",
            "sni": NAME,
            "common_tls_context": {"tls_params": version, "validation_context": validation},
        },
    }


MITMPROXY_ADDON = '''"""Replaces the Authorization header of every request and streams all bodies."""


class Inject:
    def load(self, loader):
        loader.add_option("bearer_file", str, "", "file with the bearer token")

    def requestheaders(self, flow):
        from mitmproxy import ctx

        flow.request.headers["Authorization"] = "Bearer " + open(ctx.options.bearer_file).read()
        flow.request.stream = True

    def responseheaders(self, flow):
        flow.response.stream = True


addons = [Inject()]
'''
