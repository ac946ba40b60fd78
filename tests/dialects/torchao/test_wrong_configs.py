"""Configs with every kind of mistake, by both commands: an error with file and key before anything is timed, and never a traceback.

`as torchao` goes on where the original would; what it then says is a warning that names the same place.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from steelyard.cli.main import main
from steelyard.errors import INTERRUPTED, PASS, USAGE

SHAPES = "matrix_shapes: [{name: custom, shapes: [[8, 8, 8]]}]"
HEAD = "quantization_config_recipe_names: [int8wo]\n"


CUBE = "matrix_shapes: [{name: sweep, min_power: 0, max_power: 30}]"


def model(text: str, recipes: str = "[int8wo]") -> str:
    """A config of one layer with these keys."""
    return f"quantization_config_recipe_names: {recipes}\nmodel_params:\n  - {{{text}}}\n"


REFUSED: dict[str, tuple[str | bytes, str]] = {
    "nothing at all": ("", "x.yml"),
    "only a comment": ("# model_params\n", "x.yml"),
    "a list at the top": ("- model_params: 1\n", "x.yml"),
    "a word at the top": ("model_params\n", "x.yml"),
    "no YAML": (HEAD + "model_params: [\n", "x.yml:3"),
    "a tab for an indent": (HEAD + "model_params:\n\t- name: x\n", "x.yml:3"),
    "not UTF-8": (b"quantization_config_recipe_names: [\xff\xfe]\nmodel_params: []\n", "x.yml"),
    "a null byte": (HEAD + "model_params: [\0]\n", "x.yml"),
    "a key twice": (HEAD + HEAD + "model_params: []\n", "x.yml:2  quantization_config_recipe_names: given twice"),
    "a key twice inside": (model(f"{SHAPES}, device: cpu, device: cuda"), "x.yml:3  device: given twice"),
    "a tag of Python": (HEAD + "model_params: !!python/object:os.system []\n", "x.yml:2"),
    "an alias of nothing": (HEAD + "model_params: *none\n", "x.yml:2"),
    "a merge of a word": (HEAD + "model_params:\n  - {<<: 3}\n", "x.yml:3"),
    "aliases without end": ("a: &a [1]\n" + "".join(f"b{i}: &b{i} [{', '.join(['*' + ('a' if not i else f'b{i - 1}')] * 9)}]\n"
                            for i in range(9)) + "model_params: []\n", "x.yml"),
    "itself inside": (HEAD + "model_params: &a [*a]\n", "x.yml"),
    "no layers": (HEAD, "model_params: missing or empty"),
    "layers that are a number": (HEAD + "model_params: 3\n", "model_params: expected a table, not 3"),
    "a layer that is a word": (HEAD + "model_params: [linear]\n", 'model_params[0]: expected a table, not "linear"'),
    "no recipes": (f"model_params: [{{{SHAPES}}}]\n", "quantization_config_recipe_names: missing or empty"),
    "recipes that are a word": (model(SHAPES, "int8wo"), "x.yml:1  quantization_config_recipe_names: expected a list of names"),
    "recipes that are a table": (model(SHAPES, "{int8wo: 1}"), "x.yml:1  quantization_config_recipe_names: expected a list of names"),
    "sparsities that are a number": (model(SHAPES) + "sparsity_config_recipe_names: 24\n", "x.yml:4  sparsity_config_recipe_names"),
    "a sparsity that is a list": (model(SHAPES) + "sparsity_config_recipe_names: [[semi]]\n", "sparsity_config_recipe_names[0]"),
    "no shapes": (model("device: cpu"), "model_params[0].matrix_shapes: missing or empty"),
    "shapes that are a word": (model("matrix_shapes: small_sweep"), "model_params[0].matrix_shapes[0]: expected a table"),
    "a family that is a number": (model("matrix_shapes: [{name: 3}]"), "model_params[0].matrix_shapes[0]: name is missing"),
    "a family that is a list": (model("matrix_shapes: [{name: [custom]}]"), "model_params[0].matrix_shapes[0]: name is missing"),
    "a shape of two": (model("matrix_shapes: [{name: custom, shapes: [[8, 8]]}]"), "model_params[0].matrix_shapes[0]: shapes[0]"),
    "a shape below zero": (model("matrix_shapes: [{name: custom, shapes: [[8, -8, 8]]}]"), "above 0, [m, k, n], not [8, -8, 8]"),
    "a shape of halves": (model("matrix_shapes: [{name: custom, shapes: [[8, 0.5, 8]]}]"), "model_params[0].matrix_shapes[0]: shapes[0]"),
    "a shape of words": (model("matrix_shapes: [{name: custom, shapes: [[m, k, n]]}]"), "model_params[0].matrix_shapes[0]: shapes[0]"),
    "a huge shape": (model(f"matrix_shapes: [{{name: custom, shapes: [[{10**30}, 8, 8]]}}]"), "matrix_shapes[0]: shapes[0]"),
    "a number without end": (model(f"matrix_shapes: [{{name: custom, shapes: [[{'9' * 400}, 8, 8]]}}]"), "x.yml:3"),
    "a power without end": (model("matrix_shapes: [{name: pow2, max_power: 1000000}]"), "max_power must be a whole number from 0 to 30"),
    "a power that is NaN": (model("matrix_shapes: [{name: pow2, max_power: .nan}]"), "max_power must be a whole number from 0 to 30"),
    "a power below zero": (model("matrix_shapes: [{name: sweep, min_power: -1}]"), "min_power must be a whole number from 0 to 30"),
    "powers upside down": (model("matrix_shapes: [{name: sweep, min_power: 9, max_power: 8}]"), "min_power 9 is above max_power 8"),
    "a product without end": (model(CUBE, "[int8wo, int8dq, nf4, fp6]"), "more than 100000 rows"),
    "a dtype of nonsense": (model(f"{SHAPES}, high_precision_dtype: torch.bfloat61"), "model_params[0].high_precision_dtype"),
    "a dtype that is a number": (model(f"{SHAPES}, high_precision_dtype: 16"), "model_params[0].high_precision_dtype: expected text"),
    "a dtype that is empty": (model(f"{SHAPES}, high_precision_dtype: ''"), "model_params[0].high_precision_dtype: expected text"),
    "a model that is a list": (model(f"{SHAPES}, model_type: [linear]"), "model_params[0].model_type: expected text"),
    "a name that is a table": (model(f"{SHAPES}, name: {{a: 1}}"), "model_params[0].name: expected text"),
    "a name that steers terminals": (model(f'{SHAPES}, name: "a\\e[31m"'), "model_params[0].name: expected text without control"),
    "a folder that is a number": (model(SHAPES) + "output_dir: 3\n", "x.yml:4  output_dir: expected text"),
    "a mode of nonsense": (model(SHAPES) + "benchmark_mode: inferno\n", "x.yml:4  benchmark_mode"),
    "a mode that is a list": (model(SHAPES) + "benchmark_mode: [inference]\n", "x.yml:4  benchmark_mode"),
    "too deep": (HEAD + "model_params: " + "[" * 60 + "]" * 60 + "\n", "x.yml"),
}  # fmt: skip
"""What nobody can run, and what both commands say of it."""
PASSED_OVER: dict[str, tuple[str, str]] = {
    "an unknown key": (model(SHAPES) + "extra: 1\n", "extra: unknown key"),
    "an unknown key of a layer": (model(f"{SHAPES}, devcie: cuda"), "model_params[0].devcie: unknown key"),
    "an unknown key of a shape": (model("matrix_shapes: [{name: custom, shapes: [[8, 8, 8]], m: 3}]"), "matrix_shapes[0].m: unknown key"),
    "a key that is a number": (model(SHAPES) + "3: 1\n", "3: unknown key"),
    "a key that is null": (model(SHAPES) + "null: 1\n", "None: unknown key"),
    "a switch that is a word": (model(f"{SHAPES}, use_torch_compile: 'no'"), "model_params[0].use_torch_compile: expected true or false"),
    "a compile mode of nonsense": (model(f"{SHAPES}, torch_compile_mode: fastest"), "model_params[0].torch_compile_mode"),
    "a compile mode that is a list": (model(f"{SHAPES}, torch_compile_mode: [default]"), "model_params[0].torch_compile_mode"),
    "a device of nonsense": (model(f"{SHAPES}, device: toaster"), "model_params[0].device: no device named 'toaster'"),
    "a device that is a list": (model(f"{SHAPES}, device: [cuda]"), "model_params[0].device: no device named"),
    "a profiler that is a number": (model(f"{SHAPES}, enable_profiler: 2"), "model_params[0].enable_profiler: expected true or false"),
    "a recipe that is null": (model(SHAPES, "[null]"), "quantization_config_recipe_names[0]: expected the name of a recipe"),
    "a recipe that is a number": (model(SHAPES, "[8]"), "quantization_config_recipe_names[0]: expected the name of a recipe, not 8"),
    "a recipe that nobody has": (model(SHAPES, "[int8w]"), "quantization_config_recipe_names: no recipe named 'int8w'"),
    "a recipe of signs": (model(SHAPES, "['int8wo + ]']"), "quantization_config_recipe_names: no recipe named 'int8wo + ]'"),
    "a recipe with wrong words": (model(SHAPES, "[int4wo-33]"), "quantization_config_recipe_names: no group"),
    "a variant that is no recipe": (model(SHAPES, "[compile]"), "quantization_config_recipe_names: no recipe named 'compile'"),
    "a model that nobody has": (model(f"{SHAPES}, model_type: lniear"), "model_params[0].model_type: no workload named 'torchao/lniear'"),
    "a model of signs": (model(f"{SHAPES}, model_type: 'a b[]'"), "model_params[0].model_type: not a"),
    "an activation that nobody has": (model(f"{SHAPES}, model_type: ln_linear_swoosh"), "model_params[0].model_type: no activation"),
    "sparsity by the word None": (model(SHAPES) + "sparsity_config_recipe_names: [None, 'None']\n", "the word None is not a recipe"),
}
"""What the original runs, or drops with a word: `run` refuses it."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own, in which whatever is measured ends at once with another exit code."""
    monkeypatch.chdir(tmp_path)

    def measured(*args: object, **words: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("steelyard.engine.conduct.execute", measured)
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(list(words)) == USAGE, words
    said = capsys.readouterr()
    assert "Traceback" not in said.err and said.out == "" and said.err.startswith("error: ")
    return said.err


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_run_is_refused_by_both(here: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    text, where = REFUSED[name]
    (here / "x.yml").write_bytes(text if isinstance(text, bytes) else text.encode())
    for words in (("as", "torchao", "--config", "x.yml"), ("run", "x.yml")):
        said = told(capsys, *words)
        assert "x.yml" in said and where in said, words
    assert sorted(path.name for path in here.iterdir() if path.name != ".steelyard") == ["x.yml"], "nothing is written"


@pytest.mark.parametrize("name", PASSED_OVER)
def test_what_the_original_passes_over_is_refused_by_run(here: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    text, where = PASSED_OVER[name]
    (here / "x.yml").write_text(text)
    said = told(capsys, "run", "x.yml")
    assert "x.yml" in said and where in said
    assert main(["as", "torchao", "--config", "x.yml"]) in (PASS, INTERRUPTED), "it goes on"
    said = capsys.readouterr().err
    assert any(line.startswith("warning: x.yml") and where in line for line in said.splitlines()), said


def test_aliases_and_merge_keys_are_read_as_yaml_has_them(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "x.yml").write_text(
        f"quantization_config_recipe_names: &names [baseline]\nmodel_params:\n  - &first {{{SHAPES}, device: cpu, name: a}}\n"
        "  - {<<: *first, name: b, high_precision_dtype: torch.float32}\n"
    )
    assert main(["check", "x.yml", "--no-shapes"]) == 0
    assert "2 cases would run" in capsys.readouterr().out
