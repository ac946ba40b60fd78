"""Two things that cannot live in one process are weighed in lock-step, and a broken one costs its comparison alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sysconfig
import venv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from steelyard.engine import arm, conduct, lockstep, sides
from steelyard.engine.launch import Nursery, can_lay_out, nursery_modules
from steelyard.engine.lockstep import Bout
from steelyard.engine.place import Place
from steelyard.engine.plan import Plan
from steelyard.engine.pool import NoComparison, Pool
from steelyard.engine.selection import Request
from steelyard.errors import UsageError
from steelyard.model.pair import Pair, weigh
from steelyard.store.runs import Store
from tests.engine.drive import PROGRAM, arm_figures, processes_below, run_json, steelyard

WORK = """
from steelyard import Task, workload

@workload("mine/work", axes={{"turn": [0]}}, backend="fake")
def work(turn, be):
    x = be.randn(16)

    def fn():
        be.spend({seconds})
        return x * {factor}

    return Task(fn, reference=lambda: x * 2)
"""

REAL = """
import numpy as np
from steelyard import Task, workload

@workload("mine/adds", backend="numpy")
def adds(be):
    x, y = be.randn(256), be.randn(256)
    z = np.empty_like(x)

    def fn():
        for _ in range({count}):
            np.add(x, y, out=z)
        return z

    return Task(fn)
"""

PARTED = """
from steelyard import Reading, Task, workload

@workload("mine/parted", backend="fake")
def parted(be):
    return Task(measure=lambda: Reading(2e-3 + {second}, parts={{"op:first": 2e6, "op:second": {second} * 1e9}}))
"""

TWO_BACKENDS = """
from steelyard import Task, workload

@workload("mine/both", axes={"broken": [False]}, backend="fake")
def both(broken, be):
    x = be.randn(16)
    return Task(lambda: (be.spend(1e-2), x * 2)[1])

@both.on("numpy")
def _(broken, be):
    if broken:
        raise ValueError("told to fail")
    x = be.randn(16)
    return Task(lambda: x * 2)
"""

FAULTY = """
import os, time
from steelyard import Task, workload
from steelyard.workloads.fake import misbehave

@workload("mine/faulty", axes={{"fault": ["none"]}}, backend="fake")
def faulty(fault, be):
    x, calls = be.randn(16), iter(range(10**9))
    if {broken} and fault == "raise":
        raise ValueError("told to fail")

    def fn():
        be.spend(1e-4)
        if {broken} and fault in ("exit", "hang") and next(calls) == 25:
            misbehave(fault)
        late = fault == "late" and next(calls) > 5
        return x * (3 if {broken} and (late or fault == "wrong") else 2)

    return Task(fn, reference=lambda: x * 2)
