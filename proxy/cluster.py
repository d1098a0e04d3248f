"""The Kubernetes API, as far as the product asks it anything: one request at a time, with the pod's own token.

https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    import aiohttp

ACCOUNT_DIR: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SECONDS: Final = 10.0
LARGEST: Final = 4 * 1024 * 1024


class ClusterError(Exception):
    """The API did not do what was asked. `status` is its answer's, 0 without one; `args[0]` says what was asked."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


def address_in(environment: Mapping[str, str]) -> str:
    """The API's base URL as a pod is told it."""
    host = environment.get("KUBERNETES_SERVICE_HOST", "kubernetes.default.svc")
    shown = f"[{host}]" if ":" in host else host
    return f"https://{shown}:{environment.get('KUBERNETES_SERVICE_PORT', '443')}"


class Cluster:
    """One API server. The token is read for each request: kubelet replaces it."""

    def __init__(
        self, address: str, token_file: Path = ACCOUNT_DIR / "token", ca_file: Path = ACCOUNT_DIR / "ca.crt"
    ) -> None:
        self._address = address.rstrip("/")
        self._token_file = token_file
        self._ca_file = ca_file

    async def request(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json"
    ) -> dict[str, Any]:
        """The answer's object. Raises ClusterError for anything but a 2xx with JSON."""
        import aiohttp

        what = f"{method} {path}"
        try:
            headers = {"Authorization": f"Bearer {self._token_file.read_text().strip()}", "Content-Type": content_type}
            context = ssl.create_default_context(cafile=str(self._ca_file))
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=SECONDS), trust_env=False) as session,
                session.request(
                    method,
                    f"{self._address}{path}",
                    data=None if body is None else msgspec.json.encode(body),
                    headers=headers,
                    ssl=context,
                    allow_redirects=False,
                ) as reply,
            ):
                content = await _whole(reply, what)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ClusterError(f"{what}: {type(error).__name__}") from None
        if not 200 <= reply.status < 300:
            raise ClusterError(f"{what} was answered {reply.status}", reply.status)
        try:
            return msgspec.json.decode(content, type=dict[str, Any])
        except msgspec.MsgspecError:
            raise ClusterError(f"{what} was answered with something that is no JSON object", reply.status) from None


async def _whole(reply: aiohttp.ClientResponse, what: str) -> bytes:
    """The body, which may come in many pieces. Raises ClusterError for one that is larger than LARGEST."""
    body = bytearray()
    async for piece in reply.content.iter_any():
        body += piece
        if len(body) > LARGEST:
            raise ClusterError(f"{what} was answered with more than {LARGEST} bytes", reply.status)
    return bytes(body)
