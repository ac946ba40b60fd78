"""`steelyard report` from typed words to files, messages and exit codes."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from steelyard.cli.main import main
from steelyard.model.pair import Arm, Pair
from steelyard.report import plots
from steelyard.store.runs import Header, Store
from tests.analyze.foreign_samples import pyperf_file
from tests.analyze.made import case, record
from tests.report.web.test_html import Page


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Three runs; the second has one case twice as slow, and the last was weighed with --vs."""
    made = Store(tmp_path / "store")
    for hour, (id, slow) in enumerate([("aaa1", 1.0), ("bbb1", 2.0), ("ccc1", 1.0)]):
        with made.create(Header(id=id, created=f"2026-01-0{hour + 1}T03:00:00Z", machine_key="one", experiment="night")) as writer:
            for number in range(10):
                writer.append(record(case(number), 1e-3 * (slow if number == 0 else 1)))
            if id == "ccc1":
                writer.append(record(case(1, "compile"), 5e-4))
                writer.append_pair(Pair(Arm(case(1)), Arm(case(1, "compile")), 0.5, 0.49, 0.51, 0.99, 8, 64, 1, (4, 4)))
            writer.seal()
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("STEELYARD_STORE", str(made.root))
    return made


def data(path: str | Path) -> dict[str, Any]:
    found: dict[str, Any] = Page(Path(path).read_text(encoding="utf-8")).data
    return found


