"""A site follows its store: what is new is written, what is gone is removed, and what is somebody else's stays."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any, cast

import pytest

from steelyard.errors import UsageError
from steelyard.model.case import Case
from steelyard.model.record import Figure, Record, Status
from steelyard.report.web.site import build_site
from steelyard.store.runs import Header, Store
from tests.report import hostile
from tests.report.web.test_html import Page


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Three runs, of which the last is slower."""
    made = Store(tmp_path / "store")
    for hour, seconds in enumerate((1e-3, 1e-3, 2e-3)):
        hostile.saved(made, hour, seconds)
    return made


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return tmp_path / "site"


def stamps(site: Path) -> dict[str, int]:
    return {str(path.relative_to(site)): path.stat().st_ino for path in site.rglob("*") if path.is_file()}


def data(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = Page(path.read_text(encoding="utf-8")).data
    return found


def pages(store: Store) -> list[str]:
    return [f"runs/{folder.name}.html" for folder in store.folders()]


def test_the_front_lists_every_run_and_all_series(store: Store, site: Path) -> None:
    built = build_site(store, site, title="Nights")
    front = data(site / "index.html")
    assert front["title"] == "Nights" and front["cases"] == [] and built.runs == 3
    assert [run["href"] for run in front["runs"]] == pages(store)
    assert all((site / run["href"]).is_file() for run in front["runs"])
    assert [len(series["points"]) for series in front["history"]["series"]] == [3, 3]
    assert front["machines"][front["runs"][0]["machine"]]["key"] == "m" * 12


def test_series_on_the_front_are_named_by_what_tells_them_apart(store: Store, site: Path) -> None:
    build_site(store, site)
    series = data(site / "index.html")["history"]["series"]
    assert len({item["label"] for item in series}) == len(series) > 1
    assert not any("@" in item["label"] or len(item["label"]) >= len(item["case"]) for item in series)


def night(store: Store, day: int, experiment: str, status: Status) -> str:
    case, time = Case("op/a", backend="numpy"), Figure(1e-3, "s", "lower", 0.99e-3, 1.01e-3, 40)
    header = Header(created=f"2026-01-0{day}T03:00:00Z", machine_key="m" * 12, experiment=experiment)
    with store.create(header) as writer:
        writer.append(Record(case.id, case.plain(), status, metrics={"time": time}))
        writer.seal()
    return writer.id


def test_the_front_is_not_well_while_the_newest_run_of_an_experiment_is_not(tmp_path: Path, site: Path) -> None:
    """What went wrong and came right since is no news."""
    store = Store(tmp_path / "store")
    for day, status in enumerate(("wrong", "ok", "ok"), 1):
        night(store, day, "nightly", cast(Status, status))
    build_site(store, site)
    assert data(site / "index.html")["banner"] == {"tone": "good", "text": "3 runs, 1 series; none is at a slower level than before."}
    bad = night(store, 4, "other", "oom")
    build_site(store, site)
    banner = data(site / "index.html")["banner"]
    assert (banner["tone"], banner["text"].partition(". ")[2]) == ("bad", f"Newest runs: 1 oom in {bad}.")


def test_a_site_keeps_where_commits_are_shown(store: Store, site: Path) -> None:
    address = "https://example.org/c/{commit}"
    build_site(store, site, commit_url=address)
    assert {data(site / page)["commit_url"] for page in ("index.html", *pages(store))} == {address}
    assert build_site(store, site).written == []
    other = build_site(store, site, commit_url="https://example.org/d/{commit}").written
    assert {"index.html", *pages(store)} <= set(other)


def test_a_page_holds_its_run_against_the_one_before(store: Store, site: Path) -> None:
    build_site(store, site)
    first, _, last = (data(site / page) for page in pages(store))
    assert first["comparison"] is None and first["history"] is None
    assert last["comparison"]["base"] == store.open(store.folders()[1]).id
    assert {delta["verdict"] for delta in last["comparison"]["deltas"] if delta["ratio"]} == {"slower"}
    assert len(last["history"]["series"][0]["points"]) == 3 and last["front"] == "../index.html"


def test_only_runs_of_the_same_experiment_and_machine_are_held_against_each_other(store: Store, site: Path) -> None:
    hostile.saved(store, 5, experiment="other")
    hostile.saved(store, 6, machine_key="x" * 12)
    build_site(store, site)
    assert [data(site / page)["comparison"] is None for page in pages(store)] == [True, False, False, True, True]


def test_a_second_build_writes_nothing(store: Store, site: Path) -> None:
    build_site(store, site)
    before = stamps(site)
    built = build_site(store, site)
    assert built.written == [] and built.removed == [] and built.kept == 3 and stamps(site) == before


def test_one_new_run_writes_its_page_and_the_front(store: Store, site: Path) -> None:
    build_site(store, site)
    before = stamps(site)
    hostile.saved(store, 7)
    built = build_site(store, site)
    new = store.folders()[-1].name
    assert {name for name in built.written if f"runs/{new}" not in name} == {"index.html", "site.json"} and built.kept == 3
    assert all(stamps(site)[page] == before[page] for page in pages(store)[:3])
    assert len(data(site / "index.html")["runs"]) == 4


def test_a_run_that_is_gone_leaves_nothing_and_the_next_has_another_base(store: Store, site: Path) -> None:
    build_site(store, site)
    first, second, third = store.folders()
    shutil.rmtree(second)
    built = build_site(store, site)
    assert f"runs/{second.name}.html" in built.removed and not list((site / "runs").glob(f"{second.name}*"))
    assert f"runs/{third.name}.html" in built.written and f"runs/{first.name}.html" not in built.written
    assert data(site / f"runs/{third.name}.html")["comparison"]["base"] == store.open(first).id
    assert len(data(site / "index.html")["runs"]) == 2


def test_a_run_that_grew_is_written_again(store: Store, site: Path) -> None:
    with store.create(Header(created="2026-01-02T09:00:00Z", experiment="nightly", machine_key="m" * 12)) as writer:
        writer.append(hostile.record("one", 1))
        build_site(store, site)
        page = site / f"runs/{writer.path.name}.html"
        assert len(data(page)["cases"]) == 1 and any("unfinished" in line for line in data(page)["warnings"])
        writer.append(hostile.record("two", 1))
        writer.seal()
    build_site(store, site)
    assert len(data(page)["cases"]) == 2 and not any("unfinished" in line for line in data(page)["warnings"])


def test_what_was_deleted_by_hand_comes_back(store: Store, site: Path) -> None:
    build_site(store, site)
    whole = set(stamps(site))
    for name in [*pages(store)[:1], "index.html", *(f"assets/{path.name}" for path in (site / "assets").iterdir())]:
        (site / name).unlink()
    build_site(store, site)
    assert set(stamps(site)) == whole


def test_attachments_go_along_and_none_of_them_runs(store: Store, site: Path) -> None:
    build_site(store, site)
    page = site / pages(store)[0]
    links = [item["href"] for case in data(page)["cases"] for item in case["attachments"]]
    assert len(links) == 4 and all((page.parent / link).is_file() for link in links)
    assert not [path for path in site.rglob("*.html") if path.parent != site / "runs" and path != site / "index.html"]


def test_an_attachment_that_leads_out_of_its_run_is_not_copied(store: Store, site: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    file = store.folders()[0] / "run.jsonl"
    file.write_text(file.read_text().replace("attachments/trace_1.json", "../../../secret"))
    build_site(store, site)
    assert not list(site.rglob("*secret*")) and (site / pages(store)[0]).is_file()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: (folder / "run.jsonl").write_bytes(b""), "no readable header"),
        (lambda folder: (folder / "run.jsonl").write_text('{"header": {"schema": 99}}\n'), "99"),
        (lambda folder: (folder / "run.jsonl").unlink(), "run.jsonl"),
        (lambda folder: os.truncate(folder / "run.jsonl", (folder / "run.jsonl").stat().st_size - 200), "unfinished"),
    ],
    ids=["empty", "unknown version", "no file", "cut"],
)
def test_a_bad_run_has_a_page_that_says_what_is_wrong(spoil: Any, words: str, store: Store, site: Path) -> None:
    folder = store.folders()[1]
    spoil(folder)
    build_site(store, site)
    found = data(site / f"runs/{folder.name}.html")
    assert any(words in line for line in found["warnings"]) and str(store.root) not in json.dumps(found)
    row = data(site / "index.html")["runs"][[run["href"] for run in data(site / "index.html")["runs"]].index(f"runs/{folder.name}.html")]
    assert any(words in line for line in row["warnings"])
    assert build_site(store, site).written == []


