"""The site is built strictly, works from a disk, and asks the network for nothing."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.chromium import programs, tab

from tests.docs.fences import DOCS, ROOT

pytest.importorskip("sphinx", reason="make site and make test-deep install it")
pytestmark = pytest.mark.deep

_LOADED = re.compile(r"""<(?:script|img|link|iframe)\b[^>]*?\b(?:src|href)="((?:https?:)?//[^"]*)""")


def build(source: Path, site: Path) -> subprocess.CompletedProcess[str]:
    words = ["-q", "-W", "--keep-going", "-c", str(source / "scripts" / "site"), "-d", f"{site}-trees", str(source), str(site)]
    return subprocess.run([sys.executable, "-m", "sphinx", *words], capture_output=True, text=True, check=False, timeout=280)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built") / "site"
    done = build(ROOT, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_is_there_and_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert {site / page.relative_to(ROOT).with_suffix(".html") for page in DOCS} <= set(pages)
    assert [(page.name, found) for page in pages for found in _LOADED.findall(page.read_text(encoding="utf-8"))] == []
    assert not [file for file in site.rglob("*.css") if re.search(r"url\([\"']?https?:|@import", file.read_text(encoding="utf-8"))]


def test_links_of_every_page_lead_to_files_of_the_site(site: Path) -> None:
    """Of the made pages too: those of files and folders of the repository, and the first one."""
    for page in site.rglob("*.html"):
        for target in re.findall(r'href="([^"#?]+)', page.read_text(encoding="utf-8")):
            if "://" not in target and not target.startswith("data:"):
                assert (page.parent / target).exists(), f"{page.relative_to(site)} links to {target}"


def test_a_broken_link_is_an_error(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for folder in ("docs", "examples", "scripts/site", "tests/engine/referee/museum"):
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    for page in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md", "benchmarks/powercurve/README.md"):
        (source / page).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / page, source / page)
    with (source / "docs" / "tutorial.md").open("a", encoding="utf-8") as page:
        page.write("\n[nowhere](howto/no-such.md), [no heading](howto/gate.md#no-such)\n")
    done = build(source, tmp_path / "site")
    assert done.returncode != 0
    assert "'howto/no-such.md'" in done.stderr and "'no-such'" in done.stderr


@pytest.mark.skipif(programs() is None, reason="scripts/chromium.sh installs a browser")
def test_search_works_from_a_disk(site: Path, tmp_path: Path) -> None:
    with tab(tmp_path) as browser:
        browser.driver.get((site / "search.html").as_uri() + "?q=rebuild")
        browser.until("return document.querySelectorAll('#search-results li').length >= 3")
        for width in (1400, 390):
            browser.resize(width)
            browser.driver.get((site / "docs" / "howto" / "compare.html").as_uri())
            assert browser.run("return document.documentElement.scrollWidth") <= width
        assert browser.complaints() == []
