"""Reads the code blocks of a Markdown page, and the marks that say how to test them."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = sorted(ROOT.glob("docs/**/*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS]
LINKED = [*PAGES, ROOT / "CHANGELOG.md", *sorted(ROOT.glob("benchmarks/**/*.md")), *sorted(ROOT.glob("examples/**/*.md"))]
"""Pages whose links are followed; commands are run of `PAGES` alone."""

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"<!--\s*(no-test|exit):\s*(.+?)\s*-->\s*\Z")


@dataclass(frozen=True)
class Fence:
    """One code block: its language, its text, and the mark that stands before it."""

    language: str
    text: str
    skip: str = ""
    exit_code: int = 0


def fences(page: Path) -> list[Fence]:
    """Every code block of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        mark = _MARK.search(text, 0, match.start())
        kind, value = (mark[1], mark[2]) if mark else ("", "")
        found.append(Fence(match[1], match[2], value if kind == "no-test" else "", int(value) if kind == "exit" else 0))
    return found


def commands(fence: Fence) -> list[list[str]]:
    """What a reader would type: lines after `$ ` in a console block, every line in a bash block; as words, without redirection."""
    if fence.language not in ("console", "bash") or fence.skip:
        return []
    typed = fence.text.replace("\\\n", " ").splitlines()
    if fence.language == "console":
        typed = [line.removeprefix("$ ") for line in typed if line.startswith("$ ")]
    words = [shlex.split(line, comments=True) for line in typed]
    return [line[: line.index(">")] if ">" in line else line for line in words if line]
