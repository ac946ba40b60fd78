"""What Slurm does to jobs by itself: preemption, and its own requeue after a node failed."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from tests.engine.drive import PROGRAM
from tests.engine.farm.test_runs import events_of, lines_of, records_of
from tests.farm.places import SlurmPlace, nothing_left

CASES = 30


def start(place: SlurmPlace, cwd: Path, budget: str, *lines: str) -> subprocess.Popen[str]:
    """A run on one station."""
    words = ", ".join(f'"{line}"' for line in lines)
    (cwd / "one.toml").write_text(f'partition = "main"\ncount = 1\nlines = [{words}]\n')
    cases = f"n=[{','.join(str(1000 + n) for n in range(CASES))}]"
    command = [
        *PROGRAM,
        "run",
        "op/copy",
        "-B",
        "numpy",
        "-a",
        cases,
        "--budget",
        budget,
        "--precision",
        "0.0001%",
        "--on",
        f"slurm:{cwd}/one.toml",
    ]
    with (cwd / "err.txt").open("w") as err:
        return subprocess.Popen(command, cwd=cwd, stdout=err, stderr=err, env=place.environment | {"STEELYARD_FARM_PATIENCE": "3s"})


def joined(cwd: Path) -> list[str]:
    """The stations that have joined so far."""
    there = (cwd / ".steelyard" / "runs").is_dir() and any((cwd / ".steelyard" / "runs").iterdir())
    return [event.text("station") for event in events_of(cwd) if event.kind == "joined"] if there else []


def until(process: subprocess.Popen[str], cwd: Path, stations: tuple[str, ...], within: float) -> None:
    """Wait until one of some stations has joined."""
    deadline = time.monotonic() + within
    while not set(stations) & set(joined(cwd)):
        assert process.poll() is None and time.monotonic() < deadline, (cwd / "err.txt").read_text()[-3000:]
        time.sleep(0.2)


def down(place: SlurmPlace, node: str) -> None:
    """Wait until Slurm has seen that a node is gone; only then does it requeue what ran there."""
    deadline = time.monotonic() + 90
    while not place.cluster.call("sinfo", "-h", "-p", "main", "-n", node, "-o", "%t").startswith("down"):
        assert time.monotonic() < deadline, place.cluster.call("sinfo", "-N", "-l")
        time.sleep(0.5)


def check(process: subprocess.Popen[str], cwd: Path, place: SlurmPlace) -> None:
    assert process.wait(300) == 0, (cwd / "err.txt").read_text()[-3000:]
    found = records_of(cwd)
    assert len(found) == len({record["id"] for record in found}) == CASES
    assert {record["status"] for record in found} == {"ok"} and "seal" in lines_of(cwd)[-1]
    assert nothing_left(place.mark) == []


def test_a_station_that_is_preempted_is_followed_by_a_fresh_one(slurm: SlurmPlace, tmp_path: Path) -> None:
    process = start(slurm, tmp_path, "300ms", "--nodelist=n1", "--mem=1000")
    until(process, tmp_path, ("slurm-1",), 60)
    slurm.cluster.call("sbatch", "--partition=urgent", "--nodelist=n1", "--exclusive", "--output=/dev/null", "--wrap=sleep 3")
    until(process, tmp_path, ("slurm-2",), 60)
    check(process, tmp_path, slurm)
    assert any(event.kind == "lost" and event.text("station") == "slurm-1" for event in events_of(tmp_path))


def test_a_job_that_slurm_requeues_joins_again_as_another_station(slurm: SlurmPlace, tmp_path: Path) -> None:
    """The job that ran there, which Slurm starts two minutes later, or the next one, which it had sent there: every case is there once."""
    process = start(slurm, tmp_path, "5s", "--nodelist=n2", "--requeue", "--mem=1000")
    until(process, tmp_path, ("slurm-1",), 60)
    slurm.cluster.lose_node("n2")
    down(slurm, "n2")
    slurm.cluster.start_node("n2")
    until(process, tmp_path, ("slurm-1-r1", "slurm-2-r1"), 240)
    check(process, tmp_path, slurm)
