"""A site of all runs of a store: a front page with their history, and a page for each run; only changed files are written.

DIR/index.html           all runs, and all series
    runs/NAME.html       one run, compared with the previous one of the same experiment and machine
    runs/NAME/           its attachments
    assets/              styles and scripts, shared by all pages, named by their content
    site.json            what each page was made from, so that the next build writes only what has changed

A page is made from its run, the runs before it and the program; if none of them changed, it is not written again. Files that the
site did not write are never touched.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from steelyard.analyze.compare import Comparison, RunsSide, compare, usual_metrics
from steelyard.analyze.history import History, Point, histories
from steelyard.codec.known import load_known
from steelyard.errors import SteelyardError, StoreError, UsageError, told
from steelyard.model.record import BAD
from steelyard.report.web import html
from steelyard.report.web.document import document
from steelyard.report.web.over_time import slower_since
from steelyard.report.web.place import SiteFolder
from steelyard.store.disk import locked
from steelyard.store.index import Entry, Index
from steelyard.store.runs import Run, RunInfo, Store, read_run
from steelyard.version import __version__

Document = dict[str, Any]

FRONT, PAGES, ASSETS, MANIFEST = "index.html", "runs", "assets", "site.json"
FORMAT = "steelyard-site/1"
LOOK_BACK = 30
"""How many earlier runs a run's page shows as history; the front page shows all."""
SAMPLES = 20_000
HELD = 8
MOST_TOLD = 3
SAVED_AFTER = 50
PACKAGES = ("report", "analyze", "model", "store")
UNKNOWN: dict[str, Any] = {"key": "", "name": "unknown machine", "facts": []}


@dataclass(frozen=True)
class Built:
    """What a build did: how many runs the site has, which files are new, how many pages did not change, which files were removed."""

    folder: Path
    runs: int = 0
    written: list[str] = field(default_factory=list)
    kept: int = 0
    removed: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


class SitePage(msgspec.Struct):
    """A page that exists: a digest of what it was made from, its files, and what the front page says about its run."""

    key: str
    files: list[str]
    row: dict[str, Any]
    machine: dict[str, Any]


class Manifest(msgspec.Struct):
    """What a build leaves for the next; `front` is the front page's digest, `commit_url` where commits are shown."""

    format: str = FORMAT
    version: str = __version__
    front: str = ""
    commit_url: str = ""
    assets: list[str] = []
    runs: dict[str, SitePage] = {}

    @property
    def files(self) -> set[str]:
        """Every file that the site consists of, besides the front page and this list."""
        return {*self.assets, *(file for entry in self.runs.values() for file in entry.files)}

    @classmethod
    def read(cls, text: str) -> Manifest:
        """Read the manifest of an earlier build; if it is damaged, everything is written again."""
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.MsgspecError:
            return cls()


@dataclass(frozen=True)
class SiteRun:
    """A run as the site knows it: its page, what the page depends on, and the runs before it, nearest last."""

    info: RunInfo
    name: str
    stamp: list[list[int]]
    before: tuple[SiteRun, ...] = ()

    @property
    def folder(self) -> str:
        return self.info.path.name

    @property
    def page(self) -> str:
        return f"{PAGES}/{self.name}.html"


def build_site(store: Store, folder: Path, *, title: str = "", commit_url: str = "") -> Built:
    """Bring a site up to date with a store; with nothing changed, nothing is written. Without `commit_url` it keeps the one it has."""
    infos = store.runs()[::-1]
    for info in infos:
        store.at_hand(info.path)
    if not infos:
        raise UsageError("there is nothing to show", why=f"no runs in {store.place}", do="measure something first: steelyard run")
    place = SiteFolder(Path(folder))
    if place.folder.resolve().is_relative_to(store.folder.resolve()):
        raise UsageError(
            f"{str(folder)!r} cannot be a site", why="it is in the folder of runs and would be taken for a run", do="name another folder"
        )
    place.claim(MANIFEST, FORMAT)
    with locked(place.folder):
        return _Build(store, place, title, commit_url).run(infos)


