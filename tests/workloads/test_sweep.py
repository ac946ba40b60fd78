"""The suite that sweeps over square matrix products is the one of PyTorch/XLA's micro-benchmark, case for case."""

from __future__ import annotations

from steelyard.dialects.ptxla import matmul
from steelyard.engine.place import Place
from steelyard.engine.plan import expand
from steelyard.engine.selection import Request, gather
from steelyard.model.dtypes import canonical


def test_the_sweep_has_every_size_in_every_format_and_only_squares() -> None:
    experiment, catalogue, _ = gather(Request(("matmul-sweep",)), Place())
    cases = [dict(job.case.params) for job in expand(experiment, catalogue).jobs]
    found = {(case["dtype"], case["m"]) for case in cases if case["m"] == case["n"] == case["k"]}
    original = {(canonical(matmul.DTYPES[item.dtype]), item.n) for item in matmul.sweep(matmul.sizes("256:8192:128"))}
    assert found == original
    assert len(cases) == 189
