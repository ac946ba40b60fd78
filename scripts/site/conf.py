"""The documentation as a site: the Markdown of README, docs and so on as it stands, read by Sphinx. `make site` builds it.

Pages and their order come from navigation.toml. Files and folders of the repository that a page links to become pages
of their own, so that every link works in a folder that was copied elsewhere.
"""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util import logging

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
GROUPS: dict[str, list[str]] = tomllib.loads((HERE / "navigation.toml").read_text(encoding="utf-8"))["groups"]
PAGES = ["README.md", *(page for group in GROUPS.values() for page in group)]
LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json", ".yaml": "yaml", ".yml": "yaml", ".md": "markdown", ".sh": "bash"}
SHOWN = 200_000
"""Bytes of a file that a page shows."""

SHORT = 32
"""Letters of code that stay on one line."""

project = "Steelyard"
author = ""
html_title = "Steelyard"
root_doc = "README"
include_patterns = PAGES
exclude_patterns = [".*", "build", "src", "tests", "examples", "constraints", "dist"]
extensions = ["myst_parser"]
myst_heading_anchors = 4
suppress_warnings = ["misc.highlighting_failure"]
nitpicky = True
smartquotes = False
html_theme = "furo"
html_copy_source = False
html_show_copyright = False
html_show_sourcelink = False
html_show_search_summary = False
html_static_path = ["static"]
html_css_files = ["site.css"]
templates_path = ["templates"]

_LINK = re.compile(r"^([^#?]*)(.*)$")
_log = logging.getLogger(__name__)


def navigation(app: Sphinx, docname: str, content: list[str]) -> None:
    """The first page gets the table of contents of all others; on a git host the Markdown stays without it."""
    if docname == root_doc:
        for title, pages in GROUPS.items():
            names = "\n".join(page.removesuffix(".md") for page in pages)
            content[0] += f"\n\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{names}\n```\n"


def lead_to_files(app: Sphinx, tree: nodes.document) -> None:
    """A link to a file or folder that is no page leads to the page that shows it."""
    page = Path(app.env.doc2path(app.env.docname))
    for link in [*tree.findall(addnodes.download_reference), *tree.findall(addnodes.pending_xref)]:
        target = _LINK.match(unquote(link["reftarget"]))
        assert target is not None
        file = (page.parent / target[1]).resolve()
        if not target[1] or not file.is_relative_to(ROOT) or not file.exists() or str(file.relative_to(ROOT)) in PAGES:
            continue
        seen = PurePosixPath(file.relative_to(ROOT))
        files: set[str] = app.env.__dict__.setdefault("steelyard_files", set())
        files.add(str(seen))
        up = "../" * app.env.docname.count("/")
        link.replace_self(nodes.reference("", "", *link.children, refuri=f"{up}{address(seen)}", internal=True))


def address(path: PurePosixPath) -> str:
    """Where the page of a file or folder is in the site."""
    return f"files/{path}.html"


def mark_short_words(app: Sphinx, tree: nodes.document) -> None:
    """An option such as --trust is not broken over two lines; long code may be."""
    for word in tree.findall(nodes.literal):
        if len(word.astext()) <= SHORT:
            word["classes"].append("short")


def merge(app: Sphinx, env: Any, docnames: list[str], other: Any) -> None:
    """What another process read."""
    env.__dict__.setdefault("steelyard_files", set()).update(other.__dict__.get("steelyard_files", set()))


def file_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """A page for every file and folder that is linked to, and for what is in the folders."""
    waiting, done = sorted(app.env.__dict__.get("steelyard_files", set())), set()
    while waiting:
        path = waiting.pop()
        if path in done:
            continue
        done.add(path)
        inner = entries(ROOT / path) if (ROOT / path).is_dir() else []
        waiting += [f"{path}/{item.name}" for item in inner]
        body = listing(PurePosixPath(path), inner) if (ROOT / path).is_dir() else source(app, ROOT / path)
        yield address(PurePosixPath(path)).removesuffix(".html"), {"title": path, "body": f"<h1>{path}</h1>{body}"}, "page.html"


def entries(folder: Path) -> list[Path]:
    """What is in a folder, without what tools leave behind."""
    return sorted(item for item in folder.iterdir() if not item.name.startswith((".", "__pycache__")))


def listing(path: PurePosixPath, inner: list[Path]) -> str:
    """Links to what is in a folder."""
    rows = "".join(f'<li><a href="{path.name}/{item.name}.html">{item.name}{"/" * item.is_dir()}</a></li>' for item in inner)
    return f"<ul>{rows}</ul>"


def source(app: Sphinx, file: Path) -> str:
    """A text file with its colours; of a notebook the cells."""
    try:
        text = file.read_bytes()[:SHOWN].decode("utf-8")
    except UnicodeDecodeError:
        return "<p>Not a text file.</p>"
    if file.suffix == ".ipynb":
        return "".join(cell(app, item) for item in json.loads(text)["cells"])
    return coloured(app, text, LANGUAGES.get(file.suffix, "text"))


def cell(app: Sphinx, item: dict[str, Any]) -> str:
    """One cell of a notebook: what was written, not what came out."""
    code = item["cell_type"] == "code"
    return f'<div class="cell{"" if code else " prose"}">{coloured(app, "".join(item["source"]), "python" if code else "markdown")}</div>'


def coloured(app: Sphinx, text: str, language: str) -> str:
    """A block of code as Sphinx draws it."""
    return f'<div class="highlight">{app.builder.highlighter.highlight_block(text, language)}</div>'  # type: ignore[attr-defined]


def first_page(app: Sphinx, failed: Exception | None) -> None:
    """The README is where a reader begins, and `index.html` is what a server shows."""
    if not failed:
        shutil.copyfile(Path(app.outdir) / f"{root_doc}.html", Path(app.outdir) / "index.html")


def setup(app: Sphinx) -> dict[str, Any]:
    """Sphinx calls this."""
    app.connect("source-read", navigation)
    app.connect("doctree-read", lead_to_files, priority=100)
    app.connect("doctree-read", mark_short_words)
    app.connect("env-merge-info", merge)
    app.connect("html-collect-pages", file_pages)
    app.connect("build-finished", first_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
