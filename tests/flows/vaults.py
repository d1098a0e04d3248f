"""A scripted KV v2 server (https://openbao.org/api-docs/secret/kv/kv-v2/): records, and events that hold reads back."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "s.scripted-vault-token-0123456789"


class ScriptedVault:
    """Serves `records` (path below the mount -> fields). Reads of paths in `held` wait for their event.

    Use as a context manager; `reads` lists the paths that were read.
    """

    def __init__(self, records: dict[str, dict[str, Any]]) -> None:
        self.records = records
        self.held: dict[str, threading.Event] = {}
        self.reads: list[str] = []
        self.read_arrived = threading.Semaphore(0)
        self.down = False
        vault = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                vault.answer(self)

            do_POST = do_PUT = do_LIST = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        request.rfile.read(int(request.headers.get("Content-Length") or 0))
        path = request.path.partition("?")[0]
        status, body = self._reply(request, path)
        data = json.dumps(body).encode()
        request.send_response(status)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)

    def _reply(self, request: BaseHTTPRequestHandler, path: str) -> tuple[int, dict[str, Any]]:
        if self.down:
            return 503, {"errors": ["Vault is sealed"]}
        if path.startswith("/v1/sys/"):
            return 200, {"initialized": True, "sealed": False, "standby": False, "version": "1.15.0"}
        if request.headers.get("X-Vault-Token") != TOKEN:
            return 403, {"errors": ["permission denied"]}
        if path.startswith("/v1/secret/data/"):
            return self._read(path.removeprefix("/v1/secret/data/"))
        if path.startswith("/v1/auth/token/"):
            return 200, {
                "data": {"ttl": 3600, "renewable": False, "policies": ["agents"], "expire_time": None, "id": TOKEN},
                "auth": {"client_token": TOKEN, "lease_duration": 3600, "renewable": False},
            }
        return 404, {"errors": []}

    def _read(self, path: str) -> tuple[int, dict[str, Any]]:
        self.reads.append(path)
        self.read_arrived.release()
        if event := self.held.get(path):
            event.wait(20)
        if path not in self.records:
            return 404, {"errors": []}
        metadata = {"version": 1, "created_time": "2026-01-01T00:00:00Z", "deletion_time": "", "destroyed": False}
        return 200, {"data": {"data": self.records[path], "metadata": metadata}}

    def __enter__(self) -> ScriptedVault:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
