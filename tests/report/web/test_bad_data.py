"""Files that no Steelyard wrote this way: whatever stands in them, there is a page, and a site, and a picture's figures."""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from steelyard.errors import UsageError
from steelyard.model.case import Case
from steelyard.report import export, plots
from steelyard.report.web import site as sites
from steelyard.report.web.gather import ReportRequest, gather
from steelyard.report.web.html import single_page
from steelyard.report.web.place import SiteFolder
from steelyard.report.web.site import build_site
from steelyard.store.runs import Store

Line = dict[str, Any]


def record(backend: str = "torch", n: int = 1, seconds: float = 1e-3, **more: Any) -> Line:
    case = Case("op/a", (("n", n),), backend)
    time = {"value": seconds, "unit": "s", "better": "lower", "low": seconds, "high": seconds, "n": 9}
    return {"record": {"id": case.id, "case": case.plain(), "status": "ok", "metrics": {"time": time}, **more}}


def put(store: Store, id: str, records: Sequence[Line], day: int = 2, sidecar: bytes | None = None, **header: Any) -> Path:
    """A run as its file stands, without anybody who checks what is written."""
    folder = store.folder / f"202601{day:02}T030000-{id}"
    folder.mkdir(parents=True)
    head = {"id": id, "created": f"2026-01-{day:02}T03:00:00Z", "machine_key": "m" * 12, "experiment": "e", **header}
    seal = {"time": "", "records": len(records), "counts": {"ok": len(records)}}
    lines: list[Line] = [{"header": head}, *records, {"seal": seal}]
    (folder / "run.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    if sidecar is not None:
        (folder / "samples.bin").write_bytes(sidecar)
    return folder


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def everything(store: Store, *refs: str) -> dict[str, Any]:
    """Each form that a report has, made once."""
    made = gather(store, ReportRequest(refs))
    assert len(single_page(made)) > 1000
    for form in (export.cases_csv, export.figures_csv, export.document_json, export.markdown_report):
        assert form(made)
    for chart in plots.charts().values():
        chart.rows(made)
    build_site(store, store.root.parent / "site")
    return made


@pytest.mark.parametrize(
    "machine",
    [
        {"memory": {"total": "x"}}, {"memory": {"total": -1}}, {"cpu": {"turbo": []}}, {"cpu": {"smt": {}}},
        {"cpu": {"caches": {"L1": -1, "L2": "x"}}},
    ],
)  # fmt: skip
def test_a_machine_that_cannot_be_is_told_as_far_as_it_can(machine: dict[str, Any], store: Store) -> None:
    put(store, "aaaa", [record()], machine=machine)
    (card,) = everything(store, "aaaa")["machines"]
    assert not {"memory", "SMT", "frequency", "caches"} & {label for label, _ in card["facts"]}


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 1e-320, 1e308])
def test_a_time_that_has_no_ratio_is_in_no_trend(seconds: float, store: Store) -> None:
    for day, id in enumerate(("aaaa", "bbbb", "cccc"), 1):
        put(store, id, [record("torch", 1, seconds if day > 1 else 1e-3), record("torch", 2), record("jax", 1, seconds)], day)
    made = everything(store, "aaaa", "bbbb", "cccc")
    means = [point["mean"] for point in made["history"]["trends"]["points"]]
    assert means and all(mean == pytest.approx(1) for mean in means)


def samples(*names: str) -> list[Line]:
    return [{"name": name, "unit": "s", "dtype": "<f8", "count": 4, "offset": 32 * place} for place, name in enumerate(names)]


def test_samples_that_are_no_numbers_are_left_out_and_counted(store: Store) -> None:
    blocks = struct.pack("<8d", math.nan, 1e-3, math.inf, 2e-3, math.nan, math.nan, 1.0, 0.0)
    put(store, "aaaa", [record(samples=samples("block_time", "preempted"), effective={"calls_per_block": "x"})], sidecar=blocks)
    (case,) = everything(store, "aaaa")["cases"]
    found = case["samples"]
    assert (found["count"], found["index"], found["time"], found["discarded"]) == (4, [1, 3], [1e-3, 2e-3], [1, 0])


