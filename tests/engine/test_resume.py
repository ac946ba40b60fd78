"""A run that was cut off at any moment is continued, and every case is measured exactly once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from pathlib import Path

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


def test_kill_at_ten_random_moments_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    rng = random.Random(7)
    for turn in range(10):
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


def test_resume_without_anything_unfinished_is_a_new_run(tmp_path: Path) -> None:
    run_json("fake/work", cwd=tmp_path)
    run_json("fake/work", "--resume", cwd=tmp_path)
    assert len(list((tmp_path / ".steelyard" / "runs").iterdir())) == 2


def test_other_settings_are_not_resumed(tmp_path: Path) -> None:
    process = start("run", *WORDS, cwd=tmp_path)
    cut_off(process, 3, signal.SIGKILL)
    process.communicate()
    found = run_json(*WORDS, "--budget", "2s", "--resume", cwd=tmp_path)
    assert len(found["records"]) == CASES
    assert len(list((tmp_path / ".steelyard" / "runs").iterdir())) == 2


def test_two_runs_at_once_in_one_store(tmp_path: Path) -> None:
    both = [start("run", *WORDS, cwd=tmp_path) for _ in range(2)]
    for process in both:
        process.communicate(timeout=60)
        assert process.returncode == 0
    listed = json.loads(steelyard("list", "runs", "--json", cwd=tmp_path).stdout)
    assert len(listed["runs"] if isinstance(listed, dict) else listed) == 2
