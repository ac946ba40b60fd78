"""Pictures of every page of some reports, light, dark, narrow and on paper, so that people can look at a change before others do.

    python scripts/screenshots.py FOLDER [--only REPORT] [--page NAME]… [--look light|dark|narrow|print]…
    python scripts/screenshots.py docs/pictures --docs

The reports are of made-up runs: three models by four stacks by two modes, the same against another night, sixty nights with a planted
step and a noisy stretch, an operator over its sizes, requests of text generation over batches, number formats of two points, and
the front of a site.
With `--docs` they are the few that the documentation shows: their tops, light, as small WebP files.
"""

from __future__ import annotations

import argparse
import base64
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.chromium import Tab, tab
from benchmarks.simulated import many_runs
from tests.browser import made, reports

from steelyard.report.web.site import build_site
from steelyard.store.runs import Store


def site(folder: Path) -> Path:
    """The front of a site: twenty nights, and one evening with a grid."""
    store = Store(folder / "store")
    many_runs(store, 20)
    made.grid(store, night=21)
    build_site(store, folder / "site")
    return folder / "site" / "index.html"


LOOKS: dict[str, dict[str, Any]] = {
    "light": {"width": 1400},
    "dark": {"width": 1400, "dark": True},
    "narrow": {"width": 390},
    "print": {"width": 794, "media": "print"},
}
NAMES = ("grid", "nights", "against", "sweep", "requests", "recipes")
MADE: dict[str, Callable[[Path], Path]] = {**{name: getattr(reports, name) for name in NAMES}, "site": site}
TALLEST = 12_000
PICTURES: dict[str, tuple[str, str, int]] = {
    "overview": ("grid", "overview", 960),
    "compare": ("grid", "compare", 1000),
    "case": ("grid", "weighed", 960),
    "matrix": ("grid", "matrix", 1000),
    "sweep": ("sweep", "sweep", 960),
    "history": ("nights", "history", 960),
}
"""Of the documentation: the report, the page, and how much of its height."""
WIDTH = 1200


def addresses(browser: Tab, file: Path) -> Iterator[tuple[str, str]]:
    """Every page in the navigation, and of the cases the first, one that went wrong and one with a history."""
    browser.visit(file.as_uri())
    for address in browser.run("return [...document.querySelectorAll('nav a')].map((item) => item.getAttribute('href'))"):
        yield address.removeprefix("#/").partition("?")[0], address
    chosen = browser.run(
        """const cases = Steelyard.doc.cases, changed = (Steelyard.doc.history?.series || []).find((item) => item.changes.length);
        return [cases[0]?.id, cases.find((item) => item.status === 'wrong')?.id, changed?.case].filter(Boolean)"""
    )
    for number, id in enumerate(dict.fromkeys(chosen), 1):
        yield f"case{number}", browser.run("return Steelyard.caseHref(arguments[0])", id)


def picture(browser: Tab, file: Path, tallest: int = TALLEST) -> None:
    """The page from its top on; the file's suffix is its format."""
    height = min(browser.run("return document.documentElement.scrollHeight"), tallest)
    size = {"x": 0, "y": 0, "width": browser.run("return document.documentElement.clientWidth"), "height": height, "scale": 1}
    kind: dict[str, Any] = {"format": "webp", "quality": 82} if file.suffix == ".webp" else {"format": "png"}
    taken = browser.tell("Page.captureScreenshot", captureBeyondViewport=True, clip=size, **kind)
    file.write_bytes(base64.b64decode(taken["data"]))
    print(file)


def of_docs(browser: Tab, folder: Path, made: Path) -> None:
    """The pictures that the documentation shows."""
    browser.resize(WIDTH)
    browser.appear()
    for report in dict.fromkeys(report for report, _, _ in PICTURES.values()):
        file = MADE[report](made / report)
        found = dict(addresses(browser, file))
        found["weighed"] = browser.run(
            "const id = Steelyard.doc.cases.find((item) => item.id.includes('/compile:'))?.id; return id && Steelyard.caseHref(id)"
        )
        for name, (_, page, height) in ((name, asked) for name, asked in PICTURES.items() if asked[0] == report):
            browser.driver.get("about:blank")
            browser.visit(file.as_uri() + found[page])
            picture(browser, folder / f"{name}.webp", height)


def main() -> None:
    """Make the reports, open each page in each look, and keep what is seen."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the PNG files go")
    parser.add_argument("--docs", action="store_true", help="those of the documentation alone")
    parser.add_argument("--only", choices=MADE, help="one of the reports")
    parser.add_argument("--page", action="append", help="only this page (may be repeated)")
    parser.add_argument("--look", action="append", choices=LOOKS, help="only this look (may be repeated)")
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, tab(Path(folder)) as browser:
        if chosen.docs:
            of_docs(browser, chosen.folder, Path(folder))
            return
        for name in [chosen.only] if chosen.only else list(MADE):
            file = MADE[name](Path(folder) / name)
            for page, address in list(addresses(browser, file)):
                if chosen.page and page not in chosen.page:
                    continue
                for look in chosen.look or LOOKS:
                    how = LOOKS[look]
                    browser.resize(how["width"])
                    browser.appear(dark=how.get("dark", False), media=how.get("media", ""))
                    browser.driver.get("about:blank")
                    browser.visit(file.as_uri() + address)
                    picture(browser, chosen.folder / f"{name}-{page}-{look}.png")
            for said in browser.complaints():
                print(f"warning: {name}: {said}", file=sys.stderr)


if __name__ == "__main__":
    main()