def test_without_words_the_latest_run_becomes_a_page_here(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report"]) == 0
    said, made = capsys.readouterr(), data("report.html")
    assert said.out.splitlines() == [made["banner"]["text"], "written: report.html"] and said.err == ""
    assert [run["id"] for run in made["runs"]] == ["ccc1"] and len(made["cases"]) == 11
    assert made["comparison"]["paired"] and made["comparison"]["deltas"][0]["verdict"] == "faster"
    assert len(made["history"]["series"][0]["points"]) == 3
    assert [path.name for path in Path().iterdir()] == ["report.html"]


def test_two_words_are_base_and_head(store: Store) -> None:
    assert main(["report", "aaa1", "bbb1"]) == 0
    found = data("report.html")["comparison"]
    assert (found["base"], found["head"], found["paired"]) == ("aaa1", "bbb1", False)
    assert [delta["case"] for delta in found["deltas"] if delta["verdict"] == "slower"] == [case(0)]


def test_the_base_can_be_named(store: Store) -> None:
    assert main(["report", "bbb1", "ccc1", "--base", "aaa1", "--title", "Three <b>"]) == 0
    made = data("report.html")
    assert made["comparison"]["base"] == "aaa1" and made["comparison"]["head"] == "ccc1" and made["title"] == "Three <b>"
    assert [run["id"] for run in made["runs"]] == ["bbb1", "ccc1"]


def test_a_range_is_a_window_of_time(store: Store) -> None:
    assert main(["report", "latest~2..latest~1"]) == 0
    made = data("report.html")
    assert [run["id"] for run in made["runs"]] == ["aaa1", "bbb1"]
    assert {len(series["points"]) for series in made["history"]["series"]} == {2}


@pytest.mark.parametrize(
    ("words", "points"),
    [(["--since", "2026-01-02"], {2}), (["--until", "2026-01-02"], {2}), (["--no-history"], None), (["--since", "2026-01-03"], None)],
)
def test_history_can_be_cut_or_left_out(words: list[str], points: set[int] | None, store: Store) -> None:
    assert main(["report", *words]) == 0
    history = data("report.html")["history"]
    assert history is None if points is None else {len(series["points"]) for series in history["series"]} == points


def test_the_suffix_decides_what_is_written(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    files = ["a.html", "a.csv", "a.md", "a.json", "a.svg", "a.PNG"]
    assert main(["report", "aaa1", "bbb1", *(word for file in files for word in ("-o", file)), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [item["path"] for item in said["written"]] == files
    assert [item["bytes"] for item in said["written"]] == [Path(file).stat().st_size for file in files]
    assert len(list(csv.DictReader(io.StringIO(Path("a.csv").read_text())))) == 10 and Path("a.md").read_text().startswith("## ")
    assert json.loads(Path("a.json").read_text())["banner"] == said["banner"]
    assert Path("a.svg").read_text().startswith("<svg") and Path("a.PNG").read_bytes().startswith(b"\x89PNG")


def test_long_tables_and_named_plots(store: Store) -> None:
    assert main(["report", "-o", "a.csv", "--long", "-o", "a.svg", "--plot", "history-series", "--dark"]) == 0
    assert {row["metric"] for row in csv.DictReader(io.StringIO(Path("a.csv").read_text()))} == {"time"}
    assert plots.charts()["history-series"].title in Path("a.svg").read_text()
    assert main(["report", "-o", "b.svg", "--plot", "history-series", "--case", case(3)]) == 0
    assert main(["report", "-o", "c.svg", "--plot", "history-series", "--case", case(4), "--dark"]) == 0
    assert Path("b.svg").read_bytes() != Path("a.svg").read_bytes()


def test_results_of_other_tools_make_a_page(store: Store, tmp_path: Path) -> None:
    file = pyperf_file(tmp_path / "bench.json", {"sort": [[0.1, 0.11], [0.12, 0.1]]})
    assert main(["report", str(file)]) == 0
    assert len(data("report.html")["cases"]) == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-o", "report.pdf"], ["unknown kind of report", "'.pdf'", ".html .csv"]),
        (["-o", "report"], ["has no suffix"]),
        (["-o", "none/report.html"], ["cannot write", "there is no folder 'none'"]),
        (["-o", "folder.html"], ["cannot write", "it is a folder", "--site"]),
        (["-o", "a.svg", "--plot", "history-serie"], ["no plot named", "did you mean history-series"]),
        (["-o", "a.svg", "--plot", "roofline"], ["roofline has nothing to show", "history-series"]),
        (["--plot", "history-series"], ["--plot needs a picture"]),
        (["-o", "a.svg", "--case", "op/a"], ["no case named 'op/a'"]),
        (["-o", "a.svg", "--case", case(1), "--plot", "matrix-heat"], ["matrix-heat shows all cases", "history-series"]),
        (["--long"], ["--long needs a table"]),
        (["--commit-url", "javascript:alert(1)//{commit}"], ["not an address for commits"]),
        (["--commit-url", "https://example.org/"], ["not an address for commits", "{commit}"]),
        (["zzzz"], ["no run named 'zzzz'"]),
        (["--base", "zzzz"], ["no run named 'zzzz'"]),
        (["--baseline", "torch/eagre"], ["no column named 'torch/eagre'", "did you mean torch/eager"]),
        (["--since", "yesterday"], ["not a date: 'yesterday'"]),
        (["aaa1,bbb1", "bbb1"], ["on both sides"]),
        (["--site", "public", "latest"], ["latest cannot be used with --site"]),
        (["--site", "public", "-o", "a.html"], ["-o cannot be used with --site"]),
        (["--site", "public", "--since", "2026-01-01"], ["--since cannot be used with --site"]),
    ],
)
def test_what_is_wrong_is_told_and_nothing_is_written(
    words: list[str], told: list[str], store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("folder.html").mkdir()
    assert main(["report", *words]) == 2
    said = capsys.readouterr()
    assert said.out == "" and all(word in said.err for word in told), said.err
    assert [path.name for path in Path().iterdir()] == ["folder.html"]


def test_a_device_is_no_place_for_a_report(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "-o", "/proc/self/report.html"]) == 2
    assert "cannot write '/proc/self/report.html'" in capsys.readouterr().err


def test_an_existing_report_is_replaced_whole_and_readable_by_others(store: Store) -> None:
    Path("report.html").write_text("old")
    assert main(["report"]) == 0
    assert data("report.html")["cases"] and Path("report.html").stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask() -> int:
    held = os.umask(0)
    os.umask(held)
    return held


def test_a_run_that_cannot_be_read_makes_a_page_that_says_so(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    folder = store.folders()[-1]
    (folder / "run.jsonl").write_text('{"header": {"id": "ccc1", "schema": 99}}\n')
    assert main(["report", "ccc1"]) == 5
    made, said = data("report.html"), capsys.readouterr()
    assert (
        any("ccc1" in line and "99" in line for line in made["warnings"]) and "warning: " in said.err and "written: report.html" in said.out
    )


def test_an_empty_store_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report"]) == 2
    assert "there is no latest run" in capsys.readouterr().err
    assert main(["report", "--site", "public"]) == 2
    assert "nothing to show" in capsys.readouterr().err and not Path("public").exists()


def test_a_site_is_written_and_then_left_alone(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--site", "public", "--title", "Nights"]) == 0
    assert "written: public/index.html" in capsys.readouterr().out and data("public/index.html")["title"] == "Nights"
    assert main(["report", "--site", "public", "--title", "Nights", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["runs"] == 3 and said["written"] == [] and said["kept"] == 3 and said["folder"] == "public"
