"""The environment of a command behind its own proxy (pure)."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from policies.policy_set import PolicySet
from proxy.catalog import Catalog
from proxy.hardening import secret_variables
from proxy.model import Caller

NO_PROXY: Final = "localhost,127.0.0.1,::1"
REPLACING: Final = (
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "DENO_CERT",
    "AWS_CA_BUNDLE",
    "CARGO_HTTP_CAINFO",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    # These two only win over `cert` in pip.conf and `cafile` in .npmrc, which win over everything above.
    "PIP_CERT",
    "npm_config_cafile",
)
"""Variables whose file takes the place of a client's own roots, so that it has to hold those too."""
ALSO_REPLACED: Final = (
    "NIX_SSL_CERT_FILE",
    "HTTPLIB2_CA_CERTS",
    "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
    "NPM_CONFIG_CAFILE",
)
"""The same where they are set already; nothing needs them otherwise."""
_OTHER_PROXIES: Final = frozenset({"all_proxy", "ftp_proxy", "grpc_proxy", "no_grpc_proxy", "npm_config_proxy"})
"""Lower-case names of variables that would lead past the proxy, or to another one."""


class TrustFiles(NamedTuple):
    """Where the command's clients find what they have to trust."""

    authority: Path
    """Our certificate and the configured roots, PEM: for clients that add them to their own."""
    bundle: Path
    """With the system's and the configured roots, PEM."""
    java: Path
    """The bundle as a PKCS 12 trust store."""
    python: Path
    """A folder for PYTHONPATH whose sitecustomize names the bundle to SDKs that read no variable."""


class Ways(NamedTuple):
    """How the command reaches its proxy."""

    proxy: str
    """HOST:PORT of the listener that wants the token."""
    base: str
    """HOST:PORT of the base-URL listener, which wants it too."""
    owned: str
    """HOST:PORT of the listener that knows the command's processes by themselves."""
    token: str


class Prepared(NamedTuple):
    """An environment, and what to tell the person who started the command."""

    variables: dict[str, str]
    removed: tuple[str, ...]
    placeholders: tuple[str, ...]


def child_environment(
    inherited: Mapping[str, str],
    ways: Ways,
    trust: TrustFiles,
    placeholders: Mapping[str, str],
    keep: Collection[str] = (),
) -> Prepared:
    """What the command is started with.

    Secret-looking variables are left out, but for those that `keep` names; `placeholders` fill in what SDKs want to
    see before they send anything.
    """
    removed = tuple(name for name in secret_variables(inherited) if name not in keep)
    variables = {
        name: value
        for name, value in inherited.items()
        if name not in removed and (name.lower() not in _OTHER_PROXIES or name in keep)
    }
    added = {name: value for name, value in placeholders.items() if name not in variables}
    variables |= added
    variables |= _proxy(ways) | _trust(trust)
    variables |= {name: str(trust.bundle) for name in ALSO_REPLACED if name in variables}
    variables["JAVA_TOOL_OPTIONS"] = " ".join(
        filter(None, [inherited.get("JAVA_TOOL_OPTIONS", ""), *java_options(ways.owned, trust.java)])
    )
    if "PYTHONPATH" not in keep:
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(trust.python), inherited.get("PYTHONPATH", "")]))
    shown = tuple(name for name in removed if name.lower() not in ("http_proxy", "https_proxy"))
    return Prepared(variables, shown, tuple(added))


def _proxy(ways: Ways) -> dict[str, str]:
    url = f"http://agent:{ways.token}@{ways.proxy}"
    return {
        **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), url),
        **dict.fromkeys(("NO_PROXY", "no_proxy"), NO_PROXY),
        "NODE_USE_ENV_PROXY": "1",
        "SLUICEGATE_BASE_URL": f"http://{ways.base}",
        "SLUICEGATE_SESSION": ways.token,
    }


def _trust(trust: TrustFiles) -> dict[str, str]:
    return {**dict.fromkeys(REPLACING, str(trust.bundle)), "NODE_EXTRA_CA_CERTS": str(trust.authority)}


def java_options(owned: str, store: Path) -> Iterable[str]:
    """System properties for a JVM, which reads neither the proxy variables nor PEM files."""
    host, _, port = owned.rpartition(":")
    for scheme in ("http", "https"):
        yield f"-D{scheme}.proxyHost={host}"
        yield f"-D{scheme}.proxyPort={port}"
    yield '-Dhttp.nonProxyHosts="localhost|127.*|[::1]"'
    yield f"-Djavax.net.ssl.trustStore={store}"
    yield "-Djavax.net.ssl.trustStoreType=PKCS12"
    yield "-Djavax.net.ssl.trustStorePassword=changeit"


def placeholders_of(policies: PolicySet, catalog: Catalog, caller: Caller) -> dict[str, str]:
    """The catalogue's `env` of every provider that an allow for this caller mentions."""
    found: dict[str, str] = {}
    for document in policies.documents:
        if document.concerns(caller.tenant, caller.agent, caller.actor, caller.traits):
            for rule in document.allows:
                provider = catalog.by_name(rule.provider) if rule.provider else None
                found |= provider.env if provider is not None else {}
    return found
