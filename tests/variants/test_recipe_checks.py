"""Faults planted into recipes: scales that are a little off, errors that are none of the machine's, pruning that is none."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from steelyard import register_model, register_recipe
from steelyard.engine.bench import prepare_bench
from steelyard.errors import Unsupported, UsageError
from steelyard.model.case import Case
from steelyard.model.define import Variant
from steelyard.model.experiment import Settings
from steelyard.model.protocol import Fixed
from steelyard.model.record import Record
from steelyard.model.task import Amounts, Task
from steelyard.registry import built_ins
from steelyard.report.cells import check_mark, check_words
from steelyard.variants.recipe import Pruning, Recipe, lighter, recipe
from steelyard.variants.recipes import by_bits, half_of_blocks, larger_blocks, largest_two, two_of_four
from tests.variants.test_recipes import SIZES, changing, weighed

pytest.importorskip("torchao", reason="the recipes are torchao's")
pytestmark = pytest.mark.filterwarnings("default")

RECIPES = {name: item for name, item in built_ins().variants.items() if item.rule}


def spoilt(name: str, monkeypatch: pytest.MonkeyPatch, factor: float) -> Record:
    """A recipe whose answers are off by a factor, as with a wrong scale."""
    own = Recipe.applied

    def applied(self: Recipe, task: Task, be: Any) -> Task:
        made = own(self, task, be)
        made.fn.register_forward_hook(lambda layer, given, answer: answer * factor)  # type: ignore[union-attr]
        return made

    monkeypatch.setattr(Recipe, "applied", applied)
    return weighed(name)


class TestFloors:
    @pytest.mark.parametrize("name", ["int8wo", "int8dq", "float8wo", "int4wo-32", "nf4", "nvfp4wo", "intxwo-4-32"])
    def test_a_scale_that_is_off_by_a_quarter_is_wrong(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        assert weighed(name).status == "ok"
        record = spoilt(name, monkeypatch, 1.25)
        assert record.status == "wrong" and "dB are required" in record.reason

    @pytest.mark.parametrize("name", ["int8wo", "int8dq", "float8wo"])
    def test_eight_bits_notice_less(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        assert spoilt(name, monkeypatch, 1.11).status == "wrong"

    def test_one_bit_holds_nothing_and_two_hold_little(self) -> None:
        assert weighed("intxwo-1-32").status == "wrong"
        record = weighed("intxwo-2-32")
        assert record.status == "ok" and record.verification and record.verification.figures["floor"] == 3

    def test_more_bits_have_higher_floors(self) -> None:
        floors = [by_bits(bits) for bits in range(2, 9)]
        assert floors == sorted(floors) == [3, 6, 12, 18, 24, 30, 30]

    @pytest.mark.parametrize("name", ["int8wo", "float8wo", "nf4"])
    def test_layers_behind_one_another_may_lose_what_each_loses(self, name: str) -> None:
        sizes = (("batch", 8), ("features", 256), ("hidden", 256), ("depth", 3), ("classes", 64), ("dtype", "fp32"))
        one = weighed(name).verification
        many = weighed(name, workload="model/mlp", sizes=sizes)
        assert many.status == "ok" and one and many.verification
        assert many.verification.figures["floor"] == pytest.approx(max(one.figures["floor"] - 10 * math.log10(4), 5), abs=0.06)

    def test_what_the_user_asks_for_wins_in_both_directions(self) -> None:
        assert weighed("int8wo", rule="sqnr[floor=60]").status == "wrong"
        low = weighed("intxwo-2-32", rule="sqnr[floor=0]")
        assert low.status == "ok" and low.verification and low.verification.figures["floor"] == 0
        twice = changing("much-off", lambda layer: layer.weight.data.mul_(1.7))
        assert weighed("much-off", twice).status == "wrong" and weighed("much-off", twice, rule="sqnr[floor=2]").status == "ok"

    def test_a_recipe_of_ones_own_has_its_own_floor(self) -> None:
        def build() -> Any:
            return lambda model: [layer.weight.data.mul_(1.1) for layer in model.modules() if isinstance(layer, torch.nn.Linear)][:0]

        held = weighed("a-tenth", register_recipe("a-tenth", build, floor=30))
        assert held.status == "wrong" and "at least 30 dB" in held.reason
        usual = weighed("a-tenth-too", register_recipe("a-tenth-too", build))
        assert usual.status == "ok" and usual.verification and usual.verification.figures["floor"] == 5
        with pytest.raises(UsageError, match="floor of recipe low is not a number: nan"):
            register_recipe("low", build, floor=math.nan)

    def test_two_recipes_are_held_to_the_lower_floor(self) -> None:
        halves = changing("little-off", lambda layer: layer.weight.data.mul_(1.05))
        record = weighed("little-off+int8wo", halves)
        assert record.status == "ok" and record.verification and record.verification.figures["floor"] == 5

    def test_a_fixed_number_of_calls_keeps_the_figures_of_the_rule(self) -> None:
        record = weighed("int8wo", fixed=Fixed(repeats=3))
        assert record.status == "ok" and record.verification
        assert record.verification.figures["floor"] == 30 and record.verification.checks[0] == "first answer"


def failing(error: Exception, *, ours: bool = True, late: bool = False) -> Variant:
    """A recipe in which torchao raises, when it is applied or when it is called."""

    class Broken(torch.nn.Linear):
        def forward(self, given: Any) -> Any:
            raise error

    def build() -> Any:
        def change(model: Any) -> Any:
            if late:
                return Broken(256, 128, bias=False).bfloat16()
            raise error

        return change

    return recipe("breaks", floor=5, ours=ours)(build)


FAULTS = [
    ValueError("scale is negative"), RuntimeError("mat1 and mat2 shapes cannot be multiplied (32x256 and 128x64)"), KeyError("weight"),
    TypeError("unsupported operand type(s)"), AssertionError(""), RuntimeError("a leaf Variable that requires grad was changed in place"),
    AttributeError("'NoneType' object has no attribute 'shape'"),
    AssertionError("applying int8 weight only quant requires module to have weight attribute"),
]  # fmt: skip
LACKS = [
    ImportError("No module named 'mslk'"), NotImplementedError("CUTLASS not supported on your machine"),
    RuntimeError("Could not run 'torchao::x' with arguments from the 'CPU' backend"), RuntimeError("no kernel image is available"),
    RuntimeError('"addmm_impl_cpu_" not implemented for \'Float8_e4m3fn\''),
    AssertionError("Float8 dynamic activation quantization is only supported on CUDA>=8.9 and MI300+"),
    RuntimeError("Error original_tensor.dtype torch.float64 is not a supported dtype!"),
    AssertionError("Requires mslk >= 1.0.0"), ValueError("Cannot use tinygemm int4 kernel with a device of compute capability (7, 5)"),
    AssertionError("Number of scalers must be divisible by scaler block size, got 24"),
    RuntimeError("_convert_weight_to_int4pack_cpu : expect N to be dividable by 16"),
    AttributeError("'_OpNamespace' 'torchao' object has no attribute 'da8w4_linear_cpu'"),
]  # fmt: skip


class TestRefusals:
    def test_what_a_compiler_cannot_do_is_a_failure(self) -> None:
        from torch._dynamo.exc import Unsupported as Untraceable

        record = weighed("breaks", failing(Untraceable("this is unsupported"), late=True))
        assert record.status == "failed" and "this is unsupported" in record.reason

    @pytest.mark.parametrize("late", [False, True])
    @pytest.mark.parametrize("error", FAULTS, ids=repr)
    def test_a_fault_is_a_failure(self, error: Exception, late: bool) -> None:
        record = weighed("breaks", failing(error, late=late))
        assert record.status == "failed" and type(error).__name__ in record.reason

    @pytest.mark.parametrize("late", [False, True])
    @pytest.mark.parametrize("error", LACKS, ids=repr)
    def test_what_is_missing_is_unsupported(self, error: Exception, late: bool) -> None:
        record = weighed("breaks", failing(error, late=late))
        assert record.status == "unsupported" and "cannot run here" in record.reason

    def test_errors_of_a_recipe_of_ones_own_are_failures(self) -> None:
        assert weighed("breaks", failing(NotImplementedError("later"), ours=False)).status == "failed"

    def test_a_late_refusal_under_a_fixed_number_of_calls(self) -> None:
        record = weighed("breaks", failing(NotImplementedError("no kernel"), late=True), fixed=Fixed(repeats=3))
        assert record.status == "unsupported"

    def test_a_missing_package_is_told_with_what_to_do(self) -> None:
        def build() -> Any:
            import torchao_of_another_time  # type: ignore[import-not-found]  # noqa: F401

        record = weighed("absent", recipe("absent", floor=5)(build))
        assert record.status == "unsupported" and "steelyard[torchao]" in record.reason


def pruning(name: str, made: Callable[[], Pruning], floor: float = 30) -> Variant:
    found: Variant = register_recipe(name, made, floor=floor)
    return found


class TestPruning:
    def test_it_is_held_to_the_pruned_model_and_its_loss_is_told(self) -> None:
        own = pruning("fours", lambda: Pruning(largest_two, None, two_of_four, "zero in two of every four places"))
        record = weighed("fours", own)
        assert (record.status, record.effective["zeros"]) == ("ok", 0.5)
        dense = 2 * math.prod(size for _, size in SIZES if isinstance(size, int))
        assert record.metrics["compute"].value * record.metrics["time"].value == pytest.approx(dense / 2), "zeros are not multiplied"
        assert record.verification and record.verification.against == "the pruned model in its plain layout"
        assert 5 < record.metrics["sqnr_pruning"].value < 15, "half of the weights, the smaller ones"

    def test_half_of_the_blocks_gone_are_no_reason_to_be_wrong(self) -> None:
        halved = Pruning(lambda weight: larger_blocks(weight, 32), None, lambda weight: half_of_blocks(weight, 32), "halved")
        record = weighed("blocks", pruning("blocks", lambda: halved))
        assert record.status == "ok" and record.effective["zeros"] == 0.5 and record.metrics["sqnr_pruning"].value < 5

    @pytest.mark.parametrize("reference", ["eager", "fp64"])
    def test_a_kernel_that_computes_the_unpruned_model_is_wrong(self, reference: str) -> None:
        kept: list[Any] = []

        def dense(weight: Any) -> Any:
            kept.append(weight.clone())
            return largest_two(weight)

        class Dense(torch.nn.Linear):
            """Says that it is sparse, and is not."""

            def forward(self, given: Any) -> Any:
                return given @ kept[0].T

        def change(model: Any) -> Any:
            model.__class__ = Dense

        record = weighed("dense", pruning("dense", lambda: Pruning(dense, change, two_of_four)), reference=reference)
        assert record.status == "wrong"

    def test_zeros_that_are_not_where_they_should_be_are_not_applied(self) -> None:
        def one(weight: Any) -> Any:
            mask = torch.ones_like(weight)
            mask[:, ::4] = 0
            return mask

        record = weighed("one", pruning("one", lambda: Pruning(one, None, two_of_four, "zero in two of every four places")))
        assert record.status == "not_applied"
        assert "1 of the 1 weights are not zero in two of every four places; 25% of all numbers are zero" in record.reason

    def test_a_layout_that_is_never_applied_is_told_in_its_own_words(self) -> None:
        record = weighed("plain", pruning("plain", lambda: Pruning(largest_two, lambda model: None, two_of_four)))
        assert record.status == "not_applied" and record.reason == "plain: the weights were pruned and not stored as sparse ones"

    def test_what_is_stored_in_few_bits_after_that_is_held_to_the_pruned_model_too(self) -> None:
        record = weighed("fours+int8wo", pruning("fours", lambda: Pruning(largest_two, None, two_of_four)))
        assert record.status == "ok" and record.metrics["sqnr"].value > 30 and record.effective["zeros"] == 0.5

    def test_packed_weights_cannot_be_pruned(self) -> None:
        record = weighed("int8wo+fours", pruning("fours", lambda: Pruning(largest_two, None, two_of_four)))
        assert record.status == "unsupported" and "plain weights" in record.reason

    def test_masks_and_checks(self) -> None:
        weight = torch.randn(96, 64)
        assert two_of_four(weight * largest_two(weight)) and not two_of_four(weight)
        for block in (16, 32):
            mask = larger_blocks(weight, block)
            assert float(mask.mean()) == 0.5 and half_of_blocks(weight * mask, block) and not half_of_blocks(weight, block)
        with pytest.raises(Unsupported, match="do not divide a weight of 96 by 64"):
            larger_blocks(weight, 64)
        assert not half_of_blocks(weight[:64] * larger_blocks(weight[:64], 64), 64), "one block alone stays"

    def test_a_script_has_it_done_in_place(self) -> None:
        model = torch.nn.Sequential(torch.nn.Linear(64, 32))
        assert Pruning(largest_two, None, two_of_four)(model) is model and two_of_four(model[0].weight)

    def test_sparse_recipes_find_their_configs(self) -> None:
        for name in ("SemiSparseWeightConfig", "BlockSparseWeightConfig", "sparsify_"):
            assert hasattr(__import__("torchao.sparsity.sparse_api", fromlist=["x"]), name)


class TestRecords:
    def test_a_switch_that_does_nothing_is_told(self) -> None:
        import torchao

        record = weighed("int8dq_prefill_wo_decode")
        assert record.status == "ok" and record.effective["same_as"].startswith("int8dq: torchao 0.18 accepts weight_only_decode")
        read = [path for path in Path(torchao.__file__).parent.rglob("*.py") if ".weight_only_decode" in path.read_text(errors="ignore")]
        assert not read, "torchao reads it now: the record must not say that it does not"

    def test_packing_is_told(self) -> None:
        assert weighed("int4wo-32").effective["packing"] == "opaque"

    @pytest.mark.parametrize("name", ["int8wo", "int4wo-32"])
    def test_nothing_is_called_before_the_first_call(self, name: str) -> None:
        calls: list[int] = []

        @register_model(f"counted_{name.replace('-', '_')}")
        def counted(m: int, k: int, n: int, dtype: Any, device: Any) -> Any:
            model = torch.nn.Linear(k, n, bias=False).to(device, dtype)
            model.register_forward_pre_hook(lambda layer, given: calls.append(1))
            return model, torch.randn(m, k, dtype=dtype, device=device)

        loaded = built_ins()
        loaded.workloads[counted.name] = counted
        bench = prepare_bench(Case(counted.name, SIZES, "torch", name), loaded, Settings())
        _, task = bench.build()
        assert not calls and not bench.compiles
        task()
        assert calls

    def test_the_time_of_the_first_call_is_no_compilation(self) -> None:
        record = weighed("int8wo")
        assert record.effective["wall"]["first call"] == pytest.approx(record.metrics["first_call_time"].value, abs=1e-3)
        assert "compile" not in record.effective["wall"]

    def test_an_accuracy_that_cannot_be_told_is_said_in_record_and_table(self) -> None:
        @register_model("endless")
        def endless(m: int, k: int, n: int, dtype: Any, device: Any) -> Any:
            model = torch.nn.Sequential(torch.nn.Linear(k, n, bias=False), torch.nn.Threshold(math.inf, math.inf)).to(device, dtype)
            return model, torch.randn(m, k, dtype=dtype, device=device)

        record = weighed("int8wo", endless, workload="torchao/endless")
        assert record.verification and record.verification.status == "none" and "sqnr" not in record.metrics
        assert "not finite" in record.verification.message and "accuracy cannot be measured" in check_words(record) and check_mark(record)

    def test_inputs_that_cannot_be_given_other_values_are_taken_as_they_are(self) -> None:
        @register_model("spread")
        def spread(m: int, k: int, n: int, dtype: Any, device: Any) -> Any:
            model = torch.nn.Linear(k, n, bias=False).to(device, dtype)
            return model, torch.randn(1, k, dtype=dtype, device=device).expand(m, k)

        record = weighed("int8wo", spread, workload="torchao/spread")
        assert record.status == "ok" and record.verification and record.verification.status == "passed"
        assert "SQNR on the task's own inputs" in record.verification.checks[-1]

    def test_every_recipe_of_ours_has_a_floor_and_modes(self) -> None:
        assert len(RECIPES) > 20 and all(item.modes for item in RECIPES.values())
        assert all(not item.fresh for item in RECIPES.values())


def test_what_a_variant_of_ones_own_makes_of_a_task_is_left_alone() -> None:
    """Only what says that it costs accuracy is held to a floor."""
    plain = Variant("same", lambda task: replace(task, fn=lambda x: task.fn(x)))  # type: ignore[misc]
    record = weighed("same", plain)
    assert record.status == "ok" and record.verification and not record.verification.figures


def test_parts_of_a_request_read_smaller_weights_each_time() -> None:
    parts = {"ttft": Amounts(8.0, 1100.0), "itl": Amounts(1.0, 1010.0, 3)}
    whole, found = lighter(Task(print, bytes=1100.0 + 3 * 1010.0, amounts=parts), 1000.0, 300.0)
    assert (found["ttft"].bytes, found["itl"].bytes, whole) == (400.0, 310.0, 400.0 + 3 * 310.0)
    assert lighter(Task(print, bytes=1200.0), 1000.0, 300.0) == (500.0, {}) and lighter(Task(print), 1000.0, 300.0) == (None, {})
