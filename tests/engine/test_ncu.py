"""Nsight Compute's CSV is read as it is written, and what the tool cannot do costs no case."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from steelyard.engine import after, conduct, ncu
from steelyard.errors import SteelyardError, UsageError
from steelyard.model.experiment import Experiment, Matrix, Settings

PAGE = '''==WARNING== Note: Running with unmodified GPU clocks. If not controlled otherwise, profiling results may be inconsistent.
==PROF== Connected to process 2231 (/usr/bin/python3.11)
==PROF== Profiling "cunn_SoftMaxForward" - 0: 0%....50%....100% - 3 passes
==PROF== Disconnected from process 2231
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC",\
"dram__bytes.sum","gpu__time_duration.sum","sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",\
"sm__warps_active.avg.pct_of_peak_sustained_active"
"","","","","","","","","","","","Mbyte","us","%","%"
"0","2231","python3.11","127.0.0.1","void cunn_SoftMaxForward<8, float, float>(T3 *, const T2 *, int)","1","7","(1024, 1, 1)",\
"(4,096, 1, 1)","0","9.0","16.80","1,124.5","0","71.35"
==WARNING== a line that is no row
"1","2231","python3.11","127.0.0.1","sm90_xmma_gemm, ""quoted""","1","7","(128, 1, 1)","(64, 1, 1)","0","9.0","2,001.2","0.5","88.10","n/a"
'''
ROW = ",".join(['"0"', '"gemm"', '"1,000"', '"2,048"', '"50"', '"25"'])


def test_a_raw_page_is_rows_in_plain_units() -> None:
    first, second = ncu.parse(PAGE)
    assert first.name == "void cunn_SoftMaxForward<8, float, float>(T3 *, const T2 *, int)"
    assert first.duration == pytest.approx(1124.5e-6) and first.dram_bytes == pytest.approx(16.8e6)
    assert first.occupancy == pytest.approx(0.7135) and first.tensor == 0
    assert second.name == 'sm90_xmma_gemm, "quoted"' and second.occupancy is None and second.dram_bytes == pytest.approx(2001.2e6)
    found = ncu.figures([first, second])
    assert found["ncu_duration"].value == pytest.approx(1125e-6) and found["ncu_duration"].unit == "s"
    assert found["ncu_dram_bytes"].value == pytest.approx(2018e6) and found["ncu_dram_bytes"].unit == "B"


def test_a_counter_the_device_lacks_is_unknown_and_sums_of_it_are_left_out() -> None:
    page = '"ID","Kernel Name","gpu__time_duration.sum"\n"","","nsecond"\n"0","gemm","1,500"\n'
    (kernel,) = ncu.parse(page)
    assert kernel == ncu.Kernel("gemm", pytest.approx(1.5e-6), None, None, None)
    assert list(ncu.figures([kernel])) == ["ncu_duration"]


@pytest.mark.parametrize("text", ["", "==ERROR== ERR_NVGPUCTRPERM\n", '"ID","Kernel Name"\n'])
def test_a_page_without_kernels_is_no_rows(text: str) -> None:
    assert ncu.parse(text) == []


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A program called ncu that writes what its script says; `$log` and `$metrics` are what it was told."""
    read = 'while [ $# -gt 0 ]; do case "$1" in --log-file) log=$2;; --metrics) metrics=$2;; esac; shift; done\n'
    program = folder / "ncu"
    program.write_text(f"#!/bin/sh\n{read}{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


def test_a_counter_that_is_not_found_is_asked_for_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = ncu.COLUMNS["tensor"]
    names = ",".join(f'"{name}"' for name in ["ID", "Kernel Name", *ncu.COLUMNS.values()])
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
        assert not reply.figures
        if job.case.device == "cuda":
            assert reply.trouble == "failed: ncu exited with code 1 ==ERROR== ERR_NVGPUCTRPERM - no permission"
        else:
            assert reply.facts["ncu"].startswith("unsupported")


def test_a_tool_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, "while :; do :; done")
    with pytest.raises(SteelyardError, match="did not end within"):
        ncu.run(["true"], {"PATH": f"{tmp_path}:/usr/bin:/bin"}, tmp_path, 0.2)


def test_without_a_gpu_case_there_is_nothing_to_look_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, "exit 0")
    with pytest.raises(UsageError, match="no case runs on one"):
        conduct.from_experiment(Experiment(matrix=(Matrix(("op/softmax",)),), settings=Settings(ncu=True)))
