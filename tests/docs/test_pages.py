"""The docs are held to the code: every command in them is run, every link leads somewhere."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.fences import LINKED, PAGES, ROOT, commands, fences

BUDGET = ["--budget", "10ms"]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a reader of the docs works: beside the examples, with one store."""
    here = tmp_path_factory.mktemp("reader") / "examples"
    shutil.copytree(ROOT / "examples", here)
    (here / ".steelyard").mkdir()
    return here


def quickly(words: list[str]) -> list[str]:
    """The same command, with the smallest budget where it measures."""
    if words[:2] != ["steelyard", "run"] or "--dry-run" in words:
        return words
    end = words.index("--") if "--" in words else len(words)
    return [*words[:end], *BUDGET, *words[end:]]


def execute(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    program = [sys.executable] if words[0] == "python" else [sys.executable, "-m", "steelyard"]
    return subprocess.run(
        [*program, *words[1:]], cwd=folder, capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL
    )


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


LONG = (
    "operators-from-configuration.md", "xla-and-matrices.md", "experiments.md", "collectives.md", "check.md", "own-workload.md",
    "two-checkouts.md", "tutorial.md", "compare.md", "nightly.md", "models.md", "coming-from-torchao.md",
)  # fmt: skip
"""Pages whose commands together take longer than every commit should wait."""
TYPED = [page for page in PAGES if any(commands(fence) for fence in fences(page))]


@pytest.mark.parametrize("page", [pytest.param(page, marks=pytest.mark.deep if page.name in LONG else ()) for page in TYPED], ids=name)
def test_every_command_does_what_the_page_says(page: Path, folder: Path) -> None:
    for fence in fences(page):
        for words in commands(fence):
            if words[0] in ("steelyard", "python"):
                done = execute(quickly(words), folder)
                said = f"{name(page)}: {shlex.join(words)}\nexit code {done.returncode}\n{done.stdout}{done.stderr}"
                assert done.returncode in expected(words, fence.exit_code), said


def expected(words: list[str], documented: int) -> tuple[int, ...]:
    """The documented exit code; a strict doctor may also find the machine unfit, which is not the page's fault."""
    return (documented, 3) if words[:3] == ["steelyard", "doctor", "--strict"] else (documented,)


def test_the_pages_hold_commands_to_run() -> None:
    typed = [words for page in PAGES for fence in fences(page) for words in commands(fence)]
    assert sum(words[0] == "steelyard" for words in typed) >= 40


@pytest.mark.parametrize("page", LINKED, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        found = (page.parent / file).resolve() if file else page
        assert found.exists(), f"{name(page)} links to {target}"
        if anchor:
            assert anchor in anchors(found), f"{name(page)} links to {target}, which has {sorted(anchors(found))}"


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as Markdown viewers make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_python_blocks_are_python(page: Path) -> None:
    for fence in fences(page):
        if fence.language == "python":
            compile(fence.text, name(page), "exec")


@pytest.mark.torch
def test_the_workload_in_the_readme_runs(folder: Path) -> None:
    block = next(fence for fence in fences(ROOT / "README.md") if "@workload" in fence.text)
    (folder / "from_readme.py").write_text(block.text, encoding="utf-8")
    done = execute(["steelyard", "run", "from_readme.py", "-V", "eager,shifted", "-a", "n=256", *BUDGET], folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 ok" in done.stdout
