"""Reports as HTML files, made the way the command makes them, for tests and for people who look at pictures of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.simulated import many_records

from steelyard.report.web.gather import ReportRequest, gather
from steelyard.report.web.html import single_page
from steelyard.store.runs import Run, Store
from tests.browser import made
from tests.report.generated import generated
from tests.report.nights import simulate
from tests.report.one_run import one_run


def write(store: Store, *refs: str, title: str = "", history: bool = True) -> Path:
    """The report that `steelyard report REF…` gives."""
    file = store.root.parent / "report.html"
    file.write_text(single_page(gather(store, ReportRequest(refs, title=title, history=history))), encoding="utf-8")
    return file


def of(folder: Path, *makers: Callable[[Store], Run], **more: Any) -> Path:
    """The report of runs that a store of its own is given, one after the other."""
    store = Store(folder / "store")
    return write(store, *[make(store).id for make in makers], **more)


def grid(folder: Path) -> Path:
    """Three models by four stacks by two modes, one run."""
    return of(folder, made.grid, title="Stacks")


def against(folder: Path) -> Path:
    """The same against the night before: one model slower, another faster."""
    return of(folder, made.grid, partial(made.grid, night=1, id="next", bert=1.06, resnet50=0.9))


def sweep(folder: Path) -> Path:
    """One operator over its sizes."""
    return of(folder, made.sweep)


def broken(folder: Path) -> Path:
    """One operator over its sizes, and every case failed."""
    return of(folder, made.broken)


def nights(folder: Path) -> Path:
    """Sixty nights with a planted step, a restless stretch, one crash and one night that broke off."""
    return write(simulate(folder / "store").store, "latest~59..latest", title="Nights")


def hostile(folder: Path) -> Path:
    """Names that attack, on three nights, so that they are in a comparison and a history too."""
    store = Store(folder / "store")
    runs = [made.hostile(store, night, f"evil{night}") for night in range(3)]
    return write(store, runs[1].id, runs[2].id, title=made.EVIL)


def requests(folder: Path) -> Path:
    """Text generation on a virtual clock: three variants and two batches."""
    return write(generated(folder / "store"), "latest")


def many(folder: Path) -> Path:
    """So many records that no page may draw them all."""
    return of(folder, partial(many_records, number=10_000, blocks=12), history=False)


def without_sidecar(folder: Path) -> Path:
    """The raw samples were left behind."""
    return of(folder, made.without_sidecar)


def truncated(folder: Path) -> Path:
    """The machine went away in the middle of a line."""
    return of(folder, made.truncated)


def from_the_future(folder: Path) -> Path:
    """Half of the lines are of a newer version."""
    return of(folder, made.from_the_future)


def recipes(folder: Path) -> Path:
    """Number formats of two points, with what is unclear, wrong and not applied."""
    return of(folder, made.recipes)


def one(folder: Path) -> Path:
    """Every kind of verdict once."""
    return of(folder, one_run)


def mixed_machines(folder: Path) -> Path:
    """The same cases from two machines."""
    return of(folder, made.grid, made.elsewhere)
