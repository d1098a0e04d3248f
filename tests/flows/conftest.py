"""Fixtures of the flow tests: an authority for TLS upstreams, and folders for instances of the product."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from tests.flows.product import REPOSITORY


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.timeout(90))


NewFolder = Callable[[], Path]


class Authority:
    """A certificate authority that upstreams are signed by and the product is told to trust."""

    def __init__(self) -> None:
        self._ca = trustme.CA()
        self.pem: bytes = self._ca.cert_pem.bytes()

    def context(self, *names: str, alpn: list[str] | None = None) -> ssl.SSLContext:
        """A server's context for `names` (hosts or addresses)."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._ca.issue_cert(*names).configure_cert(context)
        if alpn:
            context.set_alpn_protocols(alpn)
        return context

    def files(self, folder: Path, *names: str) -> tuple[Path, Path]:
        """Certificate and private key for `names`, for servers that read them from files."""
        issued = self._ca.issue_cert(*names)
        certificate, key = folder / "server.crt", folder / "server.key"
        certificate.write_bytes(b"".join(one.bytes() for one in issued.cert_chain_pems))
        key.write_bytes(issued.private_key_pem.bytes())
        return certificate, key


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("p")


@pytest.fixture
def new_folder(tmp_path_factory: pytest.TempPathFactory) -> NewFolder:
    return lambda: tmp_path_factory.mktemp("p")


@pytest.fixture(scope="session")
def vectors() -> Path:
    path = Path(os.environ.get("SLUICEGATE_VECTORS", REPOSITORY.parent / "shared" / "vectors"))
    if not path.is_dir():
        pytest.skip("published vectors are not here")
    return path