def test_a_folder_with_something_else_in_it_is_refused(store: Store, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("mine")
    with pytest.raises(UsageError, match="is not a site"):
        build_site(store, tmp_path / "mine")
    (tmp_path / "mine" / "site.json").write_text('{"format": "another"}')
    with pytest.raises(UsageError, match="is not a site"):
        build_site(store, tmp_path / "mine")
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == ["site.json", "thesis.tex"]


def test_files_of_others_in_a_site_stay(store: Store, site: Path, tmp_path: Path) -> None:
    """Not even a list of files that was tampered with removes them."""
    build_site(store, site)
    (site / "CNAME").write_text("bench.example")
    (site / "runs" / "notes.txt").write_text("mine")
    (tmp_path / "thesis.tex").write_text("mine")
    manifest = json.loads((site / "site.json").read_text())
    manifest["runs"]["gone"] = {
        "files": ["../thesis.tex", str(tmp_path / "thesis.tex"), "runs/../../thesis.tex", "runs/x/../../../thesis.tex", ""]
    }
    (site / "site.json").write_text(json.dumps(manifest))
    shutil.rmtree(store.folders()[0])
    build_site(store, site)
    assert all(path.is_file() for path in (site / "CNAME", site / "runs" / "notes.txt", tmp_path / "thesis.tex"))


@pytest.mark.parametrize("rest", ["", ', "runs": 3', ', "runs": {"x": {"key": 1}}', ', "assets": "x"'])
def test_a_damaged_list_of_files_costs_only_time(rest: str, store: Store, site: Path) -> None:
    build_site(store, site)
    (site / "site.json").write_text(f'{{"format": "steelyard-site/1"{rest}}}')
    assert len([name for name in build_site(store, site).written if name.endswith(".html")]) == 4


def test_a_name_of_a_folder_is_never_trusted(store: Store, site: Path) -> None:
    store.folders()[0].rename(store.folder / "<script>alert(1)<'\" &?#%2e")
    build_site(store, site)
    assert all(path.name.replace("-", "").replace(".", "").isalnum() for path in (site / "runs").iterdir())
    front = data(site / "index.html")
    assert len(front["runs"]) == 3 and all((site / run["href"]).is_file() for run in front["runs"])


def test_an_empty_store_is_told_and_nothing_is_made(tmp_path: Path, site: Path) -> None:
    with pytest.raises(UsageError, match="nothing to show"):
        build_site(Store(tmp_path / "none"), site)
    assert not site.exists()


def test_a_place_that_cannot_be_written_is_told(store: Store, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write the site"):
        build_site(store, tmp_path / "file" / "site")
