"""Passes under Nsight Compute and Nsight Systems: one way for all, and what a tool cannot do costs no case."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from steelyard.engine import after, conduct, passes, profilers
from steelyard.engine.messages import Found, Pass, Sources, encode
from steelyard.errors import SteelyardError, Unsupported, UsageError
from steelyard.measuring.marks import mark
from steelyard.measuring.ncu_table import COLUMNS, Kernel
from steelyard.model.case import Case
from steelyard.model.experiment import Experiment, Matrix, Settings
from tests.dialects.param.test_nsys import Export
from tests.engine.drive import run_json, steelyard

RANGE = "Id:Domain:Start/Stop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
ROW = ",".join(['"0"', f'"1 ""<default domain>:{mark("steelyard", 0, "forward")}:none"""', '"gemm"', '"1,000"', '"2,048"', '"50"', '"25"'])
NAMES = ",".join(f'"{name}"' for name in ["ID", RANGE, "Kernel Name", *COLUMNS.values()])
PAGE = f'{NAMES}\n"","","","nsecond","byte","%","%"\n{ROW}\n{ROW}\n'
NCU = 'while [ $# -gt 0 ]; do case "$1" in --log-file) log=$2;; --metrics) metrics=$2;; esac; shift; done\n'
REFUSED = 'echo "==ERROR== no permission"'
NSYS = """[ "$1" = export ] && { [ "$2 $3 $4" = "--type sqlite --output" ] || exit 2; cp HERE/recorded "$5"; exit; }
[ "$1 $2 $3 $4" = "profile -t cuda,nvtx -o" ] || exit 2
echo report >"$5"; shift 5; exec "$@"
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], dict[str, str]]:
    """Makes a program that does what its script says; the answer is an environment in which it is found."""

    def make(name: str, script: str) -> dict[str, str]:
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{script.replace('HERE', str(tmp_path))}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        return dict(os.environ)

    return make


Make = Callable[[str, str], dict[str, str]]


def counters(environment: dict[str, str], scratch: Path, timeout: float = 20) -> Found:
    return profilers.counters(["true"], environment, scratch, timeout)


def test_totals_with_a_missing_part_are_left_out() -> None:
    first, second = Kernel("softmax", 1e-3, 16e6, 0.7, 0.0), Kernel("gemm", 2e-3, None, None, None)
    assert list(profilers.totals([first, second])) == ["duration"]
    assert profilers.totals([first, first], 2) == {"duration": 1e-3, "dram_bytes": 16e6, "occupancy": 0.7, "tensor": 0.0}


def test_a_counter_that_is_not_found_is_asked_for_no_more(tmp_path: Path, stand_in: Make) -> None:
    tensor = COLUMNS["tensor"]
    (tmp_path / "page").write_text(PAGE)
    lacks = f'echo "==ERROR== Failed to find metric {tensor}" >$log; exit 1'
    found = counters(stand_in("ncu", f'{NCU}case "$metrics" in *{tensor}*) {lacks};; *) cp HERE/page $log;; esac'), tmp_path)
    assert {name: (figure.value, figure.unit) for name, figure in found.figures.items()} == {
        "ncu_duration": (pytest.approx(2e-6), "s"), "ncu_dram_bytes": (pytest.approx(4096), "B"),
    }  # fmt: skip
    assert found.facts["ncu"] == {"kernels": 2, "occupancy": 0.5, "tensor": 0.25}
    log, table = (Path(path) for _, path in found.files)
    assert log.read_text() == PAGE and json.loads(table.read_text())[0]["name"] == "gemm"


def test_kernels_of_many_cases_find_their_own(tmp_path: Path) -> None:
    other = ROW.replace("input_0_forward", "input_1_backward")
    (tmp_path / "log").write_text(f"{PAGE}{other}\n{ROW.replace('input_0', 'input_7')}\n")
    found, strays = profilers.kernels_by_case(tmp_path / "log", "steelyard", 2)
    assert [[part for part, _ in kernels] for kernels in found] == [["forward", "forward"], ["backward"]] and strays == 1


class NoCrew:
    """Nobody is needed: the tool starts the process."""

    mark = ""

    def ask(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError

    def dismiss(self) -> None: ...

    def see_off(self) -> None: ...


@pytest.mark.parametrize(("name", "script"), [("ncu", f"{NCU}{REFUSED} >$log; exit 1"), ("nsys", f"{REFUSED}; exit 1")])
def test_a_tool_that_fails_is_a_note(name: str, script: str, tmp_path: Path, stand_in: Make) -> None:
    stand_in(name, script)
    matrix, settings = Matrix(("op/softmax",), device=("cuda", "cpu")), Settings(**{name: True})
    plan = conduct.from_experiment(Experiment(matrix=(matrix,), settings=settings))
    [(asked, work)] = after.wanted(plan)
    assert asked == name
    for job in plan.jobs:
        reply = work(NoCrew(), job, plan, tmp_path)  # type: ignore[arg-type]
        assert not reply.found.figures
        if job.case.device == "cuda":
            assert reply.trouble == f"failed: {name} exited with code 1: ==ERROR== no permission"
        else:
            assert reply.found.facts[name].startswith("unsupported")


def test_a_tool_that_hangs_is_ended(tmp_path: Path, stand_in: Make) -> None:
    with pytest.raises(SteelyardError, match="ncu did not end within"):
        counters(stand_in("ncu", "while :; do :; done"), tmp_path, 0.2)


def test_a_tool_that_saw_no_marked_call_is_said(tmp_path: Path, stand_in: Make) -> None:
    (tmp_path / "page").write_text(PAGE.replace("steelyard_input", "other_input"))
    with pytest.raises(SteelyardError, match="no kernel of the marked call"):
        counters(stand_in("ncu", f"{NCU}cp HERE/page $log"), tmp_path)
    recorded(tmp_path, "[steelyard|op/softmax|measure|forward]")
    with pytest.raises(SteelyardError, match="nsys saw no marked call"):
        profilers.timeline(["true"], stand_in("nsys", NSYS), tmp_path, 20)


@pytest.mark.parametrize("name", ["ncu", "nsys"])
def test_what_cannot_be_had_is_said_before_anything_is_timed(name: str, tmp_path: Path, stand_in: Make) -> None:
    done = steelyard("run", "op/softmax", "-d", "cuda", f"--{name}", cwd=tmp_path, check=2, env={"PATH": str(tmp_path)})
    assert f"there is no '{name}'" in done.stderr and not (tmp_path / ".steelyard").exists()
    stand_in(name, "exit 0")
    with pytest.raises(UsageError, match="no case runs on one"):
        conduct.from_experiment(Experiment(matrix=(Matrix(("op/softmax",)),), settings=Settings(**{name: True})))


def recorded(folder: Path, label: str = mark("steelyard", 0, "forward")) -> None:
    """An export of two calls with a kernel and a wait each; the second has another kernel, and in the warm-up nobody is interested."""
    export = Export(folder / "recorded").range("[steelyard|measure]", 900, 4000).range("[steelyard|warmup]", 0, 800).kernel(10, 20, 30)
    export.range(label, 1000, 2000).kernel(1010, 1100, 1300).call(1350, 1900, 2)
    export.range(label, 3000, 3600).kernel(3010, 3050, 3200).kernel(3020, 3200, 3300, name=4).call(3310, 3590, 2)
    with closing(sqlite3.connect(export.path)) as database:
        database.executescript(export.rows)


DEVICE = '''
import os
from contextlib import nullcontext
from pathlib import Path
from steelyard import Task, workload
from steelyard.backends.numpy import Numpy

class Seen:
    """A range that is written down whenever it is entered, as NVTX would."""

    def __init__(self, label):
        self.label = label

    def __enter__(self):
        with Path(os.environ["SEEN"]).open("a") as file:
            print(self.label, file=file)

    def __exit__(self, *error):
        pass

class Labels:
    range = tool_range = staticmethod(Seen)
    profiler_range = staticmethod(nullcontext)

class Board(Numpy):
    """A device that the tools call cuda, on which numpy computes."""

    name = "board"

    def open(self):
        pass

    def labels(self, *, traced=False):
        return Labels()

@workload("board/add", backend="board")
def add(be):
    return Task(lambda x: x + 1, (be.full(8),))
'''


def test_the_whole_way_from_the_flag_to_the_record(tmp_path: Path, stand_in: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a stand-in for a GPU, under a stand-in for nsys that really starts the case and then exports what was recorded."""
    (tmp_path / "board.py").write_text(DEVICE)
    info = tmp_path / "board-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: board\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[steelyard.backends]\nboard = board:Board\n[steelyard.workloads]\nboard/add = board:add\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")]))))
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    stand_in("nsys", NSYS)
    recorded(tmp_path)
    found = run_json("board/add", "-B", "board", "-d", "cuda", "--nsys", "--budget", "1ms", "--no-verify", cwd=tmp_path)
    record, folder = found["records"][0], Path(found["path"])
    assert record["status"] == "ok" and record["requested"]["nsys"] is True
    figures = {name: figure["value"] for name, figure in record["metrics"].items() if name.startswith("nsys_")}
    parts = {"call": 800, "first_kernel": 75, "kernels": 225, "after_kernels": 500, "wait": 415}
    assert figures == {f"nsys_{name}": pytest.approx(value * 1e-9) for name, value in parts.items()}
    assert record["effective"]["nsys"] == {"calls": 2, "kernels_per_call": 1.5}
    report, table = (folder / item["path"] for item in record["attachments"] if item["kind"] == "nsys")
    assert (report.name, report.read_text()) == ("1-nsys.nsys-rep", "report\n")
    assert [kernel["name"] for kernel in json.loads(table.read_text())["calls"][1]["kernels"]] == ["gemm", "copy"]
    seen = (tmp_path / "seen").read_text().splitlines()
    assert seen.count("steelyard_measure") == seen.count(mark("steelyard", 0, "forward")) == 10
    shown = steelyard("show", "latest/1", cwd=tmp_path).stdout
    assert "nsys_first_kernel" in shown and sys.executable not in shown


def test_a_backend_that_cannot_mark_its_calls_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = tmp_path / "job.json"
    case = Case("op/softmax", (("dtype", "fp32"), ("m", 4), ("n", 4)), "numpy")
    job.write_text(encode(Pass(Sources(), Settings(), case, "nsys")))
    assert passes.main(["passes", str(job)]) == Unsupported.exit_code
    assert "error: backend numpy on cpu has no marks for an external profiler" in capsys.readouterr().err
