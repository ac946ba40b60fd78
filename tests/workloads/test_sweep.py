"""The suite that sweeps over square matrix products is the one of PyTorch/XLA's micro-benchmark, case for case."""

from __future__ import annotations

from steelyard.engine.place import Place
from steelyard.engine.plan import expand
from steelyard.engine.selection import Request, gather


def test_the_sweep_has_every_size_in_every_format_and_only_squares() -> None:
    experiment, catalogue, _ = gather(Request(("matmul-sweep",)), Place())
    found = [job.case.id for job in expand(experiment, catalogue).jobs]
    assert found == [
        f"op/matmul[dtype={dtype},k={n},m={n},n={n}]@torch/eager:eval" for n in range(256, 8193, 128) for dtype in ("fp32", "fp16", "bf16")
    ]
    assert len(found) == 189