class _Build:
    """One build of a site, with its manifests before and after."""

    def __init__(self, store: Store, place: SiteFolder, title: str, commit_url: str) -> None:
        self.store, self.place, self.title = store, place, title
        self.before = Manifest.read(place.text(MANIFEST))
        self.commit_url = commit_url or self.before.commit_url
        self.now = Manifest(front=self.before.front, commit_url=self.commit_url, assets=[f"{ASSETS}/{name}" for name in html.asset_files()])
        self.warnings: list[str] = []
        self.kept = 0
        self._entries: dict[str, dict[str, Entry]] | None = None
        self._held: dict[Path, Run] = {}

    def run(self, infos: Sequence[RunInfo]) -> Built:
        """Write all pages, oldest first, then the front page, then remove files no longer needed."""
        self.place.tidy()
        for name, text in html.asset_files().items():
            if not self.place.has(f"{ASSETS}/{name}"):
                self.place.write(f"{ASSETS}/{name}", text.encode())
        leaves = _leaves(infos)
        try:
            for number, leaf in enumerate(leaves, 1):
                self.now.runs[leaf.folder] = self._leaf(leaf, self.before.runs.get(leaf.folder))
                if number % SAVED_AFTER == 0 and self.place.written:
                    self._save_half()
            self._front(leaves)
        except BaseException:
            self._save_half()
            raise
        removed = self.place.remove(self.before.files - self.now.files)
        self._save(self.now)
        return Built(self.place.folder, len(leaves), sorted(set(self.place.written)), self.kept, removed, self.warnings)

    def _save_half(self) -> None:
        """Save what is done so far, so that a later build need not repeat it if this one is killed."""
        assets = sorted({*self.before.assets, *self.now.assets})
        self._save(Manifest(front="", commit_url=self.commit_url, assets=assets, runs={**self.before.runs, **self.now.runs}))

    def _leaf(self, leaf: SiteRun, known: SitePage | None) -> SitePage:
        key = _digest([generator(), self.commit_url, leaf.stamp, [[other.folder, other.stamp] for other in leaf.before]])
        if known and known.key == key and all(self.place.has(file) for file in known.files):
            self.kept += 1
            return known
        try:
            made, files = self._document(leaf)
        except StoreError as error:
            made, files = _unreadable(leaf, error), []
        self.place.write(
            leaf.page, html.linked_page({**made, "front": f"../{FRONT}", "commit_url": self.commit_url}, f"../{ASSETS}").encode()
        )
        row = {**made["runs"][-1], "href": leaf.page}
        return SitePage(key, [leaf.page, *files], row, made["machines"][row["machine"]])

    def _document(self, leaf: SiteRun) -> tuple[Document, list[str]]:
        run = self._read(leaf.info.path)
        base = self._base(leaf)
        against = _compared(base, RunsSide(run.id, (run,))) if base else None
        made = document([run], base=base if against else None, series=self._series(leaf, run), comparison=against, samples=SAMPLES)
        return made, self._attach(made, run, leaf)

    def _read(self, folder: Path) -> Run:
        """Read a run; the last few stay in memory, because the next page is compared with them."""
        if folder not in self._held:
            self._held[folder] = read_run(folder)
            if len(self._held) > HELD:
                self._held.pop(next(iter(self._held)))
        return self._held[folder]

    def _base(self, leaf: SiteRun) -> RunsSide | None:
        if not leaf.before:
            return None
        try:
            run = self._read(leaf.before[-1].info.path)
        except StoreError:
            return None
        return RunsSide(run.id, (run,))

    def _series(self, leaf: SiteRun, run: Run) -> dict[str, History]:
        """The cases of a run over the runs before it; changes of level are on the front page, which has the later runs too."""
        entries = self._by_folder()
        found: dict[str, History] = {}
        for case in dict.fromkeys(record.id for record in run.records):
            near = [(entries.get(other.folder, {}).get(case), self.now.runs.get(other.folder)) for other in (*leaf.before, leaf)]
            points = [_point(entry, page.row if page else {}) for entry, page in near if entry and entry.status == "ok" and entry.time]
            if len(points) > 1:
                found[case] = History(case, leaf.info.machine_key, points)
        return found

    def _by_folder(self) -> dict[str, dict[str, Entry]]:
        if self._entries is None:
            self._entries = {}
            with Index(self.store) as index:
                index.refresh()
                for series in index.every_series().values():
                    for entry in series:
                        self._entries.setdefault(entry.folder, {})[entry.case_id] = entry
        return self._entries

    def _attach(self, made: Document, run: Run, leaf: SiteRun) -> list[str]:
        """Copy the run's attachments next to its page and link to them."""
        copied: dict[str, str] = {}
        items = {item.path: item for record in run.records for item in record.attachments}
        for case in made["cases"]:
            for link in case["attachments"]:
                item = items.get(link["path"])
                if item and item.path not in copied:
                    copied[item.path] = self.place.copy(run, item, f"{PAGES}/{leaf.name}", copied.values(), self.warnings)
                if name := copied.get(link["path"]):
                    link["href"] = quote(f"{leaf.name}/{name}")
        return [f"{PAGES}/{leaf.name}/{name}" for name in copied.values() if name]

    def _front(self, leaves: Sequence[SiteRun]) -> None:
        entries = [self.now.runs[leaf.folder] for leaf in leaves]
        known = load_known(self.store.root)
        key = _digest([self.title, self.commit_url, generator(), [entry.key for entry in entries], [asdict(item) for item in known]])
        if self.before.front == key and self.place.has(FRONT):
            return
        bad = [leaf.info.id for leaf in leaves if not leaf.info.readable]
        warnings = [f"{len(bad)} of {len(leaves)} runs cannot be read: {', '.join(bad[:8])}{' …' if len(bad) > 8 else ''}"] if bad else []
        series = {name: found for name, found in histories(self.store, everywhere=True).items() if len(found.points) > 1}
        made = document(
            [],
            series=series,
            title=self.title or f"{len(leaves)} runs",
            samples=0,
            warnings=warnings,
            known=known,
            commit_url=self.commit_url,
        )
        if not slower_since(series, known):
            made["banner"] = _quiet(leaves, series)
        if bad_now := _not_right(leaves, self.now.runs):
            made["banner"] = {**made["banner"], "tone": "bad", "text": f"{made['banner']['text'].rstrip('.')}. {bad_now}"}
        self.place.write(FRONT, html.linked_page(_listing(made, entries), ASSETS).encode())
        self.now.front = key

    def _save(self, manifest: Manifest) -> None:
        text = msgspec.json.encode(manifest)
        if self.place.text(MANIFEST).encode() != text:
            self.place.write(MANIFEST, text)


