"""A config as rows: every key with its default, both forms, pairing of recipes, names and order, and every mistake by its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from steelyard import registry
from steelyard.dialects.torchao import config, reading
from steelyard.dialects.torchao.layers import LayerRow, pairings
from steelyard.errors import UsageError

SHAPES = [{"name": "custom", "shapes": [[16, 32, 64]]}]


def write(tmp_path: Path, **given: Any) -> Path:
    data = {"quantization_config_recipe_names": ["int8wo"], "model_params": [{"matrix_shapes": SHAPES}], **given}
    path = tmp_path / "config.yml"
    path.write_text(yaml.safe_dump(data))
    return path


def rows(tmp_path: Path, *models: dict[str, Any], **given: Any) -> list[LayerRow]:
    listed = [{"matrix_shapes": SHAPES, **model} for model in models] or [{"matrix_shapes": SHAPES}]
    return reading.read_rows(write(tmp_path, model_params=listed, **given))[0]


def said(path: Path, **words: Any) -> str:
    with pytest.raises(UsageError) as error:
        reading.read_rows(path, **words)
    return str(error.value)


def test_every_key_has_the_originals_default(tmp_path: Path) -> None:
    [row] = rows(tmp_path)
    assert row.name == "benchmark_int8wo_linear_m16_k32_n64"
    assert (row.dtype, row.mode, row.device, row.model_type, row.sparsity) == ("bf16", "default", "cpu", "linear", None)
    assert (row.profiler, row.memory_profiler) == (False, False)
    assert row.output_dir == "benchmarks/microbenchmarks/results/inference"


def test_the_first_form_times_what_a_row_needs_and_the_last_one_both(tmp_path: Path) -> None:
    seed, plain, unsaid, last = rows(
        tmp_path, {"use_torch_compile": True, "torch_compile_mode": "max-autotune"}, {"use_torch_compile": False}, {},
        {"torch_compile_mode": "default"},
    )  # fmt: skip
    point = "torchao/linear[dtype=bf16,k=32,m=16,n=64]@torch"
    compiling = "compile[fullgraph=true,mode=max-autotune]"
    assert seed.name == "benchmark_int8wo_linear_m16_k32_n64_compile"
    assert [case.id for case in seed.cases.values()] == [f"{point}/{compiling}:eval", f"{point}/int8wo+{compiling}:eval"]
    assert list(seed.pairs) == ["compile"]
    assert [case.id for case in plain.cases.values()] == [f"{point}/eager:eval", f"{point}/int8wo:eval"]
    assert unsaid.cases == plain.cases and list(unsaid.pairs) == ["eager"], "the documented version's default is false"
    assert list(last.cases) == ["baseline_eager", "quantized_eager", "baseline_compiled", "quantized_compiled"]
    assert [(head.variant, base.variant) for head, base in last.pairs.values()] == [
        ("int8wo", "eager"), ("int8wo+compile[fullgraph=true]", "compile[fullgraph=true]"), ("int8wo+compile[fullgraph=true]", "int8wo"),
    ]  # fmt: skip


def test_a_baseline_alone_is_held_against_nothing_but_its_compiled_self(tmp_path: Path) -> None:
    seed, last = rows(tmp_path, {}, {"torch_compile_mode": "default"}, quantization_config_recipe_names=["baseline"])
    assert list(seed.cases) == ["baseline_eager"] and not seed.pairs
    assert list(last.cases) == ["baseline_eager", "baseline_compiled"] and list(last.pairs) == ["eager_vs_compile"]


def test_all_keys_are_read_and_a_single_map_will_do(tmp_path: Path) -> None:
    model = {
        "name": "small_bf16_linear", "matrix_shapes": [{"name": "pow2", "max_power": 11}], "high_precision_dtype": "torch.float32",
        "use_torch_compile": True, "torch_compile_mode": "reduce-overhead", "device": "cuda", "model_type": "ln_linear_gelu",
        "enable_profiler": True, "enable_memory_profiler": True,
    }  # fmt: skip
    path = write(tmp_path, model_params=model, output_dir="here", benchmark_mode="inference")
    found, warnings = reading.read_rows(path)
    assert [row.shape.name for row in found] == ["pow2_0", "pow2_1"] and not warnings
    first = found[0]
    assert (first.name, first.dtype, first.output_dir, first.profiler) == ("small_bf16_linear", "fp32", "here/inference", True)
    assert first.subject.id == (
        "torchao/ln_linear[activation=gelu,dtype=fp32,k=1024,m=1024,n=1024]@torch/"
        "int8wo+compile[fullgraph=true,mode=reduce-overhead]:eval:device=cuda"
    )
    assert first.file_stem == "small_bf16_linear_1024_1024_1024_quant_int8wo_sparsity_None"


def test_every_recipe_runs_dense_and_sparsity_only_where_it_goes() -> None:
    assert pairings(["int8wo", "int8dq", "float8dq-row", "int8wo", "baseline", "marlin"], ["semi-sparse", "block"]) == [
        ("int8wo", None), ("int8dq", None), ("float8dq-row", None), ("baseline", None), ("marlin", None),
        ("int8dq", "semi-sparse"), ("float8dq-row", "semi-sparse"), ("baseline", "semi-sparse"), ("marlin", "semi-sparse"),
        ("baseline", "block"),
    ]  # fmt: skip


def test_a_sparse_baseline_is_really_sparse(tmp_path: Path) -> None:
    found = rows(tmp_path, {"use_torch_compile": False}, quantization_config_recipe_names=["baseline", "int8dq"],
                 sparsity_config_recipe_names=[None, "2:4", "block"])  # fmt: skip
    assert [row.recipe for row in found] == ["eager", "int8dq", "semi-sparse", "int8dq+semi-sparse", "block-sparse"]
    head, base = found[2].pairs["eager"]
    assert (head.variant, base.variant) == ("semi-sparse", "eager")


def test_rows_of_training_time_a_step(tmp_path: Path) -> None:
    found = rows(tmp_path, {"use_torch_compile": True}, benchmark_mode="training", quantization_config_recipe_names=["float8-training"])
    assert {case.mode for row in found for case in row.cases.values()} == {"train"}
    assert {row.output_dir.rpartition("/")[2] for row in found} == {"training"}
    inference = rows(tmp_path, {}, quantization_config_recipe_names=["float8-training"])
    assert {case.mode for row in inference for case in row.cases.values()} == {"eval"}


def test_the_order_is_that_of_the_file_and_rows_of_one_name_are_told_apart(tmp_path: Path) -> None:
    shapes = [{"name": "gemma3_27b"}, {"name": "custom", "shapes": [[1, 1, 1], [1, 1, 1]]}]
    found = rows(tmp_path, {"matrix_shapes": shapes, "name": "x"}, quantization_config_recipe_names=["int8wo", "int8dq"])
    assert [row.quantization for row in found] == ["int8wo"] * 6 + ["int8dq"] * 6
    assert [row.shape.name for row in found[:4]] == ["gemma3_27b_QO_proj", "gemma3_27b_KV_proj"] * 2
    found = config.checked(found, registry.catalogue())
    assert len({row.key for row in found}) == 12 and found[5].key == "x int8wo custom (1, 1, 1) #2"


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"quantization_config_recipe_name": []}, "did you mean quantization_config_recipe_names"),
    ({"benchmark_mode": "trainin"}, "did you mean training"),
    ({"sparsity_config_recipe_names": ["None"]}, "write null"),
    ({"sparsity_config_recipe_names": ["diagonal"]}, 'sparsity_config_recipe_names[0]: "diagonal" is not a sparsity recipe'),
    ({"sparsity_config_recipe_names": [124]}, 'write "2:4"'),
    ({"sparsity_config_recipe_names": ["semi"]}, "fits none of these recipes"),
    ({"quantization_config_recipe_names": "int8wo"}, "expected a list of names"),
    ({"quantization_config_recipe_names": []}, "nothing to run"),
    ({"model_params": []}, "model_params: missing or empty"),
    ({"model_params": [3]}, "model_params[0]: expected a table, not 3"),
    ({"model_params": [{}]}, "model_params[0].matrix_shapes: missing or empty"),
    ({"model_params": [{"matrix_shapes": [7]}]}, "model_params[0].matrix_shapes[0]: expected a table"),
    ({"model_params": [{"matrix_shapes": [{"name": "pow3"}]}]}, "model_params[0].matrix_shapes[0]: no family of shapes named 'pow3'"),
    ({"model_params": [{"matrix_shapes": [{"name": "llama", "max_power": 3}]}]}, "matrix_shapes[0].max_power: unknown key"),
    ({"model_params": [{"matrix_shapes": SHAPES, "devcie": "cuda"}]}, "model_params[0].devcie: unknown key"),
    ({"model_params": [{"matrix_shapes": SHAPES, "device": "gpu"}]}, "did you mean cuda"),
    ({"model_params": [{"matrix_shapes": SHAPES, "use_torch_compile": "yes"}]}, "expected true or false"),
    ({"model_params": [{"matrix_shapes": SHAPES, "torch_compile_mode": "max-autotun"}]}, "did you mean max-autotune"),
    ({"model_params": [{"matrix_shapes": SHAPES, "high_precision_dtype": "torch.bfloat61"}]}, "did you mean bfloat16"),
    ({"model_params": [{"matrix_shapes": SHAPES, "high_precision_dtype": "int8"}]}, "no high precision dtype named 'int8'"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "words"), MISTAKES, ids=[words for _, words in MISTAKES])
def test_a_mistake_is_told_with_its_file_and_place(tmp_path: Path, given: dict[str, Any], words: str) -> None:
    path = write(tmp_path, **given)
    text = said(path)
    assert words in text and str(path) in text


def test_what_the_original_passes_over_is_a_warning_where_it_is_asked_for(tmp_path: Path) -> None:
    model = {"matrix_shapes": SHAPES, "devcie": 1, "use_torch_compile": 1, "torch_compile_mode": "fast", "device": "gpu"}
    path = write(
        tmp_path, quantization_config_recipe_names=["int8wo", None], sparsity_config_recipe_names=["None"], model_params=[model], x=1
    )
    found, warnings = reading.read_rows(path, lenient=True)
    assert [row.quantization for row in found] == ["int8wo", "baseline"]
    assert (found[0].use_compile, found[0].mode, found[0].device) == (True, "default", "cpu")
    for words in ("x: unknown key", "model_params[0].devcie", "use_torch_compile", "torch_compile_mode", "device", "None"):
        assert any(words in warning for warning in warnings), words
    assert "model_params[0]: expected" in said(write(tmp_path, model_params=[3]), lenient=True)


def test_it_is_recognised_by_its_keys(tmp_path: Path) -> None:
    assert config.recognise(write(tmp_path))
    for name, text in (
        ("a.yml", "matrix: []\n"),
        ("b.yml", "model_params: [\n"),
        ("c.txt", "model_params: []\n"),
        ("d.yaml", "- model_params\n"),
    ):
        (tmp_path / name).write_text(text)
        assert not config.recognise(tmp_path / name), name
    assert not config.recognise(tmp_path / "none.yml")


def test_names_that_nobody_has_are_told_with_the_key_they_stand_under(tmp_path: Path) -> None:
    for model_type, words in (
        ("ln_linear_rellu", "model_params[0].model_type: no activation named 'rellu'; did you mean relu"),
        ("no such", "model_params[0].model_type: not a"),
        ("model/gtp", "model_params[0].model_type: no workload named 'model/gtp'; did you mean model/gpt"),
    ):
        with pytest.raises(UsageError) as error:
            config.read(write(tmp_path, model_params=[{"matrix_shapes": SHAPES, "model_type": model_type}]))
        assert words in str(error.value)


def built(tmp_path: Path, model_type: str) -> list[LayerRow]:
    shapes = [{"name": "custom", "shapes": [[1, 2, 3], [4, 5, 6]]}]
    model = {"matrix_shapes": shapes, "model_type": model_type, "high_precision_dtype": "torch.float32"}
    return config.checked(rows(tmp_path, model, quantization_config_recipe_names=["int8wo", "int8dq"]), registry.catalogue())


def test_any_workload_may_be_the_layer_and_takes_the_sizes_that_it_has_axes_for(tmp_path: Path) -> None:
    assert [row.shape.m for row in built(tmp_path, "torchao/linear")] == [1, 4] * 2
    assert built(tmp_path, "torchao/linear")[0].cases == built(tmp_path, "linear")[0].cases
    for name in ("model/gpt", "transformers/bert", "layer/linear"):
        found = built(tmp_path, name)
        assert [row.key for row in found] == [f"benchmark_{recipe}_{name} {recipe} own sizes" for recipe in ("int8wo", "int8dq")]
        [first, *_] = found
        assert first.trouble == "" and f"{name} has no m, k, n: it runs with" in first.note and not first.sizes
        assert dict(first.subject.params)["dtype"] == "fp32", "the precision is an axis of its"
        assert dict(first.subject.params).keys() == registry.catalogue().workloads[name]["axes"].keys()


def test_either_version_can_be_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path, model_params=[{"matrix_shapes": SHAPES, "torch_compile_mode": "default"}])
    assert [len(reading.read_rows(path, form=form)[0][0].cases) for form in ("seed", "last", "")] == [2, 4, 4]


def test_a_config_of_too_many_rows_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_CASES", 100)
    assert "more than 100 rows" in said(write(tmp_path, model_params=[{"matrix_shapes": [{"name": "sweep"}]}]))
    assert "more than 100 rows" in said(write(tmp_path, model_params=[{"matrix_shapes": [{"name": "pow2"}]}] * 21))
