from __future__ import annotations

from pathlib import Path

from proxy.catalog.located import LocatedDocument, read_located


def read(tmp_path: Path, text: str | bytes) -> LocatedDocument:
    path = tmp_path / "x.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_located(path)


def messages(document: LocatedDocument) -> list[str]:
    return [f"{fault.line}: {fault.message}" for fault in document.faults]


def test_values_come_with_the_line_of_each_key_and_item(tmp_path: Path) -> None:
    document = read(tmp_path, "a: 1\nb:\n  - x\n  - {c: true,\n     d: 2.5}\ne: null\n")
    assert document.value == {"a": 1, "b": ["x", {"c": True, "d": 2.5}], "e": None}
    assert document.lines[("b",)] == 2
    assert document.lines[("b", 1, "c")] == 4
    assert document.lines[("b", 1, "d")] == 5
    assert document.faults == []


def test_a_fault_below_what_has_a_line_names_the_nearest_line(tmp_path: Path) -> None:
    document = read(tmp_path, "a: 1\nb: {c: 2}\n")
    assert document.fault(("b", "missing", "deep"), "m").line == 2
    assert document.fault((), "m").line == 1


def test_keys_that_stand_twice_are_faults_at_any_depth(tmp_path: Path) -> None:
    document = read(tmp_path, "a: 1\nb: {c: 2, c: 3}\na: 4\n")
    assert messages(document) == ["2: key 'c' stands here twice", "3: key 'a' stands here twice"]


def test_aliases_are_faults_and_not_unfolded(tmp_path: Path) -> None:
    document = read(tmp_path, "a: &x [1]\nb: [*x, *x]\nc: &loop [*loop]\n")
    assert messages(document)[0] == "2: aliases are not supported: write it out"
    assert len(document.faults) == 3


def test_what_is_not_yaml_is_a_fault_with_its_line(tmp_path: Path) -> None:
    assert messages(read(tmp_path, "a: 1\nb: [1\nc: 2\n"))[0].startswith("3: not YAML")
    assert messages(read(tmp_path, "a: !!python/name:os.system x\n"))[0].startswith("1: not YAML")
    assert messages(read(tmp_path, "a: 1\n---\nb: 2\n"))[0].startswith("2: not YAML")
    assert messages(read(tmp_path, b"\xff\xfe\xfa"))[0].startswith("0: cannot be read")
    assert messages(read(tmp_path, "a: !!bool maybe\n"))[0].startswith("0: not YAML")
    assert messages(read(tmp_path, "a: !!timestamp soon\n"))[0].startswith("0: not YAML")
    assert messages(read(tmp_path, "a: 2026-99-99\n"))[0].startswith("0: not YAML")


def test_a_missing_or_empty_file_does_not_raise(tmp_path: Path) -> None:
    assert read(tmp_path, "").value is None
    assert "cannot be read" in str(read_located(tmp_path / "none.yaml").faults[0])