def _quiet(leaves: Sequence[SiteRun], series: Mapping[str, History]) -> dict[str, str]:
    """The headline if nothing is slower than before."""
    count = f"{len(leaves)} run{'' if len(leaves) == 1 else 's'}"
    if not series:
        return {"tone": "none", "text": f"{count}; no case was measured in more than one of them."}
    return {"tone": "good", "text": f"{count}, {len(series)} series; none is at a slower level than before."}


def _not_right(leaves: Sequence[SiteRun], pages: Mapping[str, SitePage]) -> str:
    """What is wrong or failed in the newest run of each experiment; empty if nothing is."""
    newest = {(leaf.info.experiment, leaf.info.machine_key): leaf for leaf in leaves}
    lines = []
    for leaf in sorted(newest.values(), key=lambda leaf: leaf.info.created, reverse=True):
        counts = pages[leaf.folder].row["counts"]
        words = [f"{counts[status]} {status.replace('_', ' ')}" for status in BAD if counts.get(status)]
        lines += [f"{', '.join(words)} in {leaf.info.id}"] if words else []
    rest = f" and {len(lines) - MOST_TOLD} more" if len(lines) > MOST_TOLD else ""
    return f"Newest runs: {'; '.join(lines[:MOST_TOLD])}{rest}." if lines else ""


