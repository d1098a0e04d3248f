"""Where audit lines and spans are sent, and what is shown there."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.app_terms import shown_to
from proxy.errors import ConfigurationError
from proxy.settings import settings_from
from proxy.settings.files import file_faults

HEAD = "identity: [{kind: static, tenant: acme, agent: bot}]\n"
FORMS = {
    "tracing": "tracing: {endpoint: %s, token_file: ./t}\n",
    "audit": "audit: {sink: otlp, endpoint: %s, token_file: ./t}\n",
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize(
    ("endpoint", "message"),
    [
        ("http://collector:4318/v1/x", "sent in clear text"),
        ("http://127.0.0.1.example/v1/x", "sent in clear text"),
        ("https://user:secret@collector/v1/x", "endpoint"),
        ("collector:4318", "endpoint"),
    ],
)
def test_a_token_goes_over_tls_only_and_never_stands_in_the_url(form: str, endpoint: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as refused:
        settings_from(HEAD + form % endpoint, Path("sluicegate.yaml"))
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize(
    "endpoint",
    ["https://collector/v1/x", "http://127.0.0.1:4318/v1/x", "http://[::1]:4318/v1/x", "http://localhost/v1"],
)
def test_its_files_are_looked_at_before_it_is_used(tmp_path: Path, form: str, endpoint: str) -> None:
    settings = settings_from(HEAD + form % f'"{endpoint}"', tmp_path / "sluicegate.yaml")
    assert any(
        "does not exist" in fault.message or "cannot be read" in fault.message for fault in file_faults(settings)
    )
    (tmp_path / "t").write_text("a-token\n")
    (tmp_path / "t").chmod(0o644)
    assert any("others" in fault.message for fault in file_faults(settings))
    (tmp_path / "t").chmod(0o600)
    assert not [fault for fault in file_faults(settings) if fault.line == 2]
    ((_, collector),) = settings.collectors()
    assert shown_to(collector) == {"Authorization": "Bearer a-token"}


@pytest.mark.parametrize("content", [b"", b"two\nlines", b"\xff\xfe", b"a\x00b"])
def test_a_file_without_a_token_is_named(tmp_path: Path, content: bytes) -> None:
    settings = settings_from(HEAD + FORMS["tracing"] % "https://collector/v1/x", tmp_path / "sluicegate.yaml")
    (tmp_path / "t").write_bytes(content)
    (tmp_path / "t").chmod(0o600)
    ((_, collector),) = settings.collectors()
    with pytest.raises(ConfigurationError, match="holds no bearer token"):
        shown_to(collector)