def test_a_case_without_one_sound_sample_has_none(store: Store) -> None:
    put(store, "aaaa", [record(samples=samples("block_time"))], sidecar=struct.pack("<4d", *[math.nan] * 4))
    assert everything(store, "aaaa")["cases"][0]["samples"] is None


@pytest.mark.parametrize("created", ["yesterday", "</script>", "", "9999-12-31T23:59:59Z"])
def test_a_run_without_a_readable_date_is_no_mistake_of_who_asks(created: str, store: Store) -> None:
    for day, id in enumerate(("aaaa", "bbbb", "cccc"), 1):
        put(store, id, [record()], day, **({"created": created} if id == "bbbb" else {}))
    assert len(everything(store, "aaaa", "bbbb", "cccc")["runs"]) == 2, "the first is what the others are held against"


def test_attachments_of_the_same_name_do_not_take_each_others_place(store: Store, tmp_path: Path) -> None:
    names = ("a/trace.json", "b/trace.json", "page.html", "page.html.txt")
    kept = [{"kind": "trace", "path": f"attachments/{name}", "sha256": ""} for name in names]
    folder = put(store, "aaaa", [record(attachments=kept)])
    for name in names:
        path = folder / "attachments" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name, encoding="utf-8")
    build_site(store, tmp_path / "site")
    shown = {path.read_text(encoding="utf-8") for path in (tmp_path / "site" / "runs" / folder.name).iterdir()}
    assert shown == set(names)


@pytest.mark.parametrize("name", ["page.HTML", "x.svg.gz", "x.php.json", "trace", ".htaccess", "x.xht"])
def test_what_a_browser_or_a_server_would_run_is_text(name: str) -> None:
    assert SiteFolder.harmless(name).endswith(".txt")


@pytest.mark.parametrize("name", ["trace.json", "log.txt", "profile.json.gz", "k.ncu-rep"])
def test_what_nobody_runs_keeps_its_name(name: str) -> None:
    assert SiteFolder.harmless(name) == name


def test_a_site_does_not_settle_among_the_runs(store: Store, tmp_path: Path) -> None:
    put(store, "aaaa", [record()])
    (tmp_path / "way").symlink_to(store.folder)
    for folder in (store.folder / "site", store.folder, tmp_path / "way" / "site"):
        with pytest.raises(UsageError, match="cannot be a site"):
            build_site(store, folder)
    assert [path.name for path in store.folder.iterdir()] == ["20260102T030000-aaaa"]


def test_a_list_of_files_cannot_have_the_front_page_removed(store: Store, tmp_path: Path) -> None:
    put(store, "aaaa", [record()])
    site = tmp_path / "site"
    site.mkdir()
    gone = {"key": "", "files": ["index.html", "site.json", "../store/index.sqlite"], "row": {}, "machine": {}}
    (site / "site.json").write_text(json.dumps({"format": sites.FORMAT, "runs": {"gone": gone}}), encoding="utf-8")
    assert build_site(store, site).removed == [] and (site / "index.html").is_file() and (site / "site.json").is_file()


def test_a_killed_build_leaves_nothing_behind_and_what_it_did_counts(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for day, id in enumerate(("aaaa", "bbbb", "cccc"), 1):
        put(store, id, [record()], day)
    monkeypatch.setattr(sites, "SAVED_AFTER", 2)
    child = os.fork()
    if not child:  # what follows is what `kill -9` between two pages looks like
        monkeypatch.setattr(sites._Build, "_front", lambda self, leaves: os._exit(9))
        build_site(store, tmp_path / "site")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    half = tmp_path / "site" / "runs" / ".x.html.123.part"
    mine = tmp_path / "site" / "runs" / "mine.part"
    half.write_text("half")
    mine.write_text("mine")
    built = build_site(store, tmp_path / "site")
    assert built.kept == 2 and not half.exists() and mine.exists()
