"""`steelyard compare` from typed words to table, JSON and exit code."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from steelyard.cli.main import main
from steelyard.model.pair import Arm, Pair, PairPart
from steelyard.model.record import Figure
from steelyard.store.runs import Header, Store
from tests.analyze.foreign_samples import google_file, pyperf_file, repetition
from tests.analyze.made import case, record
from tests.analyze.saved import case as saved_case
from tests.analyze.saved import save


@pytest.fixture
def store(tmp_path: Path) -> str:
    """Two runs of ten cases, the second with one twice as slow and pairs of its own, and one from another machine."""
    made = Store(tmp_path / "store")
    for hour, (id, slow, key) in enumerate([("aaa1", 1.0, "one"), ("bbb1", 2.0, "one"), ("ccc1", 1.0, "two")]):
        with made.create(Header(id=id, created=f"2026-01-02T{hour:02d}:00:00Z", machine_key=key)) as writer:
            for number in range(10):
                item = record(case(number), 1e-3 * (slow if number == 0 else 1))
                writer.append(replace(item, metrics={**item.metrics, "peak_memory": Figure(2**20 * slow, "B", "lower")}))
            if id == "bbb1":
                writer.append(record(case(1, "compile"), 5e-4))
                writer.append_pair(Pair(Arm(case(1)), Arm(case(1, "compile")), 0.5, 0.49, 0.51, 0.99, 8, 64, 1, (4, 4)))
            writer.seal()
    return str(made.root)


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


def test_two_runs_make_a_table_and_a_slowdown_is_no_failure(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "aaa1", "latest~1", "--store", store]) == 0
    shown = printed(capsys)
    assert "base aaa1 · head latest~1 (bbb1) · 10 cases" in shown
    assert ", not confirmed" in shown and "unpaired" in shown and f"    {case(1, 'compile')}" in shown
    assert all(len(line) <= 100 for line in shown.splitlines())


def test_json_is_the_whole_comparison(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "aaa1", "bbb1", "--metric", "time", "--metric", "peak_memory", "--json", "--store", store]) == 0
    found = json.loads(printed(capsys))
    assert set(found) == {"base", "head", "deltas", "new", "means", "notes", "figures", "suite", "conditions"}
    assert found["suite"]["cases"] == 10 and found["suite"]["delta"]["paired"] is False
    assert len(found["deltas"]) == 20 and found["deltas"][0]["verdict"] == "slower" and found["deltas"][0]["paired"] is False
    assert found["deltas"][1]["metric"] == "peak_memory" and found["means"]["peak_memory"][1] == 10
    assert found["figures"]["time"][case(0)][1]["value"] == 2e-3


@pytest.mark.parametrize("words", [["bbb1"], ["vs", "bbb1"], ["bbb1", "bbb1"]])
def test_one_run_shows_what_it_weighed_itself(words: list[str], store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *words, "--store", store]) == 0
    shown = printed(capsys)
    assert "▲ 2.0" in shown and "faster [" in shown and "paired: both arms" in shown and "vs eager, 99 %" in shown


def test_nothing_to_compare_is_exit_code_5(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "aaa1", "ccc1", "--store", store]) == 5
    assert "– incomparable: 10, measured on different machines: base on one, head on two" in printed(capsys)
    assert main(["compare", "aaa1", "--store", store]) == 5
    assert "has no comparison" in capsys.readouterr().err


def test_a_run_in_which_nothing_could_be_weighed_is_exit_code_5(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = Store(tmp_path)
    with made.create(Header(id="ddd1", machine_key="one")) as writer:
        writer.append(replace(record(case(1)), effective={"unweighed": "the base crashed"}))
        writer.append(record(case(2)))
        writer.append(record(case(2, "compile")))
        writer.append_pair(Pair(Arm(case(2)), Arm(case(2, "compile")), 1.0, 2e-22, 5e21, 0.99, 1, 4, 1, (4, 4)))
        writer.seal()
    assert main(["compare", "ddd1", "--store", str(tmp_path)]) == 5
    shown = printed(capsys)
    assert "not weighed: the base crashed" in shown and "unbounded" in shown and "e+21" not in shown


def test_files_of_other_tools(tmp_path: Path, store: str, capsys: pytest.CaptureFixture[str]) -> None:
    calm = [[1e-3 * factor] * 3 for factor in (1.0, 1.01, 0.99, 1.005)]
    files = [
        str(pyperf_file(tmp_path / f"{name}.json", {"a": [[value * factor for value in values] for values in calm]}))
        for name, factor in (("old", 1.0), ("new", 2.0))
    ]
    assert main(["compare", *files, "--store", store]) == 0
    shown = printed(capsys)
    assert "base old.json · head new.json" in shown and "foreign/pyperf:a" in shown and ", not confirmed" in shown
    assert main(["compare", *files, "--confirm", "--store", store]) == 2
    assert "another tool's file" in capsys.readouterr().err
    other = str(google_file(tmp_path / "g.json", [repetition("a", 0, 5.0)]))
    assert main(["compare", files[0], other, "--store", store]) == 5
    assert "– missing: 1" in printed(capsys)


def test_hostile_names_never_reach_the_terminal(tmp_path: Path, store: str, capsys: pytest.CaptureFixture[str]) -> None:
    items = [
        repetition("evil\x1b]0;owned\x07\x9b31m\u202e", 0, 5.0),
        repetition("bad", 0, 1.0, error_occurred=True, error_message="\x1b[2J\r\n"),
    ]
    files = [str(google_file(tmp_path / name, items)) for name in ("a.json", "b.json")]
    main(["compare", *files, "--store", store])
    shown = capsys.readouterr()
    assert "evil" in shown.out and all(char.isprintable() or char in "\n\u202f" for char in shown.out + shown.err)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["aaa1", "zzz9"], "no run named"),
        (["aaa1", "bbb1", "--metric", "peak_memry"], "did you mean peak_memory"),
        (["aaa1", "bbb1", "--margin", "rate=2%"], "no metric that is compared named 'rate'"),
        (["aaa1", "bbb1", "--margin", "lots"], "share"),
        (["aaa1", "bbb1", "--floor", "-1"], "share"),
        (["aaa1,bbb1", "bbb1"], "on both sides"),
        (["bbb1", "--confirm"], "nothing to confirm"),
        (["bbb1", "bbb1", "--confirm"], "nothing to confirm"),
        (["bbb1", "--alpha", "0.05"], "--alpha cannot be used with one run"),
        (["vs", "bbb1", "--floor", "1%", "--allow-edited"], "--floor and --allow-edited cannot be used with one run"),
        (["bbb1", "bbb1", "--floor", "1%"], "--floor cannot be used with one run"),
        (["bbb1", "--metric", "peak_memory"], "time alone"),
        (["aaa1", "bbb1", "--alpha", "0"], "alpha"),
    ],
)
def test_mistakes_are_usage_errors(words: list[str], said: str, store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *words, "--store", store]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and said in shown.err


def test_margin_and_floor_change_the_verdict(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "aaa1", "bbb1", "--json", "--store", store]
    main([*words, "--margin", "time=150%"])
    assert "share" in capsys.readouterr().err
    main([*words, "--margin", "90%"])
    assert json.loads(printed(capsys))["deltas"][1]["verdict"] == "same"
    main([*words, "--floor", "90%"])
    assert json.loads(printed(capsys))["deltas"][0]["verdict"] == "unclear"


@pytest.mark.parametrize(("margin", "verdict"), [("compile_time=10%", "same"), ("10%", "same"), ("time=10%", "slower"), ("1%", "slower")])
def test_a_margin_of_one_run_is_for_all_that_it_compares(
    margin: str, verdict: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Store(tmp_path / "store")
    part = PairPart(1.04, 1.03, 1.05, p=1e-6)
    with made.create(Header(id="ddd1", created="2026-01-02T03:00:00Z", machine_key="one")) as writer:
        writer.append(record(case(1), 1e-3))
        writer.append(record(case(1, "compile"), 1e-3))
        arms = Arm(case(1)), Arm(case(1, "compile"))
        writer.append_pair(Pair(*arms, 1.0, 0.99, 1.01, 0.99, 8, 64, 1, (4, 4), parts={"compile_time": part}))
        writer.seal()
    assert main(["compare", "ddd1", "--margin", margin, "--json", "--store", str(made.root)]) == 0
    found = {item["metric"]: item["verdict"] for item in json.loads(printed(capsys))["deltas"]}
    assert found["compile_time"] == verdict
    assert main(["compare", "ddd1", "--margin", "code_size=1%", "--store", str(made.root)]) == 2
    assert "no metric that is compared named 'code_size'" in capsys.readouterr().err


def test_no_framework_is_imported(store: str) -> None:
    import subprocess
    import sys

    code = (
        "import sys; from steelyard.cli.main import main; "
        f"main(['compare', 'aaa1', 'bbb1', '--store', {store!r}]); "
        "print([name for name in ('torch', 'jax', 'tensorflow', 'yaml') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_two_runs_with_nights_before_them_need_no_assumed_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store(tmp_path / "nights")
    times = [1e-3 * factor for factor in (1.0, 1.003, 0.998, 1.002, 1.0, 0.997, 1.004, 1.001, 1.2)]
    for day, seconds in enumerate(times, 1):
        save(store, {saved_case("a"): seconds}, created=f"2026-01-{day:02}T03:00:00Z")
    assert main(["compare", "latest~1", "latest", "--store", "nights", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert any("from 7 earlier runs on this machine" in note for note in found["notes"])
    (delta,) = found["deltas"]
    assert delta["verdict"] == "slower" and delta["high"] - delta["low"] < 0.2
    assert main(["gate", "latest~1", "latest", "--store", "nights", "--json"]) in (0, 4)
    assert any("from 7 earlier runs" in note for note in json.loads(capsys.readouterr().out)["notes"])
