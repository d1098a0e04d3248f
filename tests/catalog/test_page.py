from __future__ import annotations

from pathlib import Path

import yaml

from proxy.catalog import Catalog
from proxy.catalog.page import providers_page
from signers.placement import prepare
from signers.secret import Secret

DOCS = Path(__file__).resolve().parents[2] / "docs"


def fenced(page: str, language: str) -> list[str]:
    blocks = page.split(f"```{language}\n")[1:]
    return [block.split("```", 1)[0] for block in blocks]


def test_the_committed_page_is_the_generated_one() -> None:
    generated = providers_page(Catalog.load(Catalog.builtin_dir()).providers.values())
    assert (DOCS / "providers.md").read_text("utf-8") == generated, (
        "run: python -m proxy.catalog.page > docs/providers.md"
    )


def test_the_guides_example_adds_a_provider_by_one_file(tmp_path: Path) -> None:
    text = next(
        block for block in fenced((DOCS / "adding-a-provider.md").read_text("utf-8"), "yaml") if "title:" in block
    )
    (tmp_path / f"{yaml.safe_load(text)['name']}.yaml").write_text(text)
    catalog = Catalog.load(Catalog.builtin_dir(), [tmp_path])

    added = catalog.find("api.acme-crm.example", "/v2/contacts/7")
    assert added is not None
    assert added is catalog.by_name("acme-crm")
    assert getattr(added.operation("GET", "/v2/contacts/7"), "name", None) == "contacts.get"
    assert getattr(added.operation("POST", "/v2/contacts/search"), "write", None) is False
    assert getattr(added.operation("GET", "/v2/files/a/b"), "name", None) == "files.get"
    assert added.hosts_for({"account": "northwind"}) == {"api.acme-crm.example", "northwind.acme-crm.example"}

    injection = prepare("api_key", {"value": Secret("k-1")}, added.placement_for("api_key"), added.positions)
    assert injection.lines == b"X-Acme-Key: k-1\r\n"
    assert injection.clears == {b"authorization", b"x-acme-key"}
    assert injection.query_clears == {"api_key"}
    assert "acme-crm" in providers_page([added])


def test_the_guide_explains_every_key_of_a_provider_file() -> None:
    guide = (DOCS / "adding-a-provider.md").read_text("utf-8")
    keys = next(block for block in fenced(guide, "yaml") if "title:" in block)
    assert all(f"`{key}`" in guide for key in yaml.safe_load(keys))
