"""A real OpenBao behind something that counts: every request is kept, then passed on as it came."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import requests

from tests.credentials.stores.scripted_vault import Request, ScriptedVault, scripted_vault
from tests.openbao import OpenBao

PASSED = ("x-vault-token", "x-vault-namespace", "sluicegate-call-id")


@contextmanager
def counting(bao: OpenBao) -> Iterator[ScriptedVault]:
    with requests.Session() as session, scripted_vault(lambda request: _forwarded(session, bao, request)) as front:
        yield front


def _forwarded(session: requests.Session, bao: OpenBao, request: Request) -> bytes:
    headers = {name: request.headers[name] for name in PASSED if name in request.headers}
    try:
        answer = session.request(
            request.method, bao.address + request.path, json=request.body, headers=headers, timeout=10
        )
    except requests.RequestException:
        return b""
    head = f"HTTP/1.1 {answer.status_code} Forwarded\r\nContent-Length: {len(answer.content)}\r\n"
    return f"{head}Content-Type: application/json\r\n\r\n".encode() + answer.content
