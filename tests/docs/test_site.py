"""The docs as a site and as a folder: short guides, every page in the navigation, and pictures that a script can draw again."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from tests.docs.fences import DOCS, ROOT

LONGEST = 150
GUIDES = [page for page in DOCS if page.parent.name != "reference" and page.name != "README.md"]
PICTURES = ROOT / "docs" / "pictures"
SMALL = 600_000


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", GUIDES, ids=name)
def test_a_guide_is_short(page: Path) -> None:
    assert len(page.read_text(encoding="utf-8").splitlines()) <= LONGEST, "move what is looked up to docs/reference, or split it by task"


def test_every_page_is_in_the_navigation_once() -> None:
    groups = tomllib.loads((ROOT / "scripts" / "site" / "navigation.toml").read_text(encoding="utf-8"))["groups"]
    there = Counter(page for pages in groups.values() for page in pages)
    assert set(there.values()) == {1}
    assert set(map(name, DOCS)) <= set(there)
    assert all((ROOT / page).is_file() for page in there)


def test_every_page_is_in_the_table_of_contents() -> None:
    text = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    assert [page for page in map(name, DOCS) if f"({page.removeprefix('docs/')}" not in text and page != "docs/README.md"] == []


def test_pictures_are_shown_small_and_drawn_by_the_script() -> None:
    script = ast.parse((ROOT / "scripts" / "screenshots.py").read_text(encoding="utf-8"))
    drawn = next(node.value for node in script.body if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "PICTURES")
    assert drawn is not None
    files = sorted(PICTURES.iterdir())
    assert [file.name for file in files] == sorted(f"{key}.webp" for key in ast.literal_eval(drawn))
    assert sum(file.stat().st_size for file in files) < SMALL
    text = "".join(page.read_text(encoding="utf-8") for page in DOCS)
    assert [file.name for file in files if f"pictures/{file.name})" not in text] == []
