"""Broken cases cost themselves alone: each gets its status, the good ones between them are measured."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from steelyard import Experiment, Matrix, Settings
from steelyard import run as steelyard_run
from steelyard.engine import limits
from steelyard.model.record import UNWEIGHED, unweighed
from steelyard.store.runs import read_run
from tests.engine.drive import processes_below, run_json, steelyard

EXPECTED = {
    "none": ("ok", ""),
    "segfault": ("crashed", "SIGSEGV during first call"),
    "exit": ("crashed", "exited with code 0 and no answer"),
    "hang": ("timeout", "no answer within 4.00 s"),
    "grandchild": ("ok", ""),
    "escape": ("ok", ""),
    "abandon": ("crashed", "exited with code 1"),
    "eat": ("oom", "used more memory than its limit of 600 MiB"),
    "raise": ("failed", "ValueError: told to fail"),
    "garbage": ("ok", ""),
    "wrong": ("wrong", "16 of 16 values differ"),
    "not_a_number": ("wrong", "16 of 16 values are NaN"),
    "unsupported": ("unsupported", "told to be unsupported"),
    "not_applicable": ("not_applicable", "told to be meaningless"),
    "not_applied": ("not_applied", "told to change nothing"),
}


@pytest.mark.parametrize("isolate", ["workload", pytest.param("case", marks=pytest.mark.deep)])
def test_each_fault_has_its_own_status_and_nothing_is_left_running(tmp_path: Path, isolate: str) -> None:
    found = run_json(
        "fake/work",
        "-a",
        f"fault={','.join(EXPECTED)}",
        "--timeout",
        "4s",
        "--memory",
        "600MiB",
        "--isolate",
        isolate,
        cwd=tmp_path,
        check=3,
    )
    seen = {record["case"]["params"]["fault"]: record for record in found["records"]}
    assert {fault: record["status"] for fault, record in seen.items()} == {fault: status for fault, (status, _) in EXPECTED.items()}
    for fault, (_, words) in EXPECTED.items():
        assert words in seen[fault]["reason"]
    assert processes_below(tmp_path) == []


def test_good_cases_between_broken_ones_are_measured_for_real(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text(
        "from steelyard import workload, Task\n"
        "from steelyard.workloads.fake import misbehave\n"
        "@workload('mixed', axes={'fault': ['none'], 'turn': [0]}, backend='numpy')\n"
        "def mixed(fault, turn, be):\n"
        "    x = be.randn(64)\n"
        "    return Task(lambda: (misbehave(fault), x + turn)[1])\n"
    )
    words = ["-a", "fault=none,segfault,hang,exit,raise", "-a", "turn=0,1", "--timeout", "2s", "--budget", "20ms"]
    found = run_json(str(file), *words, cwd=tmp_path, check=3)
    statuses = [record["status"] for record in found["records"]]
    assert statuses == ["ok", "ok", "crashed", "crashed", "timeout", "timeout", "crashed", "crashed", "failed", "failed"]
    assert all(record["metrics"]["time"]["value"] > 0 for record in found["records"][:2])
    assert processes_below(tmp_path) == []


@pytest.mark.parametrize("isolate", ["workload", pytest.param("case", marks=pytest.mark.deep)])
def test_one_row_each_for_a_segfault_a_hang_with_a_grandchild_and_one_that_writes_then_dies(tmp_path: Path, isolate: str) -> None:
    file = tmp_path / "models.py"
    file.write_text(
        "import atexit, os, subprocess, sys, time\nfrom steelyard import Task, workload\n"
        "from steelyard.workloads.fake import misbehave\n"
        "def hang():\n"
        "    subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1e6)'], start_new_session=True)\n"
        "    time.sleep(1e6)\n"
        "def write_and_die():\n"
        "    open('results.jsonl', 'a').write('{\"half\": ')\n    print('a row', flush=True)\n    os._exit(1)\n"
        "WAYS = {'segfault': lambda: misbehave('segfault'), 'hang': hang, 'write': write_and_die,\n"
        "        'die at exit': lambda: atexit.register(os.abort), 'good': lambda: None, 'good too': lambda: None}\n"
        "@workload('model', axes={'way': list(WAYS)}, backend='numpy')\ndef model(way, be):\n"
        "    x = be.randn(8)\n    done = []\n"
        "    return Task(lambda: (done or (done.append(1), WAYS[way]()), x + 1)[1])\n"
    )
    found = run_json(str(file), "--timeout", "3s", "--budget", "20ms", "--isolate", isolate, cwd=tmp_path, check=3)
    rows = [(record["case"]["params"]["way"], record["status"]) for record in found["records"]]
    assert rows == [
        ("segfault", "crashed"), ("hang", "timeout"), ("write", "crashed"), ("die at exit", "ok"), ("good", "ok"), ("good too", "ok"),
    ]  # fmt: skip
    assert all(record["metrics"]["time"]["value"] > 0 for record in found["records"][3:])
    assert "a row" in found["records"][2]["reason"]
    assert processes_below(tmp_path) == []


def test_the_last_words_of_a_crashed_worker_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "loud.py"
    file.write_text(
        "import os\nfrom steelyard import workload, Task\n"
        "def cry():\n    print('goodbye cruel world', flush=True)\n    os._exit(9)\n"
        "@workload('loud', backend='numpy')\ndef loud(be):\n    return Task(cry)\n"
    )
    found = run_json(str(file), cwd=tmp_path, check=3)
    record = found["records"][0]
    assert "goodbye cruel world" in record["reason"]
    log = Path(found["path"]) / record["attachments"][0]["path"]
    assert "goodbye cruel world" in log.read_text()


def test_nothing_measured_is_never_green(tmp_path: Path) -> None:
    steelyard("run", "fake/work", "-a", "fault=unsupported", cwd=tmp_path, check=5)


def test_the_watch_over_memory_works_without_control_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ROOT", tmp_path / "no-such-place")
    greedy = Experiment(matrix=(Matrix(("fake/work",), axes={"fault": ("eat", "none")}),), settings=Settings(memory=600 << 20, timeout=20))
    found = steelyard_run(greedy, store=tmp_path)
    assert [record.status for record in found.records] == ["oom", "ok"]
    assert "watchdog" in found.records[0].reason


def test_a_memory_limit_kills_a_forked_and_a_fresh_worker_alike(tmp_path: Path) -> None:
    file = tmp_path / "greedy.py"
    file.write_text(
        "from dataclasses import replace\nfrom steelyard import workload, Task, variant\nfrom steelyard.workloads.fake import misbehave\n"
        "@variant('new', fresh=True)\ndef new(task):\n    return replace(task, fn=lambda: task.fn())\n"
        "@workload('greedy', backend='numpy')\ndef greedy(be):\n    return Task(lambda: misbehave('eat'))\n"
    )
    found = run_json(str(file), "-V", "eager,new", "--memory", "500MiB", "--isolate", "case", cwd=tmp_path, check=3)
    assert [record["status"] for record in found["records"]] == ["oom", "oom"]


def test_a_comparison_that_could_not_be_made_is_not_green(tmp_path: Path) -> None:
    file = tmp_path / "fickle.py"
    file.write_text(
        "from dataclasses import replace\nimport os\nfrom steelyard import Task, variant, workload\nbuilt = []\n"
        "@workload('steady', backend='numpy')\ndef steady(be):\n    x = be.randn(64)\n    return Task(lambda: x + 1)\n"
        "@variant('once')\ndef once(task, how: str = 'raise'):\n"
        "    built.append(1)\n"
        "    if len(built) > 1:\n        os._exit(7) if how == 'die' else 1 / 0\n"
        "    return replace(task, fn=lambda: task.fn())\n"
    )
    found = run_json(str(file), "-V", "once,once[how=die]", "--vs", "eager", "--isolate", "case", "--budget", "20ms", cwd=tmp_path, check=3)
    told = [record["effective"].get("unweighed", "") for record in found["records"]]
    assert [record["status"] for record in found["records"]] == ["ok", "ok", "ok"]
    assert "ZeroDivisionError" in told[1] and "exited with code 7" in told[2]
    assert "not weighed" in steelyard("show", cwd=tmp_path).stdout


def test_of_comparisons_that_were_lost_together_each_case_says_so(tmp_path: Path) -> None:
    """They are made at the last case of a point, when the records of the others are written already."""
    file = tmp_path / "fickle.py"
    file.write_text(
        "from dataclasses import replace\nimport os\nfrom steelyard import Task, variant, workload\nbuilt = []\n"
        "@workload('steady', backend='numpy')\ndef steady(be):\n    x = be.randn(64)\n    return Task(lambda: x + 1)\n"
        "@variant('plus')\ndef plus(task, what: int = 0):\n"
        "    built.append(what)\n"
        "    if built.count(what) > 1:\n        os._exit(7)\n"
        "    if what == 3:\n        1 / 0\n"
        "    return replace(task, fn=lambda: task.fn())\n"
    )
    for last, status in (("plus[what=2]", "ok"), ("plus[what=3]", "failed")):
        found = run_json(str(file), "-V", f"plus,plus[what=1],{last}", "--vs", "eager", "--budget", "20ms", cwd=tmp_path, check=3)
        assert [record["status"] for record in found["records"]] == ["ok", "ok", "ok", status] and not found["pairs"]
        told = steelyard("compare", found["run"], cwd=tmp_path, check=None).stdout
        assert f"failed: {3 if status == 'ok' else 2}, not weighed: crashed" in told and "interleaved" not in told, told
        page = steelyard("report", found["run"], "-o", "page.html", cwd=tmp_path).stdout
        assert f"{3 if status == 'ok' else 2} comparisons were not made (crashed: the worker exited with code 7" in page, page
        lost = unweighed(read_run(Path(found["path"])).records)
        assert len(lost) == (3 if status == "ok" else 2) and all("exited with code 7" in why for why in lost.values())


def test_a_comparison_that_is_lost_again_when_a_run_goes_on_is_no_success(tmp_path: Path) -> None:
    """The record of its case is in the run already, from before the first attempt, and cannot say so."""
    (tmp_path / "fickle.py").write_text(
        "from dataclasses import replace\nimport os\nfrom steelyard import Task, variant, workload\nbuilt = []\n"
        "@workload('steady', backend='numpy')\ndef steady(be):\n    x = be.randn(64)\n    return Task(lambda: x + 1)\n"
        "@variant('plus')\ndef plus(task):\n    built.append(1)\n"
        "    if len(built) > 1 or os.path.exists('go'):\n        os._exit(7)\n    return replace(task, fn=lambda: task.fn())\n"
    )
    words = ("fickle.py", "-V", "plus", "--vs", "eager", "--budget", "20ms")
    path = Path(run_json(*words, cwd=tmp_path, check=3)["path"])
    file = path if path.is_file() else path / "run.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        line.get("record", {}).get("effective", {}).pop(UNWEIGHED, None)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines if "seal" not in line))
    (tmp_path / "go").touch()
    again = steelyard("run", *words, "--resume", cwd=tmp_path, check=3)
    assert "not weighed: steady" in again.stderr
    assert "seal" in file.read_text().splitlines()[-1]


def test_forged_answers_cost_their_case_alone_and_a_long_command_line_is_a_case(tmp_path: Path) -> None:
    file = tmp_path / "forger.py"
    file.write_text(
        "import os\nfrom steelyard import Task, workload\n"
        "def forge():\n"
        "    for fd in range(3, 64):\n"
        '        try:\n            os.write(fd, b\'\\xff\\xfe\\n{"is": "RecordAnswer", "record": {"id": "another"}}\\n\')\n'
        "        except OSError:\n            pass\n"
        "@workload('forger', axes={'n': [1, 2]}, backend='numpy')\ndef forger(n, be):\n"
        "    x = be.randn(8)\n    return Task(lambda: (forge() if n == 1 else None, x)[1])\n"
    )
    found = run_json(str(file), "--budget", "20ms", "--isolate", "case", cwd=tmp_path, check=3)
    assert [record["status"] for record in found["records"]] == ["crashed", "ok"]
    assert "an invalid message" in found["records"][0]["reason"]
    long = run_json("--runs", "3", "--", "sh", "-c", "true " + "a" * 80, cwd=tmp_path)
    assert long["records"][0]["status"] == "ok"


def test_what_failed_on_an_accelerator_takes_its_process_along(tmp_path: Path) -> None:
    """Some errors a device never forgets, and the next case has not deserved them."""
    (tmp_path / "pids.py").write_text(
        "import os\n"
        "from steelyard import workload, Task\n"
        "from steelyard.workloads.fake import misbehave\n"
        "@workload('pids', axes={'turn': [0, 1, 2]}, backend='fake')\n"
        "def pids(turn, be):\n"
        "    def fn():\n"
        "        be.spend(1e-3, 0.0)\n"
        "        misbehave('raise' if turn == 1 else 'none')\n"
        "    return Task(fn, effective={'pid': os.getpid()})\n"
    )
    for device, processes in (("cuda", 2), ("cpu", 1)):
        records = run_json("pids.py", "-d", device, "--budget", "20ms", cwd=tmp_path, check=3)["records"]
        assert [record["status"] for record in records] == ["ok", "failed", "ok"]
        assert len({record["effective"]["pid"] for record in records}) == processes


def test_a_program_cannot_hide_that_its_child_ran_out_of_memory(tmp_path: Path) -> None:
    child = f"{sys.executable} -c 'import time; held = b\"1\" * (400 << 20); time.sleep(60)'"
    for ending in ("true", "exit 3"):
        found = run_json("--runs", "1", "--memory", "150MiB", "--", "sh", "-c", f"{child}; {ending}", cwd=tmp_path, check=3)
        [record] = found["records"]
        assert record["status"] == "oom" and "used more memory than its limit of 150 MiB" in record["reason"]


@pytest.mark.parametrize(
    ("version", "name", "text"),
    [(1, "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"), (2, "memory.events", "low 0\noom 5\noom_kill 2\n")],
)
def test_the_count_of_kills_is_the_groups_own(tmp_path: Path, version: int, name: str, text: str) -> None:
    limit = limits.MemoryLimit(1, tmp_path, version)
    assert limit.kills() == 0 and not limit.struck() and limits.MemoryLimit(1).kills() == 0
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert limit.kills() == 2 and limit.struck()
