"""What the documents name is there: files, tests, sections and what they link to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path.relative_to(REPOSITORY).as_posix() for path in (*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md"))
)
STANDING = ["docs/architecture.md", "docs/threat-model.md", *(page for page in PAGES if "/decisions/" in page)]
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?![a-z]+:)([^)\s]*)\)")
CODE = re.compile(r"`([^`\n]+)`")
# A path below one of our own folders, as prose names it; what holds a placeholder or a pattern is none.
OURS = re.compile(r"(?:proxy|policies|signers|providers|tests|docs|helm|benchmarks|examples)(?:/[A-Za-z0-9_.-]+)+/?")
TEST_FILE = re.compile(r"\btests/[A-Za-z0-9_./-]*test_[a-z0-9_]+\.py\b")


def prose(page: str) -> str:
    return FENCE.sub("", (REPOSITORY / page).read_text("utf-8"))


def anchors(file: Path) -> set[str]:
    """Anchors of headings as GitHub makes them, and those that are written out."""
    text = FENCE.sub("", file.read_text("utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
    return made | set(re.findall(r'<a id="([^"]+)">', text))


def leads_somewhere(page: str, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (REPOSITORY / page).parent / path if path else REPOSITORY / page
    return target.exists() and (not anchor or anchor in anchors(target))


@pytest.mark.parametrize("page", PAGES)
def test_every_internal_link_leads_somewhere(page: str) -> None:
    assert [link for link in LINK.findall(prose(page)) if not leads_somewhere(page, link)] == []


@pytest.mark.parametrize("page", STANDING)
def test_every_path_that_a_standing_document_names_exists(page: str) -> None:
    named = [text for text in CODE.findall(prose(page)) if OURS.fullmatch(text)]
    assert [path for path in named if not (REPOSITORY / path).exists()] == []


def test_every_test_file_that_a_page_names_exists() -> None:
    named = {(page, path) for page in PAGES for path in TEST_FILE.findall((REPOSITORY / page).read_text("utf-8"))}
    assert [one for one in sorted(named) if not (REPOSITORY / one[1]).is_file()] == []


def test_each_row_of_the_threat_model_names_what_shows_it() -> None:
    attackers = prose("docs/threat-model.md").split("\n## ")[2:-1]
    assert len(attackers) == 6
    rows = [row for part in attackers for row in re.findall(r"^\| .*$", part, re.MULTILINE)]
    claims = [row for row in rows if not row.endswith("| shown by |")]
    assert [row for row in claims if not TEST_FILE.search(row)] == []


def test_each_decision_says_context_decision_and_consequences_and_is_listed() -> None:
    listed = (REPOSITORY / "docs/architecture.md").read_text("utf-8")
    decisions = [page for page in PAGES if "/decisions/" in page]
    assert decisions
    for page in decisions:
        name, text = Path(page).name, prose(page)
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Context", "Decision", "Consequences"], page
        assert re.match(rf"# {name[:4]}: ", text), page
        assert f"(decisions/{name})" in listed, page
