from __future__ import annotations

from pathlib import Path

import pytest

from proxy.catalog import Catalog, Provider
from proxy.catalog.load import load_provider, load_providers
from proxy.catalog.outline import outline_of, read_outline
from proxy.errors import ConfigurationError

BUILTIN = sorted(Catalog.builtin_dir().glob("*.yaml"), key=lambda path: path.stem)


@pytest.mark.parametrize("path", BUILTIN, ids=lambda path: path.stem)
def test_the_outline_of_a_built_in_file_says_what_the_whole_file_says(path: Path) -> None:
    outline, whole = read_outline(path, load_provider), outline_of(load_provider(path))
    assert (outline.name, outline.sites, outline.token_endpoints) == (whole.name, whole.sites, whole.token_endpoints)


def test_built_in_files_agree_with_each_other() -> None:
    assert [provider.name for provider in load_providers(Catalog.builtin_dir(), [])] == [path.stem for path in BUILTIN]


def test_a_file_is_read_whole_when_its_provider_is_first_wanted(tmp_path: Path) -> None:
    read: list[str] = []

    def reading(path: Path) -> Provider:
        read.append(path.stem)
        return load_provider(path)

    catalog = Catalog(read_outline(path, reading) for path in BUILTIN)
    assert not read
    first = catalog.find("slack.com", "/api/chat.postMessage")
    assert first is catalog.by_name("slack")
    assert read == ["slack"]


def test_a_file_that_was_given_other_hosts_since_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "slack.yaml"
    text = (Catalog.builtin_dir() / "slack.yaml").read_text()
    path.write_text(text)
    outline = read_outline(path, load_provider)
    path.write_text(text.replace("  - slack.com\n", "  - evil.example\n"))
    with pytest.raises(ConfigurationError, match="reload"):
        outline.whole()


def test_faults_of_a_built_in_file_are_named_at_start(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("name: broken\n")
    with pytest.raises(ConfigurationError, match="hosts"):
        Catalog.load(tmp_path)
