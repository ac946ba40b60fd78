"""The page as a file: template, styles, scripts and data, with a policy that allows only these scripts.

Every script and style element is allowed by its hash, and nothing may be fetched, so a name from a result file that reached the
page as markup would still do nothing. Vega's expressions are interpreted rather than compiled (`ast: true`), so the
page works without `unsafe-eval`.
"""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import html
import json
import re
from collections.abc import Iterable
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from steelyard.report.cells import clean

Document = dict[str, Any]

VENDORED = ("vega.min.js", "vega-lite.min.js", "vega-embed.min.js")
STYLE, CHARTS, LICENCES = "style.css", "charts.js", "LICENSES.txt"
LONGEST_TITLE = 300
LEVEL = 6
LARGE = 500_000
"""Data of this many characters or more are in the page as gzip; shorter data can be read in its source."""
GZIP, JSON = "application/gzip", "application/json"
_PLACES = re.compile(r"<!--(POLICY|TITLE|STYLE|KIND|DATA|SCRIPTS)-->")
_INLINE = re.compile(r"<script>(.*?)</script>", re.DOTALL)
_MAP = re.compile(r"^//# sourceMappingURL=.*$", re.MULTILINE)
_ESCAPES = {"<": "\\u003c", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def single_page(document: Document) -> str:
    """One file that opens offline, with everything in it."""
    style, scripts = stylesheet(), tuple(programs().values())
    policy = _policy(_hashes((*_INLINE.findall(template()), *scripts)), _hashes([style]))
    tags = "\n".join(f"<script>{script}</script>" for script in scripts)
    return _filled(document, policy, f"<style>{style}</style>", tags)


def linked_page(document: Document, assets: str) -> str:
    """The same page with styles and scripts in separate files, at a URL relative to the page; works over HTTP and from a disk."""
    base = f"{assets.rstrip('/')}/" if assets else ""
    names = asset_names()
    own = "'self' file:"
    policy = _policy(f"{own} {_hashes(_INLINE.findall(template()))}".strip(), own)
    tags = "\n".join(f'<script src="{base}{names[name]}"></script>' for name in (CHARTS, *programs()))
    own_data = {name: value for name, value in document.items() if name != "charts"}
    return _filled(own_data, policy, f'<link rel="stylesheet" href="{base}{names[STYLE]}">', tags)


def data_text(document: Document) -> str:
    """JSON in ASCII, safe inside an HTML script element."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign, escape in _ESCAPES.items():
        text = text.replace(sign, escape)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def data_parts(document: Document) -> tuple[str, str]:
    """The kind and the text of a page's data: JSON, or if that is long, its gzip in base64, which browsers unpack."""
    text = data_text(document)
    return (JSON, text) if len(text) < LARGE else (GZIP, base64.b64encode(zipped(text)).decode())


def zipped(text: str) -> bytes:
    """Compressed text without a time stamp, so that the same text gives the same bytes."""
    return gzip.compress(text.encode(), LEVEL, mtime=0)


@functools.cache
def template() -> str:
    """The page's frame."""
    return _text(_folder() / "page.html")


@functools.cache
def stylesheet() -> str:
    """All styles, in the order of their files' names."""
    return "".join(_text(item) for item in _sorted(_folder(), ".css"))


@functools.cache
def programs() -> dict[str, str]:
    """Scripts by file name in the order in which they run: the chart library as published, then the page's own by name."""
    vendor = _folder() / "vendor"
    found = {name: _MAP.sub("", _text(vendor / name)).rstrip() + "\n" for name in VENDORED}
    return {**found, **{item.name: _text(item) for item in _sorted(_folder() / "js", ".js")}}


@functools.cache
def asset_files() -> dict[str, str]:
    """The files that a site's pages share, by a name that changes with the content, so that no cache serves a stale one."""
    return {asset_names()[name]: text for name, text in _shared().items()}


@functools.cache
def asset_names() -> dict[str, str]:
    """The file names that shared files have in a site."""
    return {name: LICENCES if name == LICENCES else _with_digest(name, text) for name, text in _shared().items()}


@functools.cache
def _shared() -> dict[str, str]:
    from steelyard.report.web.document import chart_specs

    charts = f"window.SteelyardCharts = {data_text(chart_specs())};\n"
    return {STYLE: stylesheet(), CHARTS: charts, **programs(), LICENCES: _text(_folder() / "vendor" / LICENCES)}


def _with_digest(name: str, text: str) -> str:
    stem, dot, suffix = name.rpartition(".")
    return f"{stem}-{hashlib.sha256(text.encode()).hexdigest()[:12]}{dot}{suffix}"


def _filled(document: Document, policy: str, style: str, scripts: str) -> str:
    """Fill each placeholder of the template once; text in the data is never taken for a placeholder."""
    title = clean(document.get("title") or "Steelyard report")[:LONGEST_TITLE]
    kind, data = data_parts(document)
    parts = {"POLICY": policy, "TITLE": html.escape(title), "STYLE": style, "KIND": kind, "DATA": data, "SCRIPTS": scripts}
    return _PLACES.sub(lambda place: parts[place[1]], template())


def _policy(scripts: str, styles: str) -> str:
    rules = {
        "default-src": "'none'", "script-src": scripts, "style-src": styles, "img-src": "data: blob:",
        "base-uri": "'none'", "form-action": "'none'",
    }  # fmt: skip
    return f'<meta http-equiv="Content-Security-Policy" content="{"; ".join(f"{rule} {value}" for rule, value in rules.items())}">'


def _hashes(texts: Iterable[str]) -> str:
    return " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in texts)


def _folder() -> Traversable:
    return resources.files("steelyard.report.web") / "assets"


def _sorted(folder: Traversable, suffix: str) -> list[Traversable]:
    return sorted((item for item in folder.iterdir() if item.name.endswith(suffix)), key=lambda item: item.name)


def _text(item: Traversable) -> str:
    return item.read_text(encoding="utf-8")
