"""Pictures of every page of some reports, light, dark, narrow and on paper, so that people can look at a change before others do.

    python scripts/screenshots.py FOLDER [--only REPORT] [--page NAME]… [--look light|dark|narrow|print]…

The reports are of made-up runs: three models by four stacks by two modes, the same against another night, sixty nights with a planted
step and a noisy stretch, an operator over its sizes, requests of text generation over batches, and number formats of two points.
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
from tests.browser import reports

LOOKS: dict[str, dict[str, Any]] = {
    "light": {"width": 1400},
    "dark": {"width": 1400, "dark": True},
    "narrow": {"width": 390},
    "print": {"width": 794, "media": "print"},
}
NAMES = ("grid", "nights", "against", "sweep", "requests", "recipes")
MADE: dict[str, Callable[[Path], Path]] = {name: getattr(reports, name) for name in NAMES}
TALLEST = 12_000


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


def picture(browser: Tab, file: Path) -> None:
    """The whole page, however long."""
    height = min(browser.run("return document.documentElement.scrollHeight"), TALLEST)
    size = {"x": 0, "y": 0, "width": browser.run("return document.documentElement.clientWidth"), "height": height, "scale": 1}
    taken = browser.tell("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=size)
    file.write_bytes(base64.b64decode(taken["data"]))


def main() -> None:
    """Make the reports, open each page in each look, and keep what is seen."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the PNG files go")
    parser.add_argument("--only", choices=MADE, help="one of the reports")
    parser.add_argument("--page", action="append", help="only this page (may be repeated)")
    parser.add_argument("--look", action="append", choices=LOOKS, help="only this look (may be repeated)")
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, tab(Path(folder)) as browser:
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
                    target = chosen.folder / f"{name}-{page}-{look}.png"
                    picture(browser, target)
                    print(target)
            for said in browser.complaints():
                print(f"warning: {name}: {said}", file=sys.stderr)


if __name__ == "__main__":
    main()
