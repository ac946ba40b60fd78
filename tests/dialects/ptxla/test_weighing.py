"""The sweep as cases of ours, and the original's line made of two records and a pair."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from steelyard.dialects.ptxla import matmul
from steelyard.dialects.ptxla.microbench import Result
from steelyard.dialects.ptxla.weighing import LineWriter, Manner, Microbench, TwoSides, of_functions
from steelyard.engine.place import Place
from steelyard.engine.plan import Job
from steelyard.errors import NothingMeasured, UsageError
from steelyard.model.case import Case
from steelyard.model.pair import Arm, Pair
from steelyard.model.record import Record
from steelyard.store.runs import Store

WHERE = {"device": "cpu", "threads": 1}


class TestSweep:
    def test_it_has_the_originals_names_in_the_originals_order(self) -> None:
        products = matmul.sweep(matmul.sizes("256:8192:128"), [], "inductor", "openxla+dynamo", **WHERE)
        assert len(products) == 189
        assert products[0].name == "matmul-torch.float32-lhs256x256-rhs256x256"
        assert products[63].name == "matmul-torch.float16-lhs256x256-rhs256x256"
        assert products[-1].name == "matmul-torch.bfloat16-lhs8192x8192-rhs8192x8192"

    def test_a_product_is_a_case_of_ours_on_each_stack(self) -> None:
        [first, second] = matmul.sweep(matmul.sizes("512,256,512"), ["bf16"], "inductor", "openxla+lazytensor", **WHERE)
        assert first.base == Case.parse("op/matmul[dtype=bf16,k=512,m=512,n=512]@torch/compile:eval")
        assert second.test == Case.parse("op/matmul[dtype=bf16,k=256,m=256,n=256]@torch_xla/eager:eval")
        assert first.vs == "torch/compile"

    def test_products_of_f32_may_use_tf32_on_a_gpu_alone(self) -> None:
        found = matmul.sweep([8], [], "eager", "inductor", device="cuda", threads=1)
        assert [item.test.variant for item in found] == ["tf32+compile", "compile", "compile"]
        assert found[0].base.variant == "tf32"

    @pytest.mark.parametrize("text", ["", "x", "1:2", "5:1:1", "0", "1:9:0", "-3", "1:99999999999:1", "9999999", "9:-99999999999:-1"])
    def test_sizes_that_are_none(self, text: str) -> None:
        with pytest.raises(UsageError, match="not sizes of matrices"):
            matmul.sizes(text)

    def test_names_that_are_none(self) -> None:
        with pytest.raises(UsageError, match="number format"):
            matmul.sweep([256], ["f8"], "eager", "eager", **WHERE)
        with pytest.raises(UsageError, match="no backend named 'openxla'"):
            matmul.sweep([256], [], "openxla", "eager", **WHERE)


def plan_of(items: list[TwoSides], tmp_path: Path, **how: Any) -> Any:
    return Microbench(Manner(**how), Place(), Store(tmp_path))._compared(items)


class TestPlan:
    def test_a_test_is_weighed_against_its_base_after_it(self, tmp_path: Path) -> None:
        items = matmul.sweep([8, 16], ["f32"], "eager", "inductor", **WHERE)
        ready = plan_of(items, tmp_path, budget=0.3, verify=False)
        assert [job.case for job in ready.jobs] == [items[0].base, items[0].test, items[1].base, items[1].test]
        assert [job.vs for job in ready.jobs] == [None, items[0].base, None, items[1].base]
        fixed = ready.settings.fixed
        assert fixed is not None
        assert (fixed.warmup_time, fixed.repeat_time, fixed.clock, ready.settings.budget) == (0.025, 0.1, "discrete", 0.3)
        assert not ready.settings.verify

    def test_bases_of_another_backend_come_first_as_they_share_a_worker(self, tmp_path: Path) -> None:
        items = matmul.sweep([8, 16], ["f32"], "eager", "openxla+dynamo", **WHERE)
        ready = plan_of(items, tmp_path)
        assert [job.case.backend for job in ready.jobs] == ["torch", "torch", "torch_xla", "torch_xla"]
        assert all((job.side is not None) == (job.case.backend == "torch_xla") for job in ready.jobs)

    def test_a_stack_is_weighed_against_itself_in_pairs_of_processes(self, tmp_path: Path) -> None:
        [item] = matmul.sweep([8], ["f32"], "eager", "eager", **WHERE)
        [job] = plan_of([item], tmp_path).jobs
        assert (job.case, job.vs) == (item.base, item.base)
        assert job.side is not None
        assert [job.vs for job in plan_of([item], tmp_path, weigh=False).jobs] == [None]

    def test_functions_are_two_implementations_of_one_call(self, tmp_path: Path) -> None:
        item = of_functions("both", "/a/k.py:old", "/a/k.py:new", "torch", **WHERE)
        base, test = plan_of([item], tmp_path).jobs
        assert (base.case.variant, test.case.variant, test.vs) == ("eager", "other", base.case)
        assert base.fresh and test.fresh
        same = of_functions("both", "/a/k.py:old", "/a/k.py:old", "torch", **WHERE)
        assert same.base == same.test


ITEMS = matmul.sweep([4, 5], ["f32"], "eager", "inductor", **WHERE)


def record(case: Case, status: Any = "ok", reason: str = "", **effective: Any) -> Record:
    return Record(case.id, case.plain(), status, reason, effective=effective)


def times(*milliseconds: float) -> dict[str, tuple[str, str, bytes]]:
    return {"forward.measure.time": ("ns", "<f8", np.asarray([1e6 * value for value in milliseconds]).tobytes())}


def pair(item: TwoSides, ratio: float = 2.0) -> Pair:
    return Pair(Arm(item.base.id), Arm(item.test.id), ratio, 0.9 * ratio, 1.1 * ratio, 0.99, 8, 64, 0, (1, 1), p=0.01, measured_s=0.1)


class Told:
    """A sink, and all that it showed."""

    def __init__(self, items: list[TwoSides], **how: Any) -> None:
        self.shown: list[Any] = []
        self.sink = LineWriter(list(items), Manner(**how), self.shown.append)

    def take(self, case: Case, found: Record, *milliseconds: float) -> None:
        self.sink.take(Job(case, None, Place(), "", False), found, times(*milliseconds) if milliseconds else {})


class TestLines:
    def test_the_line_comes_of_two_records_and_the_verdict_of_their_pair(self) -> None:
        told, item = Told(ITEMS[:1]), ITEMS[0]
        told.take(item.base, record(item.base), 3.0, 1.0)
        told.take(item.test, record(item.test), 2.0, 2.5)
        assert told.shown == []
        told.sink.weighed(pair(item))
        [result] = told.shown
        assert result.line() == "matmul-torch.float32-lhs4x4-rhs4x4: speedup=0.50x; base=1.00ms; test=2.00ms"
        assert result.said.splitlines() == ["test: 2.00x slower [1.80, 2.20] (against base)", "8 rebuilds · 64 rounds · 100 ms · p 0.01"]
        assert result.verdict == "slower"
        assert result.plain()["paired"]["ratio"] == 2.0

    @pytest.mark.parametrize(("mode", "speedup"), [("min", 0.5), ("max", 1.2), ("mean", 8 / 9), ("median", 8 / 9)])
    def test_a_sides_figure_is_what_was_asked_for(self, mode: str, speedup: float) -> None:
        told, item = Told(ITEMS[:1], weigh=False, return_mode=mode), ITEMS[0]
        told.take(item.base, record(item.base), 3.0, 1.0)
        told.take(item.test, record(item.test), 2.0, 2.5)
        assert [result.testing_speedup for result in told.shown] == [pytest.approx(speedup)]

    def test_one_that_cannot_be_made_stops_no_other(self) -> None:
        told = Told(ITEMS)
        for item, status in zip(ITEMS, ("oom", "ok"), strict=True):
            told.take(item.base, record(item.base, status, "can't allocate memory" if status == "oom" else ""), 1.0)
            told.take(item.test, record(item.test), 1.0)
        told.sink.weighed(pair(ITEMS[1]))
        assert told.shown[0] == f"{ITEMS[0].name}: oom: can't allocate memory"
        assert isinstance(told.shown[1], Result)

    def test_wrong_answers_and_what_could_not_be_weighed_are_no_speedup(self) -> None:
        told = Told(ITEMS)
        told.take(ITEMS[0].base, record(ITEMS[0].base), 1.0)
        told.take(ITEMS[0].test, record(ITEMS[0].test, "wrong", "11 instead of 10"), 1.0)
        told.take(ITEMS[1].base, record(ITEMS[1].base), 1.0)
        told.take(ITEMS[1].test, record(ITEMS[1].test, unweighed="the worker died"), 1.0)
        assert [(result.verdict, result.said) for result in told.shown] == [
            ("failed", "the answers differ: 11 instead of 10"), ("failed", "no verdict: the worker died"),
        ]  # fmt: skip

    def test_a_stack_that_is_not_here_ends_it(self) -> None:
        with pytest.raises(NothingMeasured, match="needs torch_xla"):
            Told(ITEMS).take(ITEMS[0].test, record(ITEMS[0].test, "unsupported", "needs torch_xla"))

    def test_an_error_of_ours_about_a_function_is_a_usage_error_and_its_own_is_not(self) -> None:
        item = of_functions("both", "/a/k.py:old", "/a/k.py:new", "torch", **WHERE)
        with pytest.raises(UsageError, match="no function named"):
            Told([item]).take(item.test, record(item.test, "failed", "no function named 'new'"))
        told = Told([item])
        told.take(item.base, record(item.base), 1.0)
        told.take(item.test, record(item.test, "failed", "RuntimeError: no", traceback="…"))
        assert told.shown == ["both: RuntimeError: no"]

    def test_what_never_came_is_told(self) -> None:
        told = Told(ITEMS[:1])
        told.sink.finish()
        assert told.shown == [f"{ITEMS[0].name}: it was not measured"]
