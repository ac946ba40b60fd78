"""`steelyard as v3` and every command that reads its files, through the command line."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest

from steelyard.analyze.foreign import read_file
from steelyard.analyze.history import histories
from steelyard.dialects.v3 import schema
from steelyard.store.runs import Store
from tests.analyze.saved import case, save
from tests.dialects.v3.made import METADATA, Said, results, row, write

ROOT = Path(__file__).parents[3]


# The commands that read results


def test_a_saved_run_goes_out_and_comes_back(said: Said, tmp_path: Path) -> None:
    store = Store(tmp_path / ".steelyard")
    for time in (1e-3, 1.5e-3):
        save(store, {case("a"): time, case("b"): 2e-3, case("c"): "oom"})
    said("export", "latest~1", "--to", "v3", "-o", "old.json")
    said("export", "latest", "--to", "v3", "-o", "new.json")
    assert "✓ old.json 3 records" in said("as", "v3", "check", "old.json")[0]
    native = json.loads(said("compare", "latest~1", "latest", "--json")[0])
    exported = json.loads(said("compare", "old.json", "new.json", "--json")[0])
    mixed = json.loads(said("compare", "old.json", "latest", "--json")[0])
    for found in (exported, mixed):
        assert [delta["head"] for delta in found["deltas"]] == [delta["head"] for delta in native["deltas"]]
        assert [delta["time_ratio"] for delta in found["deltas"]] == pytest.approx([delta["time_ratio"] for delta in native["deltas"]])
        assert [delta["verdict"] for delta in found["deltas"]] == [delta["verdict"] for delta in native["deltas"]]
    series = histories(store, imported=[*read_file(tmp_path / "old.json"), *read_file(tmp_path / "new.json")])
    assert len(series[case("a")].points) == 2
    shown = said("show", "new.json")[0]
    assert "1.5000 ± 0.0015 ms" in shown and "oom" in shown


def test_files_and_folders_are_compared_gated_shown_and_reported(said: Said, tmp_path: Path) -> None:
    for number, time in enumerate((1.0, 1.0, 1.4)):
        folder = tmp_path / ("base" if number < 2 else "head")
        folder.mkdir(exist_ok=True)
        more = {**METADATA, "timestamp": METADATA["timestamp"] + 86400 * number, "workflow_id": number + 1}
        results(folder, f"{number}.json", time, **more)
    assert "6 results in 2 runs" in said("check", "base")[0]
    assert "3 cases" in said("compare", "base", "head")[0]
    assert "commit 64c1ce36e0" in said("compare", "base", "head")[0]
    assert said("gate", "base", "head")[0].startswith("? inconclusive")
    (tmp_path / "hud.toml").write_text('[hud.ratio."latency"]\nbad = 1.3\ngood = 0.7\n')
    assert said("gate", "base", "head", "--policy", "hud.toml", code=4)[0].startswith("▼ regression: 3 worse by HUD's rules")
    assert said("gate", "head", "base", "--policy", "hud.toml")[0].startswith("✓ pass")
    shutil.copytree("base", "all")
    shutil.copy("head/2.json", "all")
    assert "the last of 3 runs" in said("show", "all")[1]
    assert "3 runs on machine" in said("show", "all/1", "--history")[0]
    assert "1.000 ms to 1.400 ms" in said("show", "all/1", "--history")[0]
    said("report", "base", "head", "-o", "r.html", "-o", "r.csv")
    assert (tmp_path / "r.html").stat().st_size > 10_000 and "foreign/v3" in (tmp_path / "r.csv").read_text()


def test_the_hint_below_a_table_can_be_typed_and_a_table_without_times_has_a_head(said: Said, tmp_path: Path) -> None:
    (tmp_path / "some where").mkdir()
    write(tmp_path / "some where" / "r.json", [row("throughput", [100.0])])
    out = said("show", "some where")[0]
    assert "throughput" in out and "1 ok · read from 'some where'" in out
    hint = out.partition("next: ")[2].strip()
    assert "throughput  100" in said(*shlex.split(hint)[1:])[0]


def test_files_without_a_time_are_compared_by_what_they_have(said: Said, tmp_path: Path) -> None:
    write(tmp_path / "a.json", [row("throughput", [100.0]), row("frobnication", [3.0])])
    write(tmp_path / "b.json", [row("throughput", [50.0]), row("frobnication", [9.0])])
    found = json.loads(said("compare", "a.json", "b.json", "--json")[0])
    assert [(delta["metric"], delta["ratio"]) for delta in found["deltas"]] == [("throughput", pytest.approx(0.5))]
    (tmp_path / "hud.toml").write_text('[hud.ratio."*"]\n')
    told = said("gate", "a.json", "b.json", "--policy", "hud.toml", code=4)[0]
    assert "0.5 of base, and below 0.9 is bad" in told
    said("report", "a.json", "b.json", "-o", "r.html")


def test_bad_lines_are_told_where_results_are_read(said: Said, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(f"{json.dumps(row())}\n{{oops\n", encoding="utf-8")
    assert "warning: r.json:2 was skipped: not JSON" in said("show", "r.json")[1]


# check, schema, merge


def test_check_names_every_mistake_with_file_and_path(said: Said, tmp_path: Path) -> None:
    bad = row(values=["fast", float("nan")])
    bad["benchmark"]["extra_info"]["threads"] = 4
    (tmp_path / "bad.json").write_text(f"{json.dumps(row())}\n{json.dumps(bad)}\nnonsense\n")
    out, _ = said("as", "v3", "check", "bad.json", code=2)
    assert "✗ bad.json 2 records · 4 mistakes" in out
    assert "bad.json:3 not JSON" in out
    assert 'bad.json:2 metric.benchmark_values[0]: expected a number, not "fast"' in out
    assert "bad.json:2 metric.benchmark_values[1]: expected a finite number, not nan" in out
    assert "bad.json:2 benchmark.extra_info.threads: expected a text, not 4" in out
    data = json.loads(said("as", "v3", "check", "bad.json", "--json", code=2)[0])
    assert len(data["files"][0]["mistakes"]) == 4
    assert "repo: is missing; it comes with the metadata" in said("as", "v3", "check", str(results(tmp_path)), "--complete", code=2)[0]


def test_check_shows_the_first_of_very_many_mistakes(said: Said, tmp_path: Path) -> None:
    write(tmp_path / "bad.json", [row(values=["x"])] * 80)
    out = said("as", "v3", "check", "bad.json", code=2)[0]
    assert "80 records · 80 mistakes" in out and out.count("expected a number") == 50 and "… and 30 more: --json has them all" in out
    assert len(json.loads(said("as", "v3", "check", "bad.json", "--json", code=2)[0])["files"][0]["mistakes"]) == 80


def test_check_of_nothing_is_never_green(said: Said, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "no files found" in said("as", "v3", "check", "empty", code=5)[1]
    write(tmp_path / "none.json", [])
    assert "no records found" in said("as", "v3", "check", "none.json", code=5)[1]
    assert "no such file: 'gone.json'" in said("as", "v3", "check", "gone.json", code=2)[1]


def test_the_schema_is_printed(said: Said) -> None:
    assert json.loads(said("as", "v3", "schema")[0]) == schema.schema()
    assert "repo" in json.loads(said("as", "v3", "schema", "--complete")[0])["required"]


def test_merging_fills_only_what_is_absent(said: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = row(timestamp=5, runners=[], dependencies={"own": {"version": "1"}})
    write(tmp_path / "r.json", [row(), own])
    write(tmp_path / "m.json", METADATA)
    words = ("--metadata", "m.json", "--runners", '[{"name": "cpu"}]', "--dependencies", '{"torch": {"version": "2"}}')
    first, second = json.loads(said("as", "v3", "merge", "r.json", *words)[0])
    assert first["runners"] == [{"name": "cpu"}] and first["dependencies"] == {"torch": {"version": "2"}}
    assert second["runners"] == [] and second["dependencies"] == {"own": {"version": "1"}}
    assert (first["timestamp"], second["timestamp"], second["repo"]) == (METADATA["timestamp"], 5, "pytorch/ao")
    monkeypatch.setenv("BENCHMARK_NAME", "nightly")
    assert "2 records · saved out.json" in said("as", "v3", "merge", "r.json", *words, "-o", "out.json")[1]
    renamed = json.loads((tmp_path / "out.json").read_text())
    assert [item["benchmark"]["name"] for item in renamed] == ["nightly", "nightly"] and renamed[0]["benchmark"]["mode"] == "inference"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--metadata", "{}"], "timestamp: is missing"),
        (["--metadata", "{nope"], "--metadata  not JSON"),
        (["--metadata", "gone.json"], "no such file"),
        (["--metadata", json.dumps({**METADATA, "job_id": "2"})], 'job_id: expected a whole number, not "2"'),
        (["--metadata", json.dumps({**METADATA, "schema_version": "v2"})], "schema_version: expected 'v3'"),
        (["--metadata", json.dumps({**METADATA, "job": 2})], "job: unknown key"),
        (["--runners", "{}"], "--runners  expected a list"),
        (["--dependencies", '{"torch": "2"}'], "--dependencies  torch: expected an object"),
    ],
)
def test_wrong_metadata_is_refused(said: Said, tmp_path: Path, words: list[str], told: str) -> None:
    results(tmp_path)
    assert told in said("as", "v3", "merge", "results.json", *words, code=2)[1]


def test_merge_refuses_wrong_types_and_strict_refuses_bad_lines(said: Said, tmp_path: Path) -> None:
    write(tmp_path / "wrong.json", [row(values=["x"])])
    assert "wrong.json[0]  metric.benchmark_values[0]: expected a number" in said("as", "v3", "merge", "wrong.json", code=2)[1]
    (tmp_path / "torn.json").write_text(f"{json.dumps(row())}\n{{")
    assert "torn.json:2 was skipped" in said("as", "v3", "merge", "torn.json")[1]
    assert "error: torn.json:2  not JSON" in said("as", "v3", "merge", "torn.json", "--strict", code=2)[1]


# policy


def test_the_example_of_six_nights(said: Said, tmp_path: Path) -> None:
    for name in ("database", "hud-torchao.toml"):
        (shutil.copytree if name == "database" else shutil.copy)(ROOT / "examples" / name, tmp_path / name)
    words = ("as", "v3", "policy", "hud-torchao.toml", "database")
    out, _ = said(*words, "--at", "newest", "--markdown", "r.md", code=4)
    assert (
        out.startswith("▼ regression: 2 regression, 4 no_regression\n")
        and "▼ regression: Quantized Fwd Time (ms) on refs/heads/main, lower is better" in out
    )
    assert "▼ regression: Fwd Speedup (x) on refs/heads/main, higher is better" in out
    assert "less_equal 1.2 x min 303 µs; values 304 µs 397 µs! 403 µs!" in out and max(map(len, out.splitlines())) <= 100
    assert "| regression | `foreign/v3/" in (tmp_path / "r.md").read_text()
    assert said(*words, "--at", "2025-07-13")[0].startswith("✓ no_regression")
    assert said(*words, "--at", "2025-07-10", code=5)[0].startswith("– insufficient_data")
    assert "– no report: the newest result is from 2025-07-15" in said(*words, code=5)[0]
    data = json.loads(said(*words, "--at", "newest", "--json", code=4)[0])
    assert data["status"] == "regression" and len(data["series"]) == 6
    assert "not a date: 'soon'" in said(*words, "--at", "soon", code=2)[1]


def test_a_suspicious_series_counts_where_it_is_strict_and_runs_of_the_store_are_judged_too(said: Said, tmp_path: Path) -> None:
    store = Store(tmp_path / ".steelyard")
    for number, time in enumerate((1, 1, 1, 2, 2, 2, 1)):
        save(store, {case("a"): time * 1e-3}, created=f"2026-01-01T{number:02d}:00:00Z")
    window = "[hud.window]\nbaseline_days = 0.125\ncomparison_days = 0.17\n"
    rule = '[hud.window.metrics."time"]\nbaseline = "median"\ncondition = "less_equal"\nthreshold = 1.1\n'
    (tmp_path / "p.toml").write_text(window + rule)
    words = ("as", "v3", "policy", "p.toml", "latest~6..latest", "--at", "newest")
    assert said(*words)[0].startswith("? suspicious: 1 suspicious")
    said(*words, "--strict", code=6)
    (tmp_path / "q.toml").write_text('[hud.ratio."*"]\n')
    assert "q.toml has no [hud.window]" in said("as", "v3", "policy", "q.toml", "latest", code=2)[1]


def test_names_that_are_wrong_are_told_with_the_nearest(said: Said) -> None:
    assert "did you mean upload" in said("as", "v3", "uplod", code=2)[1]
    assert "upload" in said("as", "v3", code=2)[1]
    assert "reads its result files" in said("list", "dialects", "v3")[0].replace("\n", " ")
