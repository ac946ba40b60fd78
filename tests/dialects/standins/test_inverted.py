"""Users' code that calls the runner: every call is a case of the run, and a crash costs that case alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import steelyard
from steelyard.engine import conduct
from steelyard.engine.run import NoWatch
from steelyard.engine.sinks import Sink
from steelyard.errors import FAILED, NOTHING, PASS, UsageError
from steelyard.model.case import Case
from steelyard.model.experiment import Experiment, Settings, UserScript
from steelyard.store.runs import Run, Store

SHIM = "tests.dialects.standins.inverted"
PATH = os.pathsep.join((str(Path(steelyard.__file__).parents[1]), str(Path(__file__).parents[3])))
HEAD = "import json, os, sys\nfrom benchmark_v2 import BenchmarkConfig, BenchmarkRunner\nrunner, told = BenchmarkRunner(), []\n"
TAIL = "open(sys.argv[1], 'w').write(json.dumps(told))\n"
QUICK = Settings(budget=0.02, telemetry=False, timeout=20)


@pytest.fixture(autouse=True)
def _reachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", PATH)


class Counting(Sink):
    """Which cases began, which were taken, and how many workers it took."""

    def __init__(self) -> None:
        self.begun_cases: list[str] = []
        self.taken: list[str] = []
        self.workers = 0

    def begun(self, environment: Any) -> None:
        self.workers += 1

    def started(self, job: Any) -> None:
        self.begun_cases.append(job.case.id)

    def take(self, job: Any, record: Any, arrays: Any) -> None:
        self.taken.append(record.status)


def drive(tmp_path: Path, body: str, settings: Settings = QUICK, **words: Any) -> tuple[Run, int, Counting, Any]:
    """Run a script, and what it wrote down of what its runner told it."""
    file, out, sink = tmp_path / "bench.py", tmp_path / "told.json", Counting()
    file.write_text(HEAD + body + TAIL)
    script = UserScript(SHIM, str(file), (str(out),), backend="fake")
    ready = conduct.from_experiment(Experiment("x", script=script, settings=settings))
    done = conduct.execute(ready, Store(tmp_path / "s"), ["x"], lambda writer: NoWatch(), sink=sink, **words)
    return done.run, done.code, sink, json.loads(out.read_text()) if out.exists() else None


def test_every_call_is_a_record_of_the_run_and_its_result_comes_back(tmp_path: Path) -> None:
    body = "for s in (1e-3, 2e-3, 1e-3):\n    told.append(runner.run(BenchmarkConfig(seconds=s, iterations=4)))\n"
    run, code, sink, told = drive(tmp_path, body)
    assert code == PASS and [record.case["params"]["seconds"] for record in run.records] == [1e-3, 2e-3]
    assert len(told) == 3 and told[0] == told[2] and [len(item["latencies"]) for item in told] == [4, 4, 4]
    assert sink.workers == 1 and sink.taken == ["ok", "ok"] and sink.begun_cases == [run.records[0].id, run.records[1].id]
    assert run.header.cases == [] and run.records[0].requested["fixed"]["repeats"] == 4
    assert Case.from_plain(run.records[0].case).id == run.records[0].id and "noise" in run.records[0].case["params"]


def test_a_crash_costs_its_case_and_the_script_goes_on_with_what_is_known(tmp_path: Path) -> None:
    body = "for f in ('none', 'segfault', 'raise', 'exit'):\n    told.append(runner.run(BenchmarkConfig(fault=f)))\n"
    _, code, sink, told = drive(tmp_path, body + "told.append(runner.run(BenchmarkConfig(seconds=3e-3)))\n")
    assert (
        code == FAILED and sink.taken == ["ok", "crashed", "failed", "crashed", "ok"] and len(sink.begun_cases) == 5 and sink.workers == 3
    )
    assert [item.get("error", "ok").split(":")[0] for item in told] == ["ok", "crashed", "failed", "crashed", "ok"]


def test_a_function_of_the_script_is_a_case_too_and_our_own_way_of_sampling_holds(tmp_path: Path) -> None:
    run, code, _, told = drive(tmp_path, "told.append(runner.run_function('add', lambda: sum(range(100))))\n")
    assert code == PASS and run.records[0].case["workload"] == "script/add" and run.records[0].effective["sampling"] == "blocks"
    assert told[0]["median"] == run.records[0].metrics["time"].value > 0


def test_what_goes_wrong_in_the_scripts_own_code_is_told_of_the_script(tmp_path: Path) -> None:
    first = "told.append(runner.run(BenchmarkConfig()))\n"
    (tmp_path / "a").mkdir()
    run, code, _, _ = drive(tmp_path / "a", first + "raise ValueError('no good')\n")
    assert code == FAILED and [record.status for record in run.records] == ["ok", "failed"]
    assert run.records[1].case["workload"] == "script" and "no good" in run.records[1].reason
    (tmp_path / "b").mkdir()
    run, code, sink, _ = drive(tmp_path / "b", first + "os._exit(3)\n")
    assert [record.status for record in run.records] == ["ok", "crashed"] and "the script's own code" in run.records[1].reason
    assert len(sink.begun_cases) == 1
    (tmp_path / "c").mkdir()
    assert drive(tmp_path / "c", "sys.exit(0)\n")[1] == NOTHING


def test_a_killed_run_goes_on_and_measures_only_the_rest(tmp_path: Path) -> None:
    body = "for s in (1e-3, 2e-3, 3e-3):\n    told.append(runner.run(BenchmarkConfig(seconds=s)))\n"
    with pytest.MonkeyPatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Counting, "take", lambda sink, job, record, arrays: _stop_at(record, 2e-3))
        drive(tmp_path, body)
    run, code, sink, told = drive(tmp_path, body, resume="")
    assert code == PASS and len(sink.begun_cases) == 1 and len(run.records) == 3 and len(told) == 3


def _stop_at(record: Any, seconds: float) -> None:
    if record.case["params"]["seconds"] == seconds:
        raise KeyboardInterrupt


def test_without_a_conductor_the_shim_measures_in_the_scripts_own_process(tmp_path: Path) -> None:
    head = f"from {SHIM} import put_in_place\nput_in_place()\n"
    (tmp_path / "bench.py").write_text(head + HEAD + "told.append(runner.run(BenchmarkConfig(iterations=5)))\n" + TAIL)
    subprocess.run([sys.executable, "bench.py", "told.json"], cwd=tmp_path, check=True, timeout=60)
    [told] = json.loads((tmp_path / "told.json").read_text())
    assert len(told["latencies"]) == 5 and not (tmp_path / ".steelyard").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"script": UserScript(SHIM, "nowhere.py")}, "there is no such file"),
        ({"settings": Settings(profile=True)}, "profile beside it"),
        ({"include": ("fake/work@fake/eager:eval",)}, "cases beside it"),
    ],
)
def test_what_a_script_cannot_be_run_with_is_refused(words: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        conduct.from_experiment(Experiment("x", **{"script": UserScript(SHIM, __file__), **words}))
