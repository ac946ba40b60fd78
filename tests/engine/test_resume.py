"""A run that was cut off at any moment is continued, and every case is measured exactly once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from pathlib import Path

import pytest

from tests.engine.drive import processes_below, run_json, start, steelyard

CASES = 24
WORDS = ["fake/work", "-a", f"seconds=[{','.join(f'{n}e-6' for n in range(1, CASES + 1))}]"]


def saved_lines(folder: Path) -> list[dict[str, object]]:
    file = next((folder / ".steelyard" / "runs").glob("*/run.jsonl"))
    return [json.loads(line) for line in file.read_text().splitlines()]


def cut_off(process: subprocess.Popen[str], after: int, number: signal.Signals) -> None:
    """Signal the conductor when that many cases have been reported."""
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(f"[{after}/"):
            break
    os.kill(process.pid, number)


@pytest.mark.parametrize(("seed", "turns"), [(7, 1), *(pytest.param(seed, 3, marks=pytest.mark.deep) for seed in (7, 8, 9, 10, 11))])
def test_kill_at_random_moments_loses_nothing_and_repeats_nothing(seed: int, turns: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    for turn in range(turns):
        folder = tmp_path / str(turn)
        folder.mkdir()
        words = [*WORDS, "--isolate", rng.choice(["case", "workload"])]
        process = start("run", *words, cwd=folder)
        cut_off(process, rng.randrange(1, CASES), signal.SIGKILL)
        process.communicate()
        done = steelyard("run", *words, "--resume", cwd=folder)
        lines = saved_lines(folder)
        ids = [line["record"]["id"] for line in lines if "record" in line]  # type: ignore[index]
        assert len(ids) == CASES and len(set(ids)) == CASES, done.stderr
        assert "seal" in lines[-1]
        assert processes_below(folder) == []


def test_a_half_written_line_is_cut_off_with_a_warning(tmp_path: Path) -> None:
    process = start("run", *WORDS, cwd=tmp_path)
    cut_off(process, 5, signal.SIGKILL)
    process.communicate()
    file = next((tmp_path / ".steelyard" / "runs").glob("*/run.jsonl"))
    with file.open("ab") as run:
        run.write(b'{"record": {"id": "fake/wo')
    assert "cut off" in steelyard("show", cwd=tmp_path).stderr
    done = steelyard("run", *WORDS, "--resume", cwd=tmp_path)
    assert "cut off" in done.stderr
    assert sum("record" in line for line in saved_lines(tmp_path)) == CASES


def test_interrupting_saves_what_was_measured(tmp_path: Path) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        folder = tmp_path / number.name
        folder.mkdir()
        process = start("run", *WORDS, "-a", "fault=none,hang", "--isolate", "case", cwd=folder)
        cut_off(process, 1, number)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 130
        assert "continue: the same command with --resume" in errors
        assert "seal" not in saved_lines(folder)[-1]
        assert processes_below(folder) == []


def test_a_run_that_only_lacks_its_seal_is_sealed(tmp_path: Path) -> None:
    run_json("fake/work", cwd=tmp_path)
    file = next((tmp_path / ".steelyard" / "runs").glob("*/run.jsonl"))
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    run_json("fake/work", "--resume", cwd=tmp_path)
    assert ["seal" in line for line in saved_lines(tmp_path)] == [False, False, True]


def test_resume_without_anything_unfinished_is_a_new_run(tmp_path: Path) -> None:
    run_json("fake/work", cwd=tmp_path)
    assert "warning: no unfinished run has these cases" in steelyard("run", "fake/work", "--resume", cwd=tmp_path).stderr
    assert len(list((tmp_path / ".steelyard" / "runs").iterdir())) == 2


def test_other_settings_are_not_resumed(tmp_path: Path) -> None:
    process = start("run", *WORDS, cwd=tmp_path)
    cut_off(process, 3, signal.SIGKILL)
    process.communicate()
    found = run_json(*WORDS, "--budget", "2s", "--resume", cwd=tmp_path)
    assert len(found["records"]) == CASES
    assert len(list((tmp_path / ".steelyard" / "runs").iterdir())) == 2


def test_a_changed_flag_is_a_new_case(tmp_path: Path) -> None:
    process = start("run", *WORDS, "--flag", "MODE=a", cwd=tmp_path)
    cut_off(process, 3, signal.SIGKILL)
    process.communicate()
    found = run_json(*WORDS, "--flag", "MODE=b", "--resume", cwd=tmp_path)
    assert len(found["records"]) == CASES and all(record["id"].endswith("flag.MODE=b") for record in found["records"])
    assert len(list((tmp_path / ".steelyard" / "runs").iterdir())) == 2


MENDED = """
from pathlib import Path
from steelyard import Task, workload
from steelyard.workloads.fake import misbehave

