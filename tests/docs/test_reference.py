"""Generated pages are committed, so a test says when they are out of date."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.fences import ROOT


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reference")
    subprocess.run([sys.executable, ROOT / "scripts" / "reference.py", "--to", folder], check=True)
    return folder


@pytest.mark.parametrize("page", ["cli.md", "python.md", "tables.md", "record.schema.json"])
def test_the_committed_page_is_the_generated_one(page: str, written: Path) -> None:
    committed = (ROOT / "docs" / "reference" / page).read_text(encoding="utf-8")
    assert committed == (written / page).read_text(encoding="utf-8"), "out of date: run `make docs` and commit what it wrote"
