"""Peaks measured: the order of work with a scripted engine, and numpy through the real one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from steelyard.cli import doctor as cli
from steelyard.engine import conduct, peaks
from steelyard.errors import NothingMeasured
from steelyard.machine import facts
from steelyard.model.experiment import Experiment
from steelyard.model.record import Record
from tests.machine.test_peaks import answered


class TestMeasuring:
    """The order of work, with a scripted engine; the real one comes below."""

    def script(self, slow: Sequence[str] = ()) -> tuple[list[Experiment], Any]:
        seen: list[Experiment] = []

        def run(experiment: Experiment) -> list[Record]:
            seen.append(experiment)
            made = []
            for matrix in experiment.matrix:
                how = f"@{matrix.backend[0]}/{matrix.variant[0]}:eval:device={matrix.device[0]}"
                for name in matrix.workload:
                    for dtype in matrix.axes["dtype"]:
                        n, product = matrix.axes["n"][0], name.endswith("matmul")
                        rate = (1e9 if dtype in slow else 1e13 + n) if product else 1e11
                        case = f"{name}[dtype={dtype},n={n}]{how}"
                        environment = {"device": "NVIDIA H200"} if matrix.device == ("cuda",) else {}
                        made.append(answered(case, rate, "compute" if product else "bandwidth", environment=environment))
            return made

        return seen, run

    def test_slow_formats_are_not_tried_at_a_large_size(self) -> None:
        seen, run = self.script(slow=["fp16"])
        found = peaks.measure(run, {"packages": {"torch": "2"}}, "cpu", 1)
        fast = ("fp32", "fp64", "bf16", "int8", "fp8e4m3")
        assert [matrix.axes["dtype"] for matrix in seen[1].matrix] == [(name,) for name in fast for _ in range(2)]
        assert {matrix.axes["n"] for matrix in seen[1].matrix} == {(4096,), (2048,)}
        assert found.compute == pytest.approx({**dict.fromkeys(fast, (1e13 + 4096) / 0.8), "fp16": 1e9 / 0.8})
        assert found.cases["int8"].startswith("op/int_matmul[") and found.cases["fp8e4m3"].startswith("op/scaled_matmul[")
        assert found.bandwidth == pytest.approx(1e11 / 0.8) and "n=4096" in found.cases["fp32"]

    def test_cuda_has_tf32_beside_fp32_and_knows_its_name(self) -> None:
        seen, run = self.script()
        found = peaks.measure(run, {}, "cuda", 8)
        assert set(found.compute) == {"fp32", "tf32", "fp64", "bf16", "fp16", "int8", "fp8e4m3"} and found.name == "NVIDIA H200"
        assert {matrix.threads for experiment in seen for matrix in experiment.matrix} == {(1,)}

    def test_what_a_device_cannot_multiply_is_left_out_with_the_reason(self) -> None:
        _, run = self.script()

        def without_float8(experiment: Experiment) -> list[Record]:
            lacking = {"status": "unsupported", "reason": "no float8 here", "metrics": {}}
            return [replace(record, **lacking) if "scaled" in record.id else record for record in run(experiment)]

        found = peaks.measure(without_float8, {"packages": {"torch": "2"}}, "cpu", 1)
        assert "fp8e4m3" not in found.compute and found.left_out == {"fp8e4m3": "no float8 here"}

    def test_arrays_are_several_times_the_largest_cache_and_fit_into_memory(self) -> None:
        def size(**machine: Any) -> int:
            seen, run = self.script()
            peaks.measure(run, machine, "cpu", 1)
            return 4 * int(next(matrix for matrix in seen[0].matrix if "op/copy" in matrix.workload).axes["n"][0])

        assert size(cpu={"caches": {"L2": 2**20, "L3": 2**25}}) == 4 * 2**25
        assert size(cpu={"caches": {"L2": None, "L3": None}}) >= 2**26
        assert size(memory={"available": 2**28}) == 2**24

    def test_without_torch_numpy_is_measured_in_its_own_formats(self) -> None:
        seen, run = self.script()
        assert set(peaks.measure(run, {"packages": {"torch": None}}, "cpu", 1).compute) == {"fp32", "fp64"}
        assert {matrix.backend for experiment in seen for matrix in experiment.matrix} == {("numpy",)}

    @pytest.mark.parametrize("lost", [("op/matmul", "op/int_matmul", "op/scaled_matmul"), ("op/copy", "op/triad", "op/scaled_matmul")])
    def test_nothing_measured_says_why(self, lost: tuple[str, ...]) -> None:
        _, script = self.script()

        def run(experiment: Experiment) -> list[Record]:
            reasons = {name: "no cuda device here" if name != "op/scaled_matmul" else "no float8" for name in lost}
            return [
                replace(record, status="unsupported", reason=reasons[name]) if (name := str(record.case["workload"])) in lost else record
                for record in script(experiment)
            ]

        with pytest.raises(NothingMeasured) as error:
            peaks.measure(run, {}, "cuda", 1)
        assert "no cuda device here" in error.value.why


def test_numpy_through_the_engine() -> None:
    def records(experiment: Experiment) -> list[Record]:
        return list(cli._executed(conduct.from_experiment(experiment), "--peaks").records)

    machine = {**facts.collect(), "packages": {}}
    found = peaks.measure(records, machine, "cpu", 1, budget=0.01, scale=0.05)
    assert set(found.compute) == {"fp32", "fp64"} and found.versions["numpy"]
    assert all(rate > 1e6 for rate in (*found.compute.values(), found.bandwidth))
