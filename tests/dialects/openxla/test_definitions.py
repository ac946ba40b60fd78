"""The definitions have the original's fields, names and defaults, import no framework, and come in many sizes from one template."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from string import Template
from typing import Any

import pytest

from steelyard.dialects.openxla import definitions as defs
from steelyard.dialects.openxla import templates
from steelyard.dialects.openxla.catalogue import DefinitionSet, choose
from steelyard.dialects.openxla.definitions import BenchmarkCase, Model, ModelArtifactType, ModelFrameworkType, ModelImplementation
from steelyard.dialects.openxla.lint import findings
from steelyard.dialects.openxla.session import SuiteRun, ToolOptions
from steelyard.engine.packages import ListTrouble
from steelyard.errors import UsageError
from steelyard.store.runs import Store

FIELDS = {
    defs.ModelImplementation: "name tags framework_type source_info=None module_path=None",
    defs.Model: "name tags model_impl model_parameters artifacts_dir_url=None exported_model_types=[]",
    defs.ModelTestData: "name source_url source_info='' tags=[]",
    defs.DeviceSpec: "name host_type host_model host_environment accelerator_type accelerator_model accelerator_architecture "
    "accelerator_attributes",
    defs.BenchmarkCase: "name model input_data verify_parameters={}",
}
FRAMEWORKS = ("torch", "jax", "tensorflow", "numpy")
DEFAULT = defs.INPUT_DATA_MODEL_DEFAULT
IMPL = ModelImplementation("TOY", ["toy"], ModelFrameworkType.PYTORCH, module_path="a.b")


def spelt(kind: Any) -> str:
    words = []
    for item in dataclasses.fields(kind):
        made = item.default_factory() if item.default_factory is not dataclasses.MISSING else item.default
        words.append(item.name if made is dataclasses.MISSING else f"{item.name}={made!r}")
    return " ".join(words)


@pytest.mark.parametrize("kind", FIELDS, ids=lambda kind: kind.__name__)
def test_fields_and_defaults_are_the_originals(kind: Any) -> None:
    assert spelt(kind) == FIELDS[kind]
    assert kind.__dataclass_params__.frozen


def test_values_are_the_originals() -> None:
    assert [item.value for item in ModelFrameworkType] == ["tensorflow_v1", "tensorflow_v2", "tflite", "pytorch", "jax", "ggml"]
    assert [item.value for item in ModelArtifactType] == [
        "tf_savedmodel_v1", "tf_savedmodel_v2", "tflite_fp32", "tflite_fp32_stablehlo", "tflite_fp16", "tflite_dynamic_range_quant",
        "tflite_int8", "xla_hlo_dump", "stablehlo_mlir", "linalg_mlir", "tosa_mlir",
    ]  # fmt: skip
    assert list(defs.DEVICES) == [
        "a2-highgpu-1g", "c2-standard-16", "c2-standard-60", "host-gpu", "host-cpu", "pixel-6-pro", "pixel-8-pro",
    ]  # fmt: skip


def test_definitions_are_known_by_their_names() -> None:
    model = Model("M", [], IMPL, {})
    case = BenchmarkCase.build(model, DEFAULT)
    assert (str(IMPL), str(model), str(case.input_data), str(defs.DEVICES["host-cpu"])) == (
        "TOY",
        "M",
        "INPUT_DATA_MODEL_DEFAULT",
        "host-cpu",
    )
    assert case.name == "models/M/inputs/INPUT_DATA_MODEL_DEFAULT"
    assert case.verify_parameters == {}


def test_importing_all_definitions_imports_no_framework() -> None:
    code = f"import sys, steelyard.dialects.openxla.suite; print([name for name in {FRAMEWORKS} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def template(name: Template, **parameters: Any) -> templates.ModelTemplate:
    return templates.ModelTemplate(name, ["toy", templates.BATCH_TAG], IMPL, parameters, Template("s3://x/${name}"))


def test_a_template_fills_names_tags_addresses_and_typed_parameters() -> None:
    made = templates.build_batch_models(
        template(
            templates.BATCH_NAME("TOY"), batch_size=templates.BATCH_SIZE_PARAM, deep={"in": [Template("${batch_size}x${name}"), 1, None]}
        ),
        [1, 16],
    )
    assert list(made) == [1, 16]
    assert made[16] == Model(
        "TOY_BATCH16", ["toy", "batch-16"], IMPL, {"batch_size": 16, "deep": {"in": ["16xTOY_BATCH16", 1, None]}}, "s3://x/TOY_BATCH16"
    )
    cases = templates.build_batch_benchmark_cases(batch_models=made, batch_sizes=[16], verify_parameters={"absolute_tolerance": 0.5})
    assert [case.name for case in cases.values()] == ["models/TOY_BATCH16/inputs/INPUT_DATA_MODEL_DEFAULT"]
    assert cases[16].verify_parameters == {"absolute_tolerance": 0.5}


def test_other_axes_have_names_of_their_own_and_several_go_together() -> None:
    by_length = templates.ModelTemplate(templates.SEQ_LEN_NAME("A"), [templates.SEQ_LEN_TAG], IMPL, {"seq_len": templates.SEQ_LEN_PARAM})
    assert templates.build_input_sequence_models(by_length, [8])[8].name == "A_SEQLEN8"
    by_tokens = templates.ModelTemplate(templates.GEN_NAME("A"), [templates.GEN_TAG], IMPL, {"gen": templates.GEN_SIZE_PARAM})
    assert templates.build_gen_models(by_tokens, [32])[32].tags == ["gen-32"]
    both = templates.build_models(template(templates.axes_name("A", ["batch_size", "seq_len"])), {"batch_size": [1, 2], "seq_len": [8, 16]})
    assert [model.name for model in both.values()] == ["A_BATCH1_SEQLEN8", "A_BATCH1_SEQLEN16", "A_BATCH2_SEQLEN8", "A_BATCH2_SEQLEN16"]


def test_a_template_holds_nothing_that_it_cannot_fill() -> None:
    with pytest.raises(ValueError, match="cannot hold"):
        templates.build_batch_models(template(templates.BATCH_NAME("A"), shape={1, 2}), [1])


def held(*names: str) -> DefinitionSet:
    models = [Model(name, [], IMPL, {"data_type": "fp32"}) for name in names]
    return DefinitionSet(tuple(models), tuple(BenchmarkCase.build(model, DEFAULT) for model in models))


def chosen(pattern: str, known: DefinitionSet | None = None, tool: str = "pytorch") -> list[str]:
    found = choose(known or held("A_BATCH1", "A_BATCH16", "A_BATCH1280", "B_BATCH1"), tool, [pattern])
    return [case.model.name for case in found.cases]


def test_a_pattern_fits_whole_names() -> None:
    assert chosen(r"models/A_BATCH(1|16)/.+") == ["A_BATCH1", "A_BATCH16"]
    assert chosen(r"models/A_BATCH1/inputs/INPUT_DATA_MODEL_DEFAULT|models/B_.+") == ["A_BATCH1", "B_BATCH1"]
    for loose in ("models/A_BATCH1", "A_BATCH1/.+", "models/A_BATCH1$|nothing", "^models/A"):
        with pytest.raises(UsageError, match="models/A_BATCH1280/inputs"):
            chosen(loose)


def test_what_fits_nothing_names_all_of_the_tool_and_no_other() -> None:
    with pytest.raises(UsageError) as error:
        chosen("x.+", tool="jax")
    assert "there is no benchmark of jax" in str(error.value)
    with pytest.raises(UsageError, match="regular expression"):
        chosen("models/(A")


def test_different_cases_of_one_name_are_told_and_neither_is_measured(tmp_path: Path) -> None:
    both = [BenchmarkCase.build(Model("A", [], IMPL, {"batch_size": size}), DEFAULT) for size in (1, 2)]
    rest = held("B")
    found = choose(DefinitionSet(cases=(*both, *rest.cases, *rest.cases)), "pytorch", ["models/.+"])
    assert [case.model.name for case in found.cases] == ["B"]
    assert [item.name for item in found.troubles] == [both[0].name]
    said: list[str] = []
    options = ToolOptions("pytorch", (), "pixel-6-pro", tmp_path / "r.json", strict_exit=True)
    run = SuiteRun(options, said.append, Store(tmp_path))
    run._measure(found)
    assert "several cases have this name, and they differ" in said[0]
    assert run.statuses[both[0].name] == "failed"


def model(name: str, tags: tuple[str, ...] = (), impl: ModelImplementation = IMPL, exported: Any = (), **parameters: Any) -> Model:
    return Model(name, list(tags), impl, {"data_type": "fp32", **parameters}, None, list(exported))


JAX = ModelImplementation("J", [], ModelFrameworkType.JAX, module_path="j")
MISTAKES = [
    (model("A_BATCH1", ("batch-16",), batch_size=1), "its tag says batch 16, but batch_size is 1"),
    (model("A_BATCH8", batch_size=1), "its name says batch 8, but batch_size is 1"),
    (model("A_SEQLEN8", ("seqlen-8",), seq_len=16), "its tag says seqlen 8, but seq_len is 16"),
    (model("A_FP16", ("fp32",), data_type="fp16"), "its tag says fp32, but data_type is fp16"),
    (model("A_BF16", data_type="fp16"), "its name says bf16, but data_type is fp16"),
    (model("GPT2_PIPELINE_TF_1", impl=JAX), "its name says TF, but its framework is JAX"),
    (model("A", exported=[ModelArtifactType.TFLITE_FP32]), "it declares TFLITE_FP32, which no export of PYTORCH makes"),
    (model("A", impl=ModelImplementation("N", [], ModelFrameworkType.PYTORCH)), "no module_path"),
    (model("A", data_type="fp99"), "no data_type named 'fp99'; did you mean fp"),
    (model("A", data_type="half"), "no data_type named 'half'; did you mean fp16?"),
    (model("A", impl=ModelImplementation("G", [], ModelFrameworkType.GGML, module_path="g")), "no tool runs models of GGML"),
]


@pytest.mark.parametrize(("made", "told"), MISTAKES, ids=[told for _, told in MISTAKES])
def test_the_lint_finds(made: Model, told: str) -> None:
    case = BenchmarkCase.build(made, DEFAULT)
    assert any(told in item.what for item in findings(DefinitionSet((made,), (case,))))


def test_the_lint_finds_doubles_strangers_and_what_no_case_has() -> None:
    one, other = model("A"), model("B")
    case, wrong = (
        BenchmarkCase.build(one, DEFAULT),
        BenchmarkCase("models/VIT/inputs/X", one, DEFAULT),
    )
    found = [str(item) for item in findings(DefinitionSet((other, other), (case, case, wrong), (ListTrouble("f.py:3", "TypeError"),)))]
    for told in (
        "wrong  f.py:3: TypeError", "wrong  B: 2 models have this name", "2 cases have this name", "is not in ALL_MODELS",
        f"wrong  models/VIT/inputs/X: its model and input make the name models/A/inputs/{DEFAULT}", "doubtful  B: no case uses this model",
    ):  # fmt: skip
        assert any(told in line for line in found), told


def test_the_lint_finds_a_tolerance_that_nobody_reads() -> None:
    one = model("A")
    case = BenchmarkCase.build(one, DEFAULT, {"absolute_tolerence": 0.5, "relative_tolerance": 0})
    [found] = findings(DefinitionSet((one,), (case,)))
    assert str(found).startswith(
        "wrong  models/A/inputs/INPUT_DATA_MODEL_DEFAULT: no key of verify_parameters named 'absolute_tolerence'; "
        "did you mean absolute_tolerance"
    )


def test_sound_definitions_are_left_alone() -> None:
    assert findings(held("A_FP32_PT_BATCH1")) == []
    one = model("A_INT8", data_type="int8")
    tolerances = {"absolute_tolerance": 0.5, "relative_tolerance": 0}
    assert findings(DefinitionSet((one,), (BenchmarkCase.build(one, DEFAULT, tolerances),))) == []