def _listing(made: Document, entries: Sequence[SitePage]) -> Document:
    """The document of the front page, with every run as on its own page."""
    cards = {entry.machine["key"]: entry.machine for entry in entries}
    machines = [cards.get(card["key"], card) for card in made["machines"]]
    machines += [card for key, card in cards.items() if key not in {shown["key"] for shown in machines}]
    places = {card["key"]: place for place, card in enumerate(machines)}
    return {**made, "machines": machines, "runs": [{**entry.row, "machine": places[entry.machine["key"]]} for entry in entries]}


def _leaves(infos: Sequence[RunInfo]) -> list[SiteRun]:
    """Runs in order of time, each with those before it of the same experiment and machine."""
    lines: dict[tuple[str, str], list[SiteRun]] = {}
    found = []
    for info in infos:
        line = lines.setdefault((info.experiment, info.machine_key), [])
        leaf = SiteRun(info, SiteFolder.plain(info.path.name), _stamp(info), tuple(line[-LOOK_BACK:]) if info.readable else ())
        found.append(leaf)
        line += [leaf] if info.readable else []
    return found


def _stamp(info: RunInfo) -> list[list[int]]:
    """Size and modification time of each part of a run."""
    found = []
    for name in ("run.jsonl", "samples.bin", "attachments"):
        try:
            stat = (info.path / name).stat()
            found.append([stat.st_size, stat.st_mtime_ns])
        except OSError:
            found.append([])
    return found


def _point(entry: Entry, row: Mapping[str, Any]) -> Point:
    assert entry.time is not None
    commit, dirty = str(row.get("commit") or ""), bool(row.get("dirty"))
    return Point(entry.run, entry.number, entry.created, entry.time, entry.low, entry.high, commit, dirty)


def _compared(base: RunsSide, head: RunsSide) -> Comparison | None:
    """Two runs that cannot be compared are shown without a comparison."""
    try:
        return compare(base, head, metrics=usual_metrics((*base.runs, *head.runs)))
    except SteelyardError:
        return None


def _unreadable(leaf: SiteRun, error: StoreError) -> Document:
    """A page for a run that cannot be read, with the reason."""
    reason = told(error).replace(f"{leaf.info.path}/", "")
    made = document([], title=f"Run {leaf.info.id}", samples=0, warnings=[f"run {leaf.info.id} cannot be read: {reason}"])
    row = {
        "id": leaf.info.id, "created": leaf.info.created, "commit": "", "dirty": False, "experiment": "", "machine": 0, "command": "",
        "version": "", "sealed": False, "counts": {}, "missing": [], "warnings": [f"cannot be read: {reason}"], "environment": {},
        "conditions": [], "load": None, "monitor": "", "href": None,
    }  # fmt: skip
    banner = {"tone": "bad", "text": f"Run {leaf.info.id} cannot be read, so there is nothing to show of it."}
    return {**made, "banner": banner, "machines": [UNKNOWN], "runs": [row]}


@functools.cache
def generator() -> str:
    """A digest of the program, so that pages are written again when it changes."""
    parts = [__version__, html.template(), *html.asset_files()]
    for package in PACKAGES:
        parts += sorted(_sources(resources.files(f"steelyard.{package}")))
    return _digest(parts)


def _sources(folder: Any) -> list[str]:
    found = []
    for item in folder.iterdir():
        if item.is_dir():
            found += _sources(item)
        elif item.name.endswith(".py"):
            found.append(hashlib.sha256(item.read_bytes()).hexdigest())
    return found


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:32]
