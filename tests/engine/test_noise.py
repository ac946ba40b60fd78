"""What change a machine can see: held against exact distributions, and learnt from real comparisons of code with itself."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import steelyard
from steelyard.engine import noise
from steelyard.engine.conduct import execute
from steelyard.errors import NothingMeasured
from steelyard.machine.noise import CaseNoise
from steelyard.measuring.effort import FEWEST_REBUILDS, MOST_REBUILDS
from steelyard.model.experiment import Experiment, Matrix, Settings
from steelyard.model.pair import ALPHA, Arm, Pair
from steelyard.model.record import Record
from steelyard.report.progress import Progress
from steelyard.store.runs import Run, Store

CERTAIN = 10**6
"""So many rebuilds that their SD needs no caution."""


class TestSmallestChange:
    @given(st.integers(3, 1000), st.floats(0.1, 0.9))
    def test_chi_square_quantiles(self, freedom: int, p: float) -> None:
        assert noise.chi2_quantile(p, freedom) == pytest.approx(float(stats.chi2.ppf(p, freedom)), rel=0.02)

    @given(st.integers(FEWEST_REBUILDS, MOST_REBUILDS), st.floats(1e-4, 0.1))
    def test_nine_of_ten_comparisons_find_it(self, rebuilds: int, sd: float) -> None:
        change = noise.smallest_change(CaseNoise(sd, 0.01, None, CERTAIN), (rebuilds + 0.5) * 0.01)
        shift = math.log1p(change) / noise.cautious(CaseNoise(sd, 0.01, None, CERTAIN)) * math.sqrt(rebuilds)
        edge = stats.t.ppf(1 - ALPHA / 4, rebuilds - 1)
        assert float(stats.nct.sf(edge, rebuilds - 1, shift)) == pytest.approx(0.9, abs=0.012)

    def test_the_spread_is_underestimated_in_one_of_ten_measurements(self) -> None:
        drawn = np.random.default_rng(7).normal(0, 0.02, (20_000, 10)).std(axis=1, ddof=1)
        below = np.mean([noise.cautious(CaseNoise(float(sd), 1.0, None, 10)) < 0.02 for sd in drawn])
        assert float(below) == pytest.approx(0.1, abs=0.01)

    def test_more_time_and_less_noise_see_more(self) -> None:
        calm, rough = (CaseNoise(sd, 0.2, None, 50) for sd in (0.01, 0.05))
        assert noise.smallest_change(calm, 30) < noise.smallest_change(calm, 5) < noise.smallest_change(calm, 1)
        assert noise.smallest_change(calm, 5) < noise.smallest_change(rough, 5)

    def test_more_time_helps_also_where_no_more_rebuilds_are_made(self) -> None:
        quick = CaseNoise(0.01, 1 / MOST_REBUILDS, None, 50)
        assert noise.smallest_change(quick, 1) == pytest.approx(3 * noise.smallest_change(quick, 9), rel=0.01)

    def test_a_comparison_has_no_fewer_rebuilds_than_the_schedule_gives(self) -> None:
        slow = CaseNoise(0.01, 100.0, None, 50)
        assert noise.smallest_change(slow, 1) == noise.smallest_change(slow, 30)

    def test_any_noise_that_may_be_kept_gives_a_number(self) -> None:
        assert math.isfinite(noise.smallest_change(CaseNoise(1e300, 5e-324, None, 2), 1))


def aa(chosen: Experiment, folder: Path) -> Run:
    ready = noise.against_itself(chosen)
    assert all(job.vs == job.case for job in ready.jobs)
    return execute(ready, Store(folder), ["test"], lambda writer: Progress(len(ready.jobs), io.StringIO())).run


SHAKY = '''
import random
from steelyard import Task, workload
DRAWN = random.Random(3)

@workload("shaky", axes={"noise": [0.0]}, backend="fake")
def shaky(noise, be):
    """Every call takes a time of its own."""
    return Task(lambda: be.spend(1e-3 * (1 + noise * DRAWN.gauss(0, 1))))
'''


class TestLearning:
    def test_known_noise_on_a_virtual_clock(self, tmp_path: Path) -> None:
        file = tmp_path / "shaky.py"
        file.write_text(SHAKY)
        chosen = Experiment(
            "shaky", matrix=(Matrix(("shaky",), {"noise": (0.0, 0.02, 0.1)}),), settings=Settings(budget=2.0), files=(str(file),)
        )
        run = aa(chosen, tmp_path / "store")
        still, calm, rough = noise.learn(run.records, run.pairs).cases.values()
        assert (still.sd, still.floor) == (0.0, 0.0)
        assert calm.floor and 0.3 * calm.floor < calm.sd < 1.5 * calm.floor
        assert 2.5 * calm.sd < rough.sd < 10 * calm.sd
        for case, pair in zip((still, calm, rough), run.pairs, strict=True):
            assert case.rebuilds == len(pair.centres) and case.cost * case.rebuilds == pytest.approx(pair.measured_s)

    def test_numpy_through_the_engine(self, tmp_path: Path) -> None:
        chosen = noise.experiment({"packages": {"torch": None}}, "cpu", 1, budget=0.01)
        run = aa(chosen, tmp_path / "store")
        found = noise.learn(run.records, run.pairs)
        assert [steelyard.Case.parse(id).workload for id in found.cases] == ["op/gelu", "op/matmul", "op/softmax", "layer/mlp"]
        assert all(case.sd > 0 and case.cost > 0 and case.rebuilds >= noise.FEWEST_CENTRES for case in found.cases.values())

    def test_torch_where_it_is_and_on_every_accelerator(self) -> None:
        def backends(machine: dict[str, Any], device: str) -> set[tuple[str, ...]]:
            return {matrix.backend for matrix in noise.experiment(machine, device, 8).matrix}

        assert backends({}, "cpu") == {("numpy",)}
        assert backends({"packages": {"torch": "2.13"}}, "cpu") == backends({}, "cuda") == {("torch",)}
        assert {matrix.threads for matrix in noise.experiment({}, "cuda", 8).matrix} == {(1,)}
        assert {matrix.threads for matrix in noise.experiment({}, "cpu", 8).matrix} == {(8,)}

    def test_what_is_left_out_is_told(self) -> None:
        def pair(id: str, centres: list[float]) -> Pair:
            return Pair(Arm(id), Arm(id), 1, 1, 1, 0.995, 8, 8, 0, (1, 1), centres=centres, measured_s=1.0)

        records = [
            Record("good", {}, "ok"), Record("few", {}, "ok"), Record("alone", {}, "ok", effective={"unweighed": "crashed: gone"}),
            Record("bad", {}, "unsupported", "no cuda device here"),
        ]  # fmt: skip
        found = noise.learn(records, [pair("good", [0.1, -0.1, 0.1, -0.1]), pair("few", [0.1, 0.2])])
        assert found.cases["good"].sd == pytest.approx(0.2 / math.sqrt(3)) and found.cases["good"].cost == 0.25
        assert noise.left_out(records, found.cases) == [
            "few: too few rebuilds were undisturbed", "alone: crashed: gone", "bad: no cuda device here"
        ]  # fmt: skip
        with pytest.raises(NothingMeasured, match="no cuda device here"):
            noise.learn(records[3:], [])
