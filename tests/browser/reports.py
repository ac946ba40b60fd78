"""Reports as HTML files, made the way the command makes them, for tests and for people who look at pictures of them."""

from __future__ import annotations

from pathlib import Path

from benchmarks.simulated import many_records

from steelyard.report.web.gather import Asked, gather
from steelyard.report.web.html import single_page
from steelyard.store.runs import Store
from tests.browser import made
from tests.report.nights import simulate


def write(store: Store, *refs: str, title: str = "", history: bool = True) -> Path:
    """The report that `steelyard report REF…` gives."""
    file = store.root.parent / "report.html"
    file.write_text(single_page(gather(store, Asked(refs, title=title, history=history))), encoding="utf-8")
    return file


def empty(folder: Path) -> Store:
    """A store for one report."""
    return Store(folder / "store")


def grid(folder: Path) -> Path:
    """Three models by four stacks by two modes, one run."""
    store = empty(folder)
    return write(store, made.grid(store).id, title="Stacks")


def against(folder: Path) -> Path:
    """The same against the night before: one model slower, another faster."""
    store = empty(folder)
    runs = [made.grid(store), made.grid(store, night=1, id="next", bert=1.06, resnet50=0.9)]
    return write(store, *(run.id for run in runs))


def sweep(folder: Path) -> Path:
    """One operator over its sizes."""
    store = empty(folder)
    return write(store, made.sweep(store).id)


def broken(folder: Path) -> Path:
    """One operator over its sizes, and every case failed."""
    store = empty(folder)
    return write(store, made.broken(store).id)


def nights(folder: Path) -> Path:
    """Sixty nights with a planted step, a restless stretch, one crash and one night that broke off."""
    return write(simulate(folder / "store").store, "latest~59..latest", title="Nights")


def hostile(folder: Path) -> Path:
    """Names that attack, on three nights, so that they are in a comparison and a history too."""
    store = empty(folder)
    runs = [made.hostile(store, night, f"evil{night}") for night in range(3)]
    return write(store, runs[1].id, runs[2].id, title=made.EVIL)


def many(folder: Path) -> Path:
    """So many records that no page may draw them all."""
    store = empty(folder)
    return write(store, many_records(store, 10_000, blocks=12).id, history=False)


def without_sidecar(folder: Path) -> Path:
    """The raw samples were left behind."""
    store = empty(folder)
    return write(store, made.without_sidecar(store).id)


def truncated(folder: Path) -> Path:
    """The machine went away in the middle of a line."""
    store = empty(folder)
    return write(store, made.truncated(store).id)


def from_the_future(folder: Path) -> Path:
    """Half of the lines are of a newer version."""
    store = empty(folder)
    return write(store, made.from_the_future(store).id)


def mixed_machines(folder: Path) -> Path:
    """The same cases from two machines."""
    store = empty(folder)
    return write(store, made.grid(store).id, made.elsewhere(store).id)
