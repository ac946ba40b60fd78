"""What two runs suggest is measured again from the code of both commits, and from nothing else."""

from __future__ import annotations

import json
import math
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from steelyard.analyze.compare import RunsSide
from steelyard.engine.confirm import asked_settings, confirm
from steelyard.errors import UsageError
from steelyard.machine import facts
from steelyard.model.case import Case
from steelyard.model.pair import Arm, Delta, Pair
from steelyard.model.record import Figure, Record
from steelyard.store.runs import Header, Run, Store
from tests.engine.drive import steelyard

BENCH = """
import os
import numpy as np
from steelyard import Task, workload

def adding(be, count):
    x, y = be.randn(256), be.randn(256)
    z = np.empty_like(x)

    def fn():
        for _ in range(count):
            np.add(x, y, out=z)
        return z

    return Task(fn)

@workload("mine/grown", backend="numpy")
def grown(be):
    return adding(be, {count})

@workload("mine/calm", backend="numpy")
def calm(be):
    return adding(be, 20)

@workload("mine/shy", backend="numpy")
def shy(be):
    if "SHY" in os.environ:
        raise ValueError("not today")
    return adding(be, 20)
"""
GROWN, CALM, SHY = (f"mine/{name}@numpy/eager:eval" for name in ("grown", "calm", "shy"))