"""


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Temporary files in a folder of their own, which is empty again afterwards."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    yield folder
    assert list(folder.glob("steelyard-arms-*")) == []


def checkouts(root: Path, head: str, base: str, name: str = "bench.py") -> tuple[Path, Path]:
    """Two folders that differ in one file."""
    folders = root / "new", root / "old"
    for folder, text in zip(folders, (head, base), strict=True):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folders


def prepare(monkeypatch: pytest.MonkeyPatch, folder: Path, vs: str, *selectors: str, **more: Any) -> Plan:
    """A plan made in a folder, as the command line would."""
    monkeypatch.chdir(folder)
    settings = {"vs": vs, "budget": 0.02, "timeout": 60.0, **more.pop("settings", {})}
    return conduct.prepare(Request(selectors=selectors, settings=settings, **more), Store(folder / ".steelyard"))


def weighed(plan: Plan, pairs: int = 2) -> Pair:
    """The first job of a plan, weighed with a small pool."""
    pool = Pool(pairs)
    try:
        return lockstep.weigh(pool, plan.jobs[0], plan, lambda phase, fraction: None)[0]
    finally:
        pool.close()


class TestTwoBackends:
    @pytest.mark.parametrize(("base", "head", "verdict"), [("fake", "numpy", "faster"), ("numpy", "fake", "slower")])
    def test_a_base_on_another_backend_is_weighed_in_processes_of_its_own(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base: str, head: str, verdict: str
    ) -> None:
        (tmp_path / "bench.py").write_text(TWO_BACKENDS)
        ready = prepare(monkeypatch, tmp_path, f"{base}/eager", "bench.py", backend=(head,))
        assert [job.case.backend for job in ready.jobs] == [base, head]
        pair = weighed(replace(ready, jobs=ready.jobs[1:]))
        assert (pair.base.id, pair.head.id) == tuple(job.case.id for job in ready.jobs)
        assert (pair.base.environment, pair.layout, weigh(pair).verdict) == ("", "free: two backends", verdict)
        assert weigh(pair).base == ready.jobs[0].case.id

    def test_a_base_that_fails_costs_its_comparison_alone_and_is_not_tried_again(self, tmp_path: Path) -> None:
        (tmp_path / "bench.py").write_text(TWO_BACKENDS)
        found = run_json(
            "bench.py", "-B", "fake", "-a", "broken=true", "--vs", "numpy/eager", "--runs", "1", "--no-verify", cwd=tmp_path, check=3
        )
        base, head = found["records"]
        assert (base["status"], head["status"], found["pairs"]) == ("failed", "ok", [])
        assert head["effective"]["unweighed"].startswith(f"the base ({base['id']}) is failed: ")


class TestTwoCheckouts:
    def test_the_command_line_weighs_every_case_and_leaves_nothing_running(self, tmp_path: Path) -> None:
        new, old = checkouts(tmp_path, WORK.format(seconds="1e-4", factor=2), WORK.format(seconds="2e-4", factor=2))
        found = run_json("bench.py", "-a", "turn=0,1", "--vs-path", "../old", "--budget", "20ms", cwd=new)
        assert [record["status"] for record in found["records"]] == ["ok", "ok"]
        assert [pair["head"]["id"] for pair in found["pairs"]] == [record["id"] for record in found["records"]]
        for pair in found["pairs"]:
            assert pair["base"]["id"] == pair["head"]["id"] and pair["base"]["source"] != pair["head"]["source"]
            assert pair["base"]["environment"] == "path:../old" and pair["head"]["environment"] == ""
            assert pair["ratio"] == pytest.approx(0.5) and pair["high"] < 0.51
            assert (pair["schedule"], pair["processes"]) == ("lock-step quads", 16)
            assert len(pair["centres"]) == 8 and pair["quads"] >= 8
        assert processes_below(new) == processes_below(old) == []

    def test_both_arms_have_their_own_time_and_commit(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        new, old = checkouts(tmp_path, WORK.format(seconds="2e-4", factor=2), WORK.format(seconds="1e-4", factor=2))
        for folder in (new, old):
            for words in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", folder.name]):
                subprocess.run(["git", *words], cwd=folder, check=True)
        (new / "bench.py").write_text((new / "bench.py").read_text() + "\n# not committed\n")
        (new / "build").mkdir()
        pair = weighed(prepare(monkeypatch, new, "path:../old", "bench.py"))
        commits = [subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=folder, text=True).strip() for folder in (old, new)]
        assert [(arm.commit, arm.dirty) for arm in (pair.base, pair.head)] == [(commits[0], False), (commits[1], True)]
        assert pair.base.time and pair.head.time
        assert (pair.base.time.value, pair.head.time.value) == (pytest.approx(1e-4), pytest.approx(2e-4))
        assert sides._origin(new / "build") == ("", False), "a folder that git does not know is of no commit"

    def test_real_work_twice_as_much_is_slower(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        new, _ = checkouts(tmp_path, REAL.format(count=100), REAL.format(count=50))
        pair = weighed(prepare(monkeypatch, new, "path:../old", "bench.py"), pairs=4)
        assert weigh(pair).verdict == "slower"
        assert pair.calls[0] >= 1 and set(pair.discarded) == {"base", "head"}

    def test_packages_come_from_their_own_checkout_and_never_stand_for_python_itself(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        text = WORK.format(seconds="SECONDS", factor=2)
        new, old = checkouts(tmp_path, f"from pack.speed import SECONDS\n{text}", f"from pack.speed import SECONDS\n{text}", "sub/bench.py")
        for folder, seconds in ((new, 3e-3), (old, 1e-3)):
            (folder / "src" / "pack").mkdir(parents=True)
            (folder / "src" / "pack" / "speed.py").write_text(f"SECONDS = {seconds}\n")
            for name in ("queue.py", "src/bisect.py"):
                (folder / name).write_text("raise ImportError('shadowed')\n")
        pair = weighed(prepare(monkeypatch, new, "path:../old", "sub/bench.py"))
        assert pair.ratio == pytest.approx(3.0)

    def test_a_file_outside_of_both_serves_both(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "bench.py").write_text("from speed import SECONDS\n" + WORK.format(seconds="SECONDS", factor=2))
        new, _ = checkouts(tmp_path, "SECONDS = 1e-3", "SECONDS = 4e-3", "speed.py")
        pair = weighed(prepare(monkeypatch, new, "path:../old", "../bench.py"))
        assert pair.ratio == pytest.approx(0.25)
        assert "is the same file for both" in pair.notes[0]

    def test_a_program_is_started_in_its_own_checkout(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        new, old = checkouts(tmp_path, "#!/bin/sh\nexit 0\n", "#!/bin/sh\nexit 3\n", "prog")
        for folder in (new, old):
            (folder / "prog").chmod(0o755)
        plan = prepare(monkeypatch, new, "path:../old", commands=(("./prog",),))
        with pytest.raises(NoComparison, match=r"the base \(path:../old\) failed: the command exited with 3"):
            weighed(plan)
        (old / "prog").write_text("#!/bin/sh\nexit 0\n")
        pair = weighed(prepare(monkeypatch, new, "path:../old", commands=(("./prog",),)))
        assert (pair.schedule, pair.layout, pair.calls) == ("alternating calls", "free", (1, 1))

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (("--vs-path", "../nowhere"), "there is no such folder"),
            (("--vs-path", "bench.py"), "it is a file"),
            (("--vs-path", "../empty"), "../empty has no bench.py"),
            (("--vs-path", "../old", "--vs", "eager"), "--vs and --vs-path exclude each other"),
            (("--vs-path", "../broken"), "path:../broken: could not load"),
            (("--vs", "env:nowhere"), "no environment named 'nowhere'"),
        ],
    )
    def test_what_cannot_work_is_said_before_anything_is_timed(self, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
        new, _ = checkouts(tmp_path, WORK.format(seconds="1e-3", factor=2), "")
        (tmp_path / "empty").mkdir()
        (tmp_path / "broken").mkdir()
        (tmp_path / "broken" / "bench.py").write_text("import nothing_of_that_name\n")
        done = steelyard("run", "bench.py", *words, cwd=new, check=2)
        assert said in done.stderr and not (new / ".steelyard").exists()


class TestFaults:
    def test_a_broken_base_costs_its_comparison_alone(self, tmp_path: Path) -> None:
        new, old = checkouts(tmp_path, FAULTY.format(broken=False), FAULTY.format(broken=True))
        words = ["-a", "fault=none,exit,hang,raise,wrong,late", "--timeout", "3s", "--budget", "20ms", "--vs-path", "../old"]
        found = run_json("bench.py", *words, cwd=new, check=3)
        assert {record["status"] for record in found["records"]} == {"ok"}
        said = {record["case"]["params"]["fault"]: record["effective"].get("unweighed", "") for record in found["records"]}
        assert said["none"] == ""
        assert said["exit"].startswith("the base (path:../old) crashed: its process exited with code 0 and no answer during weighing")
        assert said["hang"].startswith("timeout: no answer within 3.00 s")
        assert said["raise"] == "the base (path:../old) failed: ValueError: told to fail"
        assert said["wrong"].startswith("the base (path:../old) wrong: not the answer of the workload's reference")
        assert said["late"].startswith("the base (path:../old) wrong: not the answer of the workload's reference")
        assert [pair["head"]["id"] for pair in found["pairs"]] == [found["records"][0]["id"]]
        assert processes_below(new) == processes_below(old) == []

    def test_an_interrupt_ends_both_arms_at_once(self, tmp_path: Path, scratch: Path) -> None:
        gate = tmp_path / "gate"
        os.mkfifo(gate)
        good = WORK.format(seconds="1e-3", factor=2)
        new, old = checkouts(tmp_path, good, good.replace("x * 2", f"[open({str(gate)!r}, 'w').write('x'), time.sleep(1e6)]", 1))
        (old / "bench.py").write_text("import time\n" + (old / "bench.py").read_text())
        running = subprocess.Popen([*PROGRAM, "run", "bench.py", "--vs-path", "../old"], cwd=new, stderr=subprocess.PIPE, text=True)
        with gate.open() as met:
            assert met.read(1) == "x"
            os.kill(running.pid, signal.SIGINT)
            assert running.wait(60) == 130
        assert running.communicate()[1].count("interrupted") == 1
        assert list(scratch.iterdir()) == []
        assert processes_below(new) == processes_below(old) == []

    def test_a_limit_on_memory_holds_for_the_arms(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        eating = WORK.format(seconds="1e-3", factor=2) + "\n    import numpy\n".replace("    ", "")
        hungry = eating.replace("    x = be.randn(16)\n", "    x = be.randn(16)\n    hoard = [numpy.ones(8 << 20) for _ in range(20)]\n")
        new, _ = checkouts(tmp_path, eating, hungry)
        plan = prepare(monkeypatch, new, "path:../old", "bench.py", settings={"memory": 500 << 20})
        with pytest.raises(NoComparison, match=r"the base .* oom: used more memory than its limit of 500 MiB"):
            weighed(plan)

    def test_what_an_arm_sends_is_checked(self) -> None:
        good = arm_figures((1, 2), quads=3)
        assert lockstep.checked(good)["quads"] == 3
        for name, value in (
            ("calls", [1]),
            ("quads", 0),
            ("quads", True),
            ("quad", 0.0),
            ("overhead", -1.0),
            ("doubt", -1.0),
            ("renewal", 0.0),
        ):
            with pytest.raises(ValueError, match="measurements of an arm"):
                lockstep.checked({**good, name: value})
        torn = Bout("1 0", (good, good), ({"took": b"1"}, {"took": b"2"}))
        with pytest.raises((ValueError, KeyError)):
            lockstep.rounds_of([torn], 1)


class TestEnvironments:
    @pytest.fixture()
    def other(self, apart: Path) -> str:
        """Another interpreter with the packages of this one, as `steelyard env create` would leave it."""
        path = apart / "envs" / "other"
        venv.create(path, symlinks=True)
        (next(path.glob("lib/*/site-packages")) / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
        (path / "steelyard-env.json").write_text(json.dumps({"stack": "numpy", "packages": {"numpy": "1"}}))
        return "other"

    def test_the_base_runs_in_the_other_interpreter(self, tmp_path: Path, other: str, monkeypatch: pytest.MonkeyPatch) -> None:
        text = WORK.format(seconds="2e-3 if 'envs' in sys.prefix else 1e-3", factor=2)
        new, _ = checkouts(tmp_path, f"import sys\n{text}", "")
        plan = prepare(monkeypatch, new, f"env:{other}", "bench.py")
        pair = weighed(plan)
        assert pair.ratio == pytest.approx(0.5)
        assert (pair.base.environment, pair.layout) == ("env:other", "free: two builds")

    def test_variants_are_weighed_against_themselves_there(self, other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        plan = prepare(monkeypatch, tmp_path, f"env:{other}", "fake/work", variant=("eager", "half"))
        assert [(job.case.variant, job.vs and job.vs.variant) for job in plan.jobs] == [("eager", "eager"), ("half", "half")]

    def test_a_misspelt_name_is_told_with_the_right_one(self, other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(UsageError) as error:
            prepare(monkeypatch, tmp_path, "env:othr", "fake/work")
        assert "did you mean other?" in str(error.value)

    def test_an_interpreter_that_is_gone_is_told_before_anything_is_measured(self, other: str, apart: Path, tmp_path: Path) -> None:
        (apart / "envs" / other / "bin" / "python").unlink()
        told = steelyard("run", "fake/work", "--vs", f"env:{other}", cwd=tmp_path, check=2).stderr
        assert "its interpreter is missing" in told and "env create" in told

    def test_an_interpreter_that_does_not_start_leaves_the_head_alone(self, other: str, apart: Path, tmp_path: Path) -> None:
        interpreter = apart / "envs" / other / "bin" / "python"
        interpreter.unlink()
        interpreter.write_text("#!/bin/sh\nexit 1\n")
        interpreter.chmod(0o755)
        found = run_json("fake/work", "--vs", f"env:{other}", cwd=tmp_path, check=3)
        assert found["records"][0]["status"] == "ok"
        assert "its processes could not be started" in found["records"][0]["effective"]["unweighed"]


def libraries(nursery: Nursery) -> list[tuple[str, str]]:
    """Where a process has its libraries."""
    lines = Path(f"/proc/{nursery.process.pid}/maps").read_text().splitlines()
    return sorted((line.split()[-1], line.split("-")[0]) for line in lines if ".so" in line)


class TestLayouts:
    @pytest.mark.skipif(not can_lay_out(), reason="this system does not let layouts be chosen")
    def test_equal_shifts_map_libraries_at_equal_places_and_others_elsewhere(self) -> None:
        nurseries = [Nursery(Place(), nursery_modules("numpy"), "layouts", shift, wait=False) for shift in (7, 7, 20_000)]
        try:
            for nursery in nurseries:
                nursery.wait()
            first, same, other = map(libraries, nurseries)
            assert first == same and not set(first) & set(other)
        finally:
            for nursery in nurseries:
                nursery.stop()

    def test_twins_share_a_layout_and_not_a_folder(self, tmp_path: Path) -> None:
        folders = tmp_path / "one", tmp_path / "two"
        for folder in folders:
            folder.mkdir()
        one, two = Nursery.twins((Place(folder=str(folders[0])), Place(folder=str(folders[1]))), nursery_modules("numpy"), "twins")
        try:
            one.wait()
            two.wait()
            assert libraries(one) == libraries(two)
            workers = one.fork(), two.fork()
            assert [Path(f"/proc/{worker.pid}/cwd").resolve() for worker in workers] == list(folders)
            for worker in workers:
                worker.leave()
                worker.see_off()
        finally:
            two.stop()
            one.stop()
        assert processes_below(folders[0]) == processes_below(folders[1]) == []

    @pytest.mark.deep
    def test_where_layouts_cannot_be_chosen_forks_share_theirs_and_the_rest_is_said_to_be_free(self, tmp_path: Path) -> None:
        fresh = "\n@work.variant('copy', fresh=True)\ndef copy(task):\n    return Task(lambda: task.fn(), reference=task.reference)\n"
        new, _ = checkouts(tmp_path, WORK.format(seconds="1e-3", factor=2) + fresh, WORK.format(seconds="2e-3", factor=2) + fresh)
        words = [*PROGRAM, "run", "--json", "bench.py", "-V", "eager,copy", "--vs-path", "../old", "--budget", "20ms"]
        limited = ["sh", "-c", 'ulimit -Hs 100000 && exec "$@"', "sh", *words]
        done = subprocess.run(limited, cwd=new, capture_output=True, text=True, timeout=120, check=True)
        eager, copy = json.loads(done.stdout)["pairs"]
        assert (eager["layout"], copy["layout"]) == ("matched", "free: this system does not let layouts be chosen")
        assert eager["ratio"] == pytest.approx(0.5) and copy["ratio"] == pytest.approx(0.5)

    def test_libraries_built_twice_are_two_builds(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        new, old = checkouts(tmp_path, WORK.format(seconds="1e-3", factor=2), WORK.format(seconds="1e-3", factor=2))
        for folder in (new, old):
            (folder / "pack").mkdir()
            (folder / "pack" / "fast.so").write_bytes(b"build one")
        same = prepare(monkeypatch, new, "path:../old", "bench.py").other
        (old / "pack" / "fast.so").write_bytes(b"build two")
        other = prepare(monkeypatch, new, "path:../old", "bench.py").other
        assert same and other and (same.layout, other.layout) == ("matched", "free: two builds")


class TestResume:
    def test_a_run_is_continued_only_while_the_other_side_is_the_same(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        new, old = checkouts(tmp_path, WORK.format(seconds="1e-3", factor=2), WORK.format(seconds="2e-3", factor=2))
        first, again = (prepare(monkeypatch, new, "path:../old", "bench.py").fingerprint("machine") for _ in range(2))
        assert first == again
        (old / "bench.py").write_text(WORK.format(seconds="5e-3", factor=2))
        edited = prepare(monkeypatch, new, "path:../old", "bench.py").fingerprint("machine")
        (old / "helper.py").write_text("X = 1\n")
        grown = prepare(monkeypatch, new, "path:../old", "bench.py").fingerprint("machine")
        elsewhere = prepare(monkeypatch, new, "path:.", "bench.py").fingerprint("machine")
        assert len({first, edited, grown, elsewhere}) == 4

    @pytest.mark.deep
    def test_a_measured_case_without_its_comparison_gets_that_alone(self, tmp_path: Path) -> None:
        new, _ = checkouts(tmp_path, WORK.format(seconds="1e-3", factor=2), WORK.format(seconds="2e-3", factor=2))
        words = ["bench.py", "--vs-path", "../old", "--budget", "20ms"]
        run_json(*words, cwd=new)
        file = next((new / ".steelyard" / "runs").glob("*/run.jsonl"))
        header, record, *_ = lines = file.read_text().splitlines()
        assert [next(iter(json.loads(line))) for line in lines] == ["header", "record", "pair", "seal"]
        file.write_text(f"{header}\n{record}\n")
        found = run_json(*words, "--resume", cwd=new)
        assert len(found["records"]) == 1 and found["pairs"][0]["ratio"] == pytest.approx(0.5)
        assert file.read_text().splitlines()[1] == record


class TestTakingTurns:
    def test_blocks_are_put_together_in_order_of_time(self) -> None:
        figures = arm_figures((1, 1), quads=5)
        drawn = arm.coins("8 0", 5)
        stamps: tuple[list[int], list[int]] = ([], [])
        for moment, turn in enumerate(arm.turns(drawn), 1):
            stamps[turn].append(moment)
        arrays = tuple(
            {"took": np.asarray(mine, "<i8").tobytes(), "busy": np.zeros(10, "<i8").tobytes(), "hit": np.zeros(10, "|u1").tobytes()}
            for mine in stamps
        )
        rounds = lockstep.rounds_of([Bout("8 0", (figures, figures), (arrays[0], arrays[1]))], 8)
        assert (np.round(rounds.seconds * 1e9).reshape(-1) == np.arange(1, 21)).all()
        assert (rounds.arm.reshape(-1) == arm.turns(drawn)).all()

    def test_parts_of_a_call_are_weighed_each_by_itself(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        new, _ = checkouts(tmp_path, PARTED.format(second="2e-3"), PARTED.format(second="1e-3"))
        pair = weighed(prepare(monkeypatch, new, "path:../old", "bench.py"))
        assert {name: part.ratio for name, part in pair.parts.items()} == pytest.approx({"op:first": 1.0, "op:second": 2.0})
        assert pair.ratio == pytest.approx(4 / 3)
        base, head = pair.parts["op:second"].base, pair.parts["op:second"].head
        assert base and head and (base.value, head.value) == pytest.approx((1e-3, 2e-3))

    def test_more_pairs_than_the_budget_allows_are_not_started(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        new, _ = checkouts(tmp_path, WORK.format(seconds="1.0", factor=2), WORK.format(seconds="1.0", factor=2))
        pair = weighed(prepare(monkeypatch, new, "path:../old", "bench.py"), pairs=6)
        assert (pair.processes, pair.quads) == (8, 4)


def test_a_plan_for_another_side_cannot_be_weighed_in_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its other side such a plan would weigh a case against itself."""
    plan = prepare(monkeypatch, tmp_path, "path:.", "fake/work")
    with pytest.raises(AssertionError):
        lockstep.weigh(Pool(1), replace(plan.jobs[0], side=None), plan, lambda phase, fraction: None)
