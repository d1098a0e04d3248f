"""Published token replies at a scripted endpoint: how long their tokens are kept, what a call is told without one."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.credentials.test_issuing import START, World, bearer, line

SHARED = Path(os.environ.get("SLUICEGATE_VECTORS", Path(__file__).resolve().parents[2].parent / "shared" / "vectors"))
FILE = SHARED / "oauth-examples" / "oauthlib_token_responses.json"
OUTCOMES = {
    "json_custom_error": "down",
    "json_error": "down",
    "json_notoken": "unknown",
    "url_encoded_error": "down",
    "url_encoded_notoken": "unknown",
}


def replies() -> list[Any]:
    if not FILE.exists():
        return [pytest.param("", "", marks=pytest.mark.skip(reason="../shared/vectors/oauth-examples is not here"))]
    cases = {case["name"]: case["value"] for case in json.loads(FILE.read_text())["cases"]}
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in cases.items()}
    return [pytest.param(name, text, id=name) for name, text in texts.items() if "body" not in name]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    for bench in made.benches:
        await bench.resolver.close()


@pytest.mark.parametrize(("name", "text"), replies())
async def test_a_published_reply(world: World, name: str, text: str) -> None:
    kind = "application/x-www-form-urlencoded" if name.startswith("url_encoded") else "application/json"
    world.script.append((400 if "error" in name else 200, {"Content-Type": kind}, text.encode()))
    bench = world.process()
    if name in OUTCOMES:
        assert (await bench.refused()).code.name == "credential_unavailable"
        assert bench.results == [("", OUTCOMES[name])]
        assert (bench.record["access_token"], bench.record["refresh_token"]) == ("at-old-token-0", "rt-g-0")
        return
    assert bearer(await bench.get()) == line("2YotnFZFEjr1zCsicMWpAA")
    # Those that do not say when the token expires are believed for the documented hour; `expires_at: 4600` is over.
    assert bench.record["expires_at"] == START + 3600
    assert bench.record["refresh_token"] == "tGzv3JOkF0XG5Qx2TlKWIA"
