import copy
import pickle
import re
from pathlib import Path

import pytest

from signers.secret import Secret

ROOT = Path(__file__).resolve().parents[2]

# Every file that may take a secret's value out, and why it has to. A new one is a decision, not an accident.
OUTLETS = {
    "proxy/connecting": "sends what the person's consent gave",
    "proxy/credentials": "logs in to the store, writes records and reads what a grant needs",
    "proxy/identity": "verifies with a shared key",
    "proxy/upstream/token_endpoint.py": "authenticates to the token endpoint",
    "signers": "makes the bytes for the wire",
}


def call_sites() -> list[str]:
    found = []
    for package in ("proxy", "signers", "policies"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if re.search(r"\.reveal\(\)", path.read_text()):
                found.append(str(path.relative_to(ROOT)))
    return found


def test_secrets_are_revealed_only_where_it_is_meant():
    strays = [
        site for site in call_sites() if not any(site == outlet or site.startswith(outlet + "/") for outlet in OUTLETS)
    ]
    assert strays == []
    assert all(any(site.startswith(outlet) for site in call_sites()) for outlet in OUTLETS), "an outlet nobody uses"
    assert not any(
        site.startswith(("policies/", "proxy/wire/", "proxy/responses/", "proxy/audit/")) for site in call_sites()
    )


def test_a_secret_shows_nothing_of_itself():
    secret = Secret("hunter2-hunter2")
    assert "hunter2" not in f"{secret!r} {secret!s}"
    with pytest.raises(TypeError):
        f"{secret:>20}"
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    with pytest.raises(TypeError):
        copy.deepcopy(secret)
    assert secret == Secret("hunter2-hunter2")
    assert secret != Secret("other")
    assert secret != "hunter2-hunter2"
    assert {secret: 1}[Secret("hunter2-hunter2")] == 1
    assert secret
    assert not Secret("")
    assert secret.reveal() == "hunter2-hunter2"