@workload("mended", axes={"fault": ["none", "raise", "segfault", "wrong", "unsupported"]}, backend="numpy")
def mended(fault, be):
    x = be.randn(8)
    broken = not Path("mended").exists()
    return Task(lambda: (misbehave(fault) if broken else None, x + (fault == "wrong" and broken))[1], reference=lambda: x)
"""


class TestRetry:
    """What failed is kept as it is unless asked for, and trying again never touches the run it failed in."""

    def statuses(self, folder: Path, *words: str, check: int = 0) -> dict[str, str]:
        found = run_json("mended.py", "--budget", "5ms", *words, cwd=folder, check=check)
        return {record["case"]["params"]["fault"]: record["status"] for record in found["records"]}

    def broken(self, folder: Path) -> dict[str, str]:
        (folder / "mended.py").write_text(MENDED)
        before = self.statuses(folder, check=3)
        assert before == {"none": "ok", "raise": "failed", "segfault": "crashed", "wrong": "wrong", "unsupported": "unsupported"}
        (folder / "mended").touch()
        return before

    def test_failed_is_any_way_of_failing_and_the_rest_is_taken_over(self, tmp_path: Path) -> None:
        before = self.broken(tmp_path)
        old = json.loads(steelyard("show", "--json", "latest", cwd=tmp_path).stdout)
        assert self.statuses(tmp_path, "--resume", "--retry", "failed") == dict.fromkeys(before, "ok") | {"unsupported": "unsupported"}
        new = json.loads(steelyard("show", "--json", "latest", cwd=tmp_path).stdout)
        assert new["header"]["parent"] == old["header"]["id"] and len(new["records"]) == 5
        kept = {key: value for key, value in old["records"][0].items() if key != "samples"}
        assert {key: value for key, value in new["records"][0].items() if key != "samples"} == kept
        assert new["records"][0]["samples"][0]["count"] == old["records"][0]["samples"][0]["count"]
        assert old == json.loads(steelyard("show", "--json", old["header"]["id"], cwd=tmp_path).stdout)

    def test_one_way_of_failing_alone_or_all_that_is_not_ok(self, tmp_path: Path) -> None:
        before = self.broken(tmp_path)
        assert self.statuses(tmp_path, "--retry", "crashed,wrong", check=3) == before | {"segfault": "ok", "wrong": "ok"}
        assert self.statuses(tmp_path, "--retry", "all") == dict.fromkeys(before, "ok")
        assert "nothing to try again" in steelyard("run", "mended.py", "--budget", "5ms", "--retry", "all", cwd=tmp_path, check=5).stderr

    def test_an_unfinished_run_goes_on_in_the_new_one(self, tmp_path: Path) -> None:
        self.broken(tmp_path)
        file = next((tmp_path / ".steelyard" / "runs").glob("*/run.jsonl"))
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join(lines[:4]))
        assert list(self.statuses(tmp_path, "--retry", "crashed", check=3).values()) == ["ok", "failed", "ok", "ok", "ok"]
        assert "continued as run" in file.read_text().splitlines()[-1]

    def test_without_an_earlier_run_all_is_measured_and_that_is_told(self, tmp_path: Path) -> None:
        assert "no saved run has these cases" in steelyard("run", "fake/work", "--retry", "oom", cwd=tmp_path).stderr


def test_two_runs_at_once_in_one_store(tmp_path: Path) -> None:
    both = [start("run", *WORDS, cwd=tmp_path) for _ in range(2)]
    for process in both:
        process.communicate(timeout=60)
        assert process.returncode == 0
    listed = json.loads(steelyard("list", "runs", "--json", cwd=tmp_path).stdout)
    assert len(listed["runs"] if isinstance(listed, dict) else listed) == 2
