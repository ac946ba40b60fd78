"""A pass under Nsight Compute: what the tool cannot do costs no case."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from steelyard.engine import after, conduct, ncu
from steelyard.errors import SteelyardError, UsageError
from steelyard.measuring.ncu_table import COLUMNS, Kernel
from steelyard.model.experiment import Experiment, Matrix, Settings

ROW = ",".join(['"0"', '"gemm"', '"1,000"', '"2,048"', '"50"', '"25"'])


def test_sums_with_a_missing_part_are_left_out() -> None:
    first, second = Kernel("softmax", 1e-3, 16e6, 0.7, 0.0), Kernel("gemm", 2e-3, None, None, None)
    assert list(ncu.figures([first, second])) == ["ncu_duration"]
    found = ncu.figures([first, first])
    assert (found["ncu_duration"].value, found["ncu_duration"].unit) == (pytest.approx(2e-3), "s")
    assert (found["ncu_dram_bytes"].value, found["ncu_dram_bytes"].unit) == (pytest.approx(32e6), "B")


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A program called ncu that writes what its script says; `$log` and `$metrics` are what it was told."""
    read = 'while [ $# -gt 0 ]; do case "$1" in --log-file) log=$2;; --metrics) metrics=$2;; esac; shift; done\n'
    program = folder / "ncu"
    program.write_text(f"#!/bin/sh\n{read}{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


def test_a_counter_that_is_not_found_is_asked_for_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = COLUMNS["tensor"]
    names = ",".join(f'"{name}"' for name in ["ID", "Kernel Name", *COLUMNS.values()])
    page = f'{names}\n"","","nsecond","byte","%","%"\n{ROW}\n'
    (tmp_path / "page").write_text(page)
    lacks = f'echo "==ERROR== Failed to find metric {tensor}" >$log; exit 1'
    said = f'case "$metrics" in *{tensor}*) {lacks};; *) cp {tmp_path}/page $log;; esac'
    stand_in(tmp_path, monkeypatch, said)
    kernels, files = ncu.run(["true"], {"PATH": f"{tmp_path}:/usr/bin:/bin"}, tmp_path, 20)
    assert kernels[0].duration == pytest.approx(1e-6) and kernels[0].dram_bytes == 2048
    assert [path.name for path in files] == ["ncu.csv", "ncu.json"] and json.loads(files[1].read_text())[0]["name"] == "gemm"


class NoCrew:
    """Nobody is needed: the tool starts the process."""

    mark = ""

    def ask(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError

    def dismiss(self) -> None: ...

    def see_off(self) -> None: ...


def test_a_tool_that_fails_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, 'echo "==ERROR== ERR_NVGPUCTRPERM - no permission" >$log; exit 1')
    experiment = Experiment(matrix=(Matrix(("op/softmax",), device=("cuda", "cpu")),), settings=Settings(ncu=True))
    plan = conduct.from_experiment(experiment)
    for job in plan.jobs:
        reply = after.under_ncu(NoCrew(), job, plan, tmp_path)
        assert not reply.found.figures
        if job.case.device == "cuda":
            assert reply.trouble == "failed: ncu exited with code 1 ==ERROR== ERR_NVGPUCTRPERM - no permission"
        else:
            assert reply.found.facts["ncu"].startswith("unsupported")


def test_a_tool_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, "while :; do :; done")
    with pytest.raises(SteelyardError, match="did not end within"):
        ncu.run(["true"], {"PATH": f"{tmp_path}:/usr/bin:/bin"}, tmp_path, 0.2)


def test_without_a_gpu_case_there_is_nothing_to_look_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, "exit 0")
    with pytest.raises(UsageError, match="no case runs on one"):
        conduct.from_experiment(Experiment(matrix=(Matrix(("op/softmax",)),), settings=Settings(ncu=True)))