def git(folder: Path, *words: str) -> str:
    known = ["-c", "user.name=Someone", "-c", "user.email=someone@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *known, *words], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def commit(folder: Path, count: int) -> str:
    (folder / "bench.py").write_text(BENCH.format(count=count), encoding="utf-8")
    git(folder, "add", "bench.py", ".gitignore")
    git(folder, "commit", "-m", f"count {count}")
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of two commits with a run of each; in the second everything looks slower, and one workload is."""
    folder = tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEELYARD_LOCKS", str(folder / "locks"))
        patch.setenv("STEELYARD_CACHE", str(folder / "cache"))
        git(folder, "init", "-q")
        (folder / ".gitignore").write_text(".steelyard\nlocks\ncache\n", encoding="utf-8")
        for count in (20, 40):
            commit(folder, count)
            steelyard("run", "bench.py", "--budget", "100ms", cwd=folder)
    store = Store(folder / ".steelyard")
    base, head = (store.open(info.id) for info in sorted(store.runs(), key=lambda info: info.created))
    save(store, "base", base, 1e-5)
    save(store, "head", head, 2e-5)
    return folder


def save(store: Store, id: str, run: Run, time: float, cases: tuple[str, ...] = ()) -> None:
    """The same run under another name, as if every case had taken this long that day, however busy the machine is now."""
    figure = Figure(time, "s", "lower", 0.998 * time, 1.002 * time, 500)
    with store.create(replace(run.header, id=id)) as writer:
        for record in run.records:
            if not cases or record.id in cases:
                writer.append(replace(record, samples=[], metrics={"time": figure}))
        writer.seal()


def trees(folder: Path) -> int:
    return len(git(folder, "worktree", "list").splitlines())


@pytest.mark.deep
def test_a_change_is_confirmed_an_unchanged_case_is_cleared_and_what_fails_stays_as_it_was(project: Path) -> None:
    words = ("base", "head", "--confirm", "--allow-edited", "--json")
    (project / "bench.py").write_text("raise SystemExit('uncommitted, and not to be measured')", encoding="utf-8")
    try:
        found = json.loads(steelyard("compare", *words, cwd=project, env={"SHY": "1"}).stdout)
    finally:
        git(project, "checkout", "-q", "bench.py")
    deltas = {delta["head"]: delta for delta in found["deltas"]}
    grown, calm, shy = (deltas[id] for id in (GROWN, CALM, SHY))
    assert grown["paired"] and grown["verdict"] == "slower" and grown["low"] > 1.5 and grown["base"] == GROWN
    assert calm["paired"] and calm["verdict"] != "slower" and calm["time_ratio"] < 1.3
    assert not shy["paired"] and shy["verdict"] == "slower"
    assert any("2 of 3 suspicious" in note for note in found["notes"])
    assert any(SHY in note and "not today" in note for note in found["notes"])
    assert trees(project) == 1


@pytest.mark.deep
def test_the_gate_believes_what_was_measured_again(project: Path) -> None:
    store = Store(project / ".steelyard")
    base, head = store.open("base"), store.open("head")
    for name, id in (("grown", GROWN), ("calm", CALM)):
        save(store, f"{name}1", base, 1e-5, (id,))
        save(store, f"{name}2", head, 2e-5, (id,))
    done = steelyard("gate", "grown1", "grown2", "--confirm", "--allow-edited", "--json", cwd=project, check=4)
    regression = json.loads(done.stdout)["findings"][0]
    assert regression["kind"] == "regression" and regression["paired"]
    assert "unpaired" in steelyard("gate", "calm1", "calm2", "--allow-edited", "--strict", cwd=project, check=6).stdout
    steelyard("gate", "calm1", "calm2", "--confirm", "--allow-edited", cwd=project, check=0)


def made(commit: str, *, dirty: bool = False, id: str = "r", **header: Any) -> Run:
    machine = {"git": {"commit": commit, "dirty": dirty}, "packages": facts.packages()}
    return Run(Path(id), Header(id=id, **{"machine": machine, **header}))


@pytest.fixture
def commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return [commit(tmp_path, count) for count in (1, 2)]


def refused(base: Run, head: Run) -> str:
    with pytest.raises(UsageError) as told:
        confirm(base, head, [CALM])
    assert trees(Path.cwd()) == 1
    return str(told.value)


def test_uncommitted_changes_are_never_taken_for_what_lies_here_now(commits: list[str]) -> None:
    assert "run r cannot be measured again" in refused(made(commits[0]), made(commits[1], dirty=True))
    assert "uncommitted changes" in refused(made(commits[1], dirty=True), made(commits[1], dirty=True))


def test_one_commit_has_nothing_to_confirm(commits: list[str]) -> None:
    assert f"same commit, {commits[0][:10]}" in refused(made(commits[0], id="a"), made(commits[0], id="b"))


def test_other_versions_are_named(commits: list[str]) -> None:
    machine = made(commits[1]).header.machine
    other = {**machine, "packages": {**machine["packages"], "numpy": "0.1"}, "python": {"version": "2.7.1"}}
    said = refused(made(commits[0]), made(commits[1], id="h", machine=other))
    assert "run h" in said and "numpy 0.1 (now " in said and "python 2.7.1 (now " in said
    assert "--env" in refused(made(commits[0], command=["steelyard", "run", "x.py", "--env", "old"]), made(commits[1]))


def test_a_file_that_no_commit_holds_is_not_measured_again(commits: list[str]) -> None:
    Path("loose.py").write_text("", encoding="utf-8")
    assert "loose.py is not in commit" in refused(made(commits[0], files=["loose.py"]), made(commits[1], files=["loose.py"]))
    assert "commit is unknown" in refused(made(commits[0], machine={}), made(commits[1]))


def test_a_case_that_names_an_environment_is_not_measured_again(commits: list[str]) -> None:
    case = Case.parse(f"{CALM}:env=old")
    runs = [replace(made(commit), records=(Record(case.id, case.plain(), "ok"),)) for commit in commits]
    pairs, reasons = confirm(*runs, [case.id])
    assert pairs == [] and reasons[case.id].startswith("it runs in environment old")
    assert trees(Path.cwd()) == 1


def test_outside_of_a_checkout_nothing_can_be_confirmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="not in a git checkout"):
        confirm(made("a" * 40), made("b" * 40), [CALM])
    assert confirm(made("a" * 40), made("b" * 40), []) == ([], {})


def test_what_decides_whether_a_case_is_right_is_kept(commits: list[str]) -> None:
    found = asked_settings(Header(settings={"rtol": 0.1, "timeout": 7.0, "memory": "lots", "budget": 0.1, "vs": "eager", "profile": True}))
    assert (found.rtol, found.timeout, found.memory, found.budget, found.vs, found.profile) == (0.1, 7.0, None, 1.0, None, False)
    assert [asked_settings(Header(settings={"settle": given})).settle for given in (0, 2.5, -1, 1e9, math.nan, "long")] == [
        0,
        2.5,
        *[4.0] * 4,
    ]


def test_the_margin_that_will_judge_is_the_one_that_is_settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gate with a margin of 5 % must not stop at what settles 2 %."""
    from steelyard.cli.compare import again

    asked: list[Any] = []
    monkeypatch.setattr("steelyard.engine.confirm.confirm", lambda *given: asked.append(given) or ([], {}))
    runs = made("a" * 40, id="a"), made("b" * 40, id="b")
    deltas = [Delta(CALM, CALM, "time", 1.04, 1.03, 1.05, margin, "slower", paired=False) for margin in (0.1, 0.05)]
    again(*(RunsSide(run.id, (run,)) for run in runs), Store(tmp_path))(deltas)
    assert [(*given[:3], given[-1]) for given in asked] == [(*runs, [CALM, CALM], 0.05)]


def test_a_worker_that_ran_with_other_versions_confirms_nothing() -> None:
    from steelyard.engine.confirm import sorted_out

    def run(id: str, version: str) -> Run:
        return replace(made("a" * 40, id=id), records=(Record(CALM, {}, "ok", environment={"numpy": version, "device": "cpu"}),))

    pair = Pair(Arm(CALM), Arm(CALM), 1.0, 0.99, 1.01, 0.99, 8, 64, 1, (4, 4))
    done = replace(run("now", "2.1"), pairs=(pair,))
    assert sorted_out(done, (run("b", "2.1"), run("h", "2.1")), [CALM]) == ([pair], {})
    pairs, reasons = sorted_out(done, (run("b", "2.0"), run("h", "2.1")), [CALM, GROWN])
    assert pairs == [] and reasons == {CALM: "run b had numpy 2.0 (now 2.1)", GROWN: "it was not measured again"}
