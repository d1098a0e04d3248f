"""The reference pages say what the code does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from proxy.audit.sink import CredentialRead
from proxy.documentation import configuration_page, errors_page, write
from proxy.errors import CODES, Blame
from proxy.model import AuditRecord
from proxy.settings import settings_from

DOCS = Path(__file__).resolve().parents[1] / "docs"


@pytest.mark.parametrize(("name", "page"), [("errors.md", errors_page), ("configuration.md", configuration_page)])
def test_a_generated_page_is_up_to_date(name: str, page):
    assert (DOCS / name).read_text("utf-8") == page(), "run: python -m proxy.documentation"


def test_writing_makes_the_folder(tmp_path: Path):
    write(tmp_path / "docs")
    assert (tmp_path / "docs" / "errors.md").exists()


def test_the_example_configuration_loads():
    (example,) = re.findall(r"```yaml\n(.*?)```", (DOCS / "configuration.md").read_text(), re.DOTALL)
    assert settings_from(example, Path("sluicegate.yaml")).route("openai", "api.openai.com").timeouts.head == 600


def test_every_code_has_its_row():
    assert all(f"| `{code}` |" in errors_page() for code in CODES)


def observability() -> str:
    return (DOCS / "observability.md").read_text("utf-8")


def test_the_example_lines_are_whole_records():
    call, read = re.findall(r"```json\n(.*?)\n```", observability(), re.DOTALL)
    for line, kind in ((call, AuditRecord), (read, CredentialRead)):
        record = msgspec.json.decode(line, type=kind)
        assert msgspec.json.encode(record).decode() == line


def test_every_field_of_an_audit_line_is_explained():
    table = observability().split("| Field |")[1].split("\n\n")[0]
    assert re.findall(r"`(\w+)`", " ".join(row.split("|")[1] for row in table.splitlines()[2:])) == list(
        AuditRecord.__struct_fields__
    )


def test_every_blame_is_explained():
    table = observability().split("| Value |")[1].split("\n\n")[0]
    assert re.findall(r"^\| `(\w+)`", table, re.MULTILINE) == list(get_args(Blame))
