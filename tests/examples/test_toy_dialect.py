"""The example dialect as a user's package: found by its entry point, run, killed and continued, its results read, its mistakes told."""

from __future__ import annotations

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

TOY = Path(__file__).parents[2] / "examples" / "toy_dialect"
MOST_LINES = 150
SLOW = '''

import os, time


@workload("toy/wait", axes={"n": [1]}, backend="numpy")
def wait(n, be):
    """Counts its processes in a file, and the third of them does not end while another file is there."""
    with open("begun.txt", "a") as file:
        file.write(f"{n}\\n")
    while n == 3 and os.path.exists("hold"):
        time.sleep(0.01)
    return Task(lambda x: x.sum(), (be.randn(10, dtype="fp64"),))


wait.variant("blocked")(blocked)


@workload("toy/broken", axes={"n": [1]}, backend="numpy")
def broken(n, be):
    """Takes its process along."""
    return Task(lambda: os.abort() if os.path.exists("broken") else 1.0)


wait_too = broken.variant("blocked")(lambda task: replace(task, fn=lambda: 1.0))
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a user works, with the package installed."""
    site, here = tmp_path / "site", tmp_path / "here"
    info = site / "steelyard_toy-0.1.0.dist-info"
    info.mkdir(parents=True)
    info.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: steelyard-toy\nVersion: 0.1.0\n")
    info.joinpath("entry_points.txt").write_text("[steelyard.dialects]\ntoy = toy_dialect:DIALECT\n")
    shutil.copytree(TOY / "toy_dialect", site / "toy_dialect")
    shutil.copytree(TOY, here, ignore=shutil.ignore_patterns("toy_dialect", "*.toml", "*.md"))
    (here / ".steelyard").mkdir()
    with (here / "my_sums.py").open("a") as file:
        file.write(SLOW)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH", "")])]))
    return here


def call(folder: Path, *words: str, check: int = 0) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "steelyard", *words]
    done = subprocess.run(program, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == check, f"{words}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def toy(folder: Path, *words: str, check: int = 0) -> list[dict[str, Any]]:
    """The lines of its file."""
    call(folder, "as", "toy", "rows.json", "--file", "my_sums.py", "-o", "new.toy", *words, check=check)
    return [json.loads(line) for line in (folder / "new.toy").read_text().splitlines()]


def rows(folder: Path, *items: dict[str, Any]) -> None:
    usual = {"op": "toy/wait", "old": "eager", "new": "blocked"}
    (folder / "rows.json").write_text(json.dumps({"toy_rows": [{**usual, **item} for item in items]}))


def test_it_is_small_and_its_registration_is_that_of_its_project() -> None:
    files = sorted((TOY / "toy_dialect").glob("*.py"))
    assert sum(len(path.read_text().splitlines()) for path in files) <= MOST_LINES
    assert all(ast.get_docstring(ast.parse(path.read_text())) for path in files)
    assert '[project.entry-points."steelyard.dialects"]\ntoy = "toy_dialect:DIALECT"\n' in (TOY / "pyproject.toml").read_text()


def test_rows_of_two_cases_and_their_ratio_with_the_cold_call_apart(folder: Path) -> None:
    head, *found = toy(folder, "--repeats", "7")
    assert head == {"toy_results": 1} and [row["name"] for row in found] == ["small", "large", "back"]
    assert all(row["status"] == "ok" and len(row["times_s"]) == 6 and row["cold_s"] > 0 for row in found)
    assert found[1]["ratio"] > 1 > found[2]["ratio"] and all(row["low"] <= row["ratio"] <= row["high"] for row in found)
    run = json.loads(call(folder, "show", "--json").stdout)
    assert len(run["records"]) == 4 and len(run["pairs"]) == 3, "two cases stand in two rows each, and are measured once"
    assert all(record["requested"]["fixed"]["rehearse"] == record["requested"]["fixed"]["warmup"] == 0 for record in run["records"])


def test_its_config_is_known_to_run_and_check_and_its_results_to_the_rest(folder: Path) -> None:
    assert "toy" in call(folder, "list", "dialects").stdout and "toy " in call(folder, "as", "--help").stdout
    (folder / "own.json").write_text('{"toy_rows": [{"name": "a", "op": "op/softmax", "old": "eager", "new": "compile"}]}')
    assert "toy config · 2 cases would run" in call(folder, "check", "own.json").stdout
    call(folder, "convert", "rows.json", "--file", "my_sums.py", "-o", "rows.toml")
    same = [json.loads(call(folder, "run", name, "my_sums.py", "--dry-run", "--json").stdout) for name in ("rows.json", "rows.toml")]
    assert same[0] == same[1] and len(same[0]["cases"]) == 4
    shown = json.loads(call(folder, "run", "rows.json", "my_sums.py", "--json").stdout)
    assert [record["status"] for record in shown["records"]] == ["ok"] * 4 and len(shown["pairs"]) == 3
    toy(folder)
    slower = [json.loads(line) for line in (folder / "new.toy").read_text().splitlines()]
    for row in slower[1:]:
        row["times_s"] = [(3 + step / 100) * value for step, value in enumerate([1e-3] * 9)]
    (folder / "fast.toy").write_text("".join(json.dumps({**row, "times_s": [1e-3] * 9}) + "\n" for row in slower))
    (folder / "slow.toy").write_text("".join(json.dumps(row) + "\n" for row in slower) + '{"name": "torn')
    records = json.loads(call(folder, "show", "slow.toy", "--json").stdout)["records"]
    assert [record["id"] for record in records] == ["foreign/toy:small", "foreign/toy:large", "foreign/toy:back"]
    assert set(records[0]["metrics"]) == {"time", "cold_time"}
    deltas = json.loads(call(folder, "compare", "fast.toy", "slow.toy", "--json").stdout)["deltas"]
    assert [round(delta["time_ratio"]) for delta in deltas if delta["metric"] == "time"] == [3, 3, 3]
    assert "3.0x slower" in call(folder, "gate", "fast.toy", "slow.toy").stdout
    assert call(folder, "report", "new.toy", "-o", "page.html") and (folder / "page.html").stat().st_size > 10000


def test_a_killed_run_keeps_its_rows_and_goes_on_with_the_others(folder: Path) -> None:
    rows(folder, *({"name": f"row {n}", "sizes": {"n": n}} for n in (1, 2, 3, 4)))
    (folder / "hold").touch()
    words = ["as", "toy", "rows.json", "--file", "my_sums.py", "-o", "new.toy"]
    running = subprocess.Popen([sys.executable, "-m", "steelyard", *words], cwd=folder, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while "3" not in ((folder / "begun.txt").read_text() if (folder / "begun.txt").exists() else "") and time.monotonic() < until:
        time.sleep(0.02)
    running.send_signal(signal.SIGKILL)
    running.wait()
    before = (folder / "new.toy").read_bytes()
    assert before.count(b"\n") == 3
    (folder / "new.toy").write_bytes(before + b'{"name": "row 3", "sta')
    (folder / "hold").unlink()
    (folder / "begun.txt").unlink()
    found = toy(folder, "--resume")
    assert (folder / "new.toy").read_bytes().startswith(before) and [row["name"] for row in found[1:]] == [f"row {n}" for n in (1, 2, 3, 4)]
    assert set((folder / "begun.txt").read_text().split()) == {"3", "4"}
    (folder / "begun.txt").unlink()
    assert toy(folder, "--resume") == found and not (folder / "begun.txt").exists()


def test_a_row_that_failed_says_so_and_is_measured_again(folder: Path) -> None:
    rows(folder, {"name": "bad", "op": "toy/broken"}, {"name": "good"})
    (folder / "broken").touch()
    bad, good = toy(folder, check=3)[1:]
    assert bad["status"] == "crashed" and "SIGABRT" in bad["reason"] and good["status"] == "ok"
    told = json.loads(call(folder, "show", "new.toy", "--json").stdout)["records"]
    assert [record["status"] for record in told] == ["crashed", "ok"]
    (folder / "broken").unlink()
    assert [(row["name"], row["status"]) for row in toy(folder, "--resume")[3:]] == [("bad", "ok")]


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({"name": "a", "nwe": "eager"}, "no key named 'nwe'"),
        ({"name": 3}, "a row has name, op, old, new"),
        ({"name": "a", "sizes": [1]}, "a table of sizes"),
        ({"name": "a", "op": "toy/wiat"}, "did you mean toy/wait"),
        ({"name": "a", "new": "blokced"}, "did you mean blocked"),
        ({"name": "a", "new": "eager"}, "compared with itself"),
    ],
)
def test_what_is_wrong_with_a_config_is_told_before_anything_runs(folder: Path, item: dict[str, Any], said: str) -> None:
    rows(folder, {"name": "fine"}, item)
    for words in (["as", "toy", "rows.json", "--file", "my_sums.py"], ["run", "rows.json", "my_sums.py"]):
        assert said in call(folder, *words, check=2).stderr
    assert not (folder / "results.toy").exists() and not (folder / "begun.txt").exists()


def test_wrong_words_on_its_command_line_are_told(folder: Path) -> None:
    assert "nowhere.json" in call(folder, "as", "toy", "nowhere.json", check=2).stderr
    assert "--repeats" in call(folder, "as", "toy", "rows.json", "--repeats", "1", check=2).stderr
    assert "nowhere.py" in call(folder, "as", "toy", "rows.json", "--file", "nowhere.py", check=2).stderr
    (folder / "bad.json").write_text('{"toy_rows": []}')
    assert "toy_rows is a list of rows" in call(folder, "as", "toy", "bad.json", check=2).stderr
