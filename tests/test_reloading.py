"""What is made of files is made anew when they are replaced, however that is done."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.errors import ConfigurationError, Fault
from proxy.reloading import Reloadable, signature


class Text:
    """Stands for something made of a file; text that begins with ! is at fault."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.results: list[str] = []
        self.loads = 0
        self.meanwhile: Callable[[], None] = lambda: None
        self.value = self.load()
        seen = signature([folder])
        self.reloadable = Reloadable(
            "text", lambda: signature([folder]), self.load, self.take, seen, self.results.append
        )

    def load(self) -> str:
        self.loads += 1
        text = "|".join(path.read_text() for path in sorted(self.folder.glob("*.yaml")))
        self.meanwhile()
        if text.startswith("!"):
            raise ConfigurationError([Fault("a.yaml", 1, "is at fault")])
        return text

    def take(self, value: str) -> None:
        self.value = value


@pytest.fixture
def text(tmp_path: Path) -> Text:
    (tmp_path / "v1").mkdir()
    (tmp_path / "v1" / "a.yaml").write_text("one")
    (tmp_path / "..data").symlink_to("v1")
    folder = tmp_path / "mounted"
    folder.mkdir()
    (folder / "a.yaml").symlink_to("../..data/a.yaml")
    return Text(folder)


async def test_what_has_not_changed_is_not_read_again(text: Text):
    await text.reloadable.look()
    assert (text.loads, text.results) == (1, [])


async def test_a_file_rewritten_in_place_is_taken_up(text: Text):
    (text.folder / "a.yaml").write_text("two")
    await text.reloadable.look()
    assert (text.value, text.results) == ("two", ["ok"])


async def test_a_file_renamed_into_place_is_taken_up(text: Text, tmp_path: Path):
    (tmp_path / "new").write_text("two")
    os.replace(tmp_path / "new", text.folder / "a.yaml")
    await text.reloadable.look()
    assert text.value == "two"


async def test_a_volume_swapped_by_its_link_is_taken_up(text: Text, tmp_path: Path):
    (tmp_path / "v2").mkdir()
    (tmp_path / "v2" / "a.yaml").write_text("two")
    (tmp_path / "..new").symlink_to("v2")
    os.replace(tmp_path / "..new", tmp_path / "..data")
    await text.reloadable.look()
    assert text.value == "two"


async def test_files_added_and_removed_are_noticed(text: Text):
    (text.folder / "b.yaml").write_text("two")
    await text.reloadable.look()
    assert text.value == "one|two"
    (text.folder / "b.yaml").unlink()
    await text.reloadable.look()
    assert text.value == "one"


async def test_a_fault_keeps_the_last_good_one_and_is_told_once(text: Text):
    (text.folder / "a.yaml").write_text("!")
    await text.reloadable.look()
    await text.reloadable.look()
    assert (text.value, text.results, text.loads) == ("one", ["failed"], 2)
    assert text.reloadable.failure is not None
    assert text.reloadable.failure["faults"] == ["a.yaml:1: is at fault"]
    with pytest.raises(ConfigurationError):
        await text.reloadable.reload()
    (text.folder / "a.yaml").write_text("three")
    await text.reloadable.look()
    assert (text.value, text.reloadable.failure) == ("three", None)


async def test_a_mixture_of_old_and_new_files_is_never_taken(text: Text):
    (text.folder / "a.yaml").write_text("two")
    text.meanwhile = lambda: (text.folder / "a.yaml").write_text("three")  # type: ignore[assignment]
    await text.reloadable.look()
    assert (text.value, text.results) == ("one", [])
    text.meanwhile = lambda: None
    await text.reloadable.look()
    assert (text.value, text.results) == ("three", ["ok"])


async def test_a_folder_that_is_gone_is_a_change(text: Text, tmp_path: Path):
    before = signature([text.folder, tmp_path / "none.yaml"])
    (tmp_path / "none.yaml").write_text("x")
    assert signature([text.folder, tmp_path / "none.yaml"]) != before
    (text.folder / "a.yaml").unlink()
    text.folder.rmdir()
    assert signature([text.folder]) != before[:1]
