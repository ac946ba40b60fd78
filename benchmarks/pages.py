"""What a large report costs: bytes and seconds to make it, seconds until it can be used in a real browser, and a site kept up to date.

The page has as many cases as one likes, with raw samples; the site as many nights.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from chromium import programs, tab
from sheet import Goal, Spread, Table, quantity, spread
from simulated import many_records, many_runs
from steelyard.report.web.document import document
from steelyard.report.web.html import single_page
from steelyard.report.web.site import build_site
from steelyard.store.runs import Store

PAGE_BYTES, USABLE, REDRAWN, REBUILT = 10e6, 1.0, 0.1, 5.0
WORDS = ("s", "so", "sof", "soft", "softm", "softma", "softmax")
_CLOCK = """
new MutationObserver((_, watch) => {
  if (document.querySelector('main')?.dataset.drawn !== 'yes') return;
  watch.disconnect();
  requestAnimationFrame(() => requestAnimationFrame(() => { window.usable = performance.now(); }));
}).observe(document, {attributes: true, subtree: true, childList: true});
"""
_KEY = """
const [word, done] = arguments;
const field = document.querySelector('main input[name=q]');
const start = performance.now();
const watch = new MutationObserver(() => {
  watch.disconnect();
  requestAnimationFrame(() => requestAnimationFrame(() => done((performance.now() - start) / 1000)));
});
watch.observe(document.querySelector('main'), {subtree: true, childList: true, characterData: true});
field.value = word;
field.dispatchEvent(new Event('input', {bubbles: true}));
"""

Part = tuple[Table, tuple[Goal, ...], dict[str, Any]]


def page(records: int, repeats: int) -> Part:
    """One self-contained page of so many records: to make, to open, to filter."""
    with tempfile.TemporaryDirectory() as folder:
        run = many_records(Store(Path(folder) / "store"), records)
        gathered = [_seconds(lambda: document([run])) for _ in range(repeats)]
        whole = document([run])
        written = [_seconds(lambda: single_page(whole)) for _ in range(repeats)]
        file = Path(folder) / "report.html"
        file.write_text(single_page(whole), encoding="utf-8")
        size = file.stat().st_size
        usable, keys = _in_browser(file.as_uri(), Path(folder), repeats)
    figures = {"document": Spread.of(gathered), "html": Spread.of(written), **({"usable": usable, "key": keys} if usable and keys else {})}
    names = {
        "document": "to gather the document",
        "html": "to write the HTML",
        "usable": "from navigation to a table that can be used",
        "key": "from a key in the filter to the table redrawn",
    }
    rows = [("HTML", quantity(size / 1e6, "MB"), quantity(PAGE_BYTES / 1e6, "MB"))]
    limits = {"usable": quantity(USABLE, "s"), "key": quantity(REDRAWN, "s")}
    rows += [(names[name], spread(figure, "s"), limits.get(name, "")) for name, figure in figures.items()]
    goals = [Goal(f"HTML of {records} records", size / 1e6, PAGE_BYTES / 1e6, "MB")]
    if usable and keys:
        goals += [Goal("page usable after navigation", usable.median, USABLE, "s"), Goal("filter redrawn", keys.median, REDRAWN, "s")]
    title = f"One page of {records} records" + ("" if usable else "; no Chromium, so it was not opened")
    found = {"records": records, "bytes": size, **{name: asdict(figure) for name, figure in figures.items()}}
    return Table(title, ("", "figure", "goal"), tuple(rows)), tuple(goals), found


def _in_browser(address: str, folder: Path, repeats: int) -> tuple[Spread | None, Spread | None]:
    """Open the page several times, each time after an empty one, and type into its filter."""
    if programs() is None:
        return None, None
    opened, keys = list[float](), list[float]()
    with tab(folder) as browser:
        browser.tell("Page.addScriptToEvaluateOnNewDocument", source=_CLOCK)
        for _ in range(repeats):
            browser.driver.get("about:blank")
            browser.driver.get(address)
            opened.append(browser.until("return window.usable") / 1000)
            keys += [browser.driver.execute_async_script(_KEY, word) for word in WORDS]
    return Spread.of(opened), Spread.of(keys)


def site(runs: int) -> Part:
    """A site of so many runs: all at once, then with one new run, then with none."""
    with tempfile.TemporaryDirectory() as folder:
        store, target = Store(Path(folder) / "store"), Path(folder) / "site"
        many_runs(store, runs)
        took = {"first build": _seconds(lambda: build_site(store, target))}
        many_runs(store, 1, first=runs)
        took["one new run"] = _seconds(lambda: build_site(store, target))
        took["nothing new"] = _seconds(lambda: build_site(store, target))
        files = [file for file in target.rglob("*") if file.is_file()]
        size = sum(file.stat().st_size for file in files)
    limits = {"one new run": REBUILT, "nothing new": REBUILT}
    rows = [(name, quantity(seconds, "s"), quantity(limits[name], "s") if name in limits else "") for name, seconds in took.items()]
    goals = tuple(Goal(f"site of {runs} runs, {name}", took[name], limit, "s") for name, limit in limits.items())
    title = f"A site of {runs} runs: {len(files)} files, {quantity(size, 'B')}"
    return Table(title, ("build", "took", "goal"), tuple(rows)), goals, {"runs": runs, "bytes": size, "files": len(files), **took}


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
