"""A config of TorchAO's micro-benchmarks, read whole: every mistake is reported with its line and key path."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from steelyard.codec.parsing import parse
from steelyard.codec.reading import CheckedFile, choice, expect, shown, text_value
from steelyard.dialects.torchao import layers, shapes
from steelyard.dialects.torchao.layers import BASELINE, TRAINING, LayerRow
from steelyard.dialects.torchao.shapes import LayerShape
from steelyard.errors import UsageError, unknown
from steelyard.files import read_text
from steelyard.model.dtypes import canonical
from steelyard.model.experiment import device_kind

T = TypeVar("T")
QUANTIZATION, SPARSITY, MODELS = "quantization_config_recipe_names", "sparsity_config_recipe_names", "model_params"
KEYS = ("benchmark_mode", QUANTIZATION, SPARSITY, "output_dir", MODELS)
MODEL_KEYS = (
    "name", "matrix_shapes", "high_precision_dtype", "use_torch_compile", "torch_compile_mode", "device", "model_type",
    "enable_profiler", "enable_memory_profiler",
)  # fmt: skip
MOST_CASES = 100_000
OUTPUT_DIR = "benchmarks/microbenchmarks/results"
BENCHMARK_MODES = ("inference", TRAINING)
DEVICES = ("cuda", "xpu", "mps", "cpu")


class TorchaoPage(CheckedFile):
    """The file being read; if `lenient`, a mistake that the original accepts is only a warning."""

    def __init__(self, where: str, text: str, *, lenient: bool) -> None:
        super().__init__(where, text)
        self.lenient = lenient
        self.warnings: list[str] = []

    def loosely(self, check: Callable[..., T], *words: Any) -> T:
        """Return the result of a check that the original does not make; if `lenient`, its mistakes become warnings."""
        before, found = len(self.mistakes), check(*words)
        if self.lenient:
            told = [("  ".join([where, what]), do) for where, what, do in self.mistakes[before:]]
            self.warnings += [f"{what}; {do}" if do else what for what, do in told]
            del self.mistakes[before:]
        return found


def recognise(data: Any) -> bool:
    """Whether data is a TorchAO config: our own files never have these keys."""
    return isinstance(data, dict) and bool({QUANTIZATION, SPARSITY, MODELS} & set(data))


def read_rows(
    path: Path, *, lenient: bool = False, form: str = "", device: str = "", output_dir: str = ""
) -> tuple[list[LayerRow], list[str]]:
    """Return the rows of a config in the order in which they run, and warnings.

    The documented version, `seed`, times a row without torch.compile unless the file asks for it; the last version times it both ways.
    An empty `form` is decided by the file: only the last version's files have torch_compile_mode without use_torch_compile.
    """
    text = read_text(path)
    data = parse(text, str(path), "yaml", aliases=True)
    page = TorchaoPage(str(path), text, lenient=lenient)
    if not isinstance(data, dict):
        raise UsageError(f"expected a table with {MODELS}, not {shown(data)}", where=str(path))
    page.loosely(page.known, data, "", KEYS)
    mode = page.read(data, "", "benchmark_mode", choice(BENCHMARK_MODES), BENCHMARK_MODES[0])
    folder = output_dir or page.read(data, "", "output_dir", text_value, OUTPUT_DIR)
    recipes = _recipes(page, data)
    rows: list[LayerRow] = []
    if not data.get(MODELS):
        page.wrong(MODELS, "missing or empty: it lists the layers to run", "see docs/howto/coming-from-torchao.md")
    for where, table in page.tables(data, MODELS):
        rows += _model_rows(page, table, where, recipes, form=form, device=device)
        _check_size(len(rows), page)
    if not recipes and not data.get(QUANTIZATION):
        page.wrong(QUANTIZATION, "missing or empty, so there is nothing to run", f"list recipes, such as int8wo, or {BASELINE}")
    page.finish()
    return [replace(row, output_dir=f"{folder}/{mode}", trains=mode == TRAINING) for row in rows], list(dict.fromkeys(page.warnings))


def _recipes(page: TorchaoPage, data: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    quantizations, sparsities = [], []
    for place, name in enumerate(_names(page, data, QUANTIZATION)):
        spot = f"{QUANTIZATION}[{place}]"
        if not isinstance(name, str) or not name.strip():
            page.loosely(page.wrong, spot, f"expected the name of a recipe, not {shown(name)}", f"write {BASELINE} for none")
            name = BASELINE
        if name.startswith(BASELINE) and name != BASELINE:
            page.loosely(page.wrong, spot, f"{shown(name)} is treated as {BASELINE}", f"write {BASELINE}")
        quantizations.append(name)
    for place, name in enumerate(_names(page, data, SPARSITY)):
        spot = f"{SPARSITY}[{place}]"
        if name == "None":
            page.loosely(
                page.wrong, spot, "the word None is not a recipe", "write null, or leave it out: every recipe also runs without sparsity"
            )
        elif name is not None and not (isinstance(name, str) and layers.sparse_variant(name)):
            hint = 'YAML reads 2:4 without quotes as a number: write "2:4"' if name == 124 else ""
            page.wrong(spot, f"{shown(name)} is not a sparsity recipe", hint or f"write null, or a name with {', '.join(layers.SPARSE)}")
        elif name is not None:
            sparsities.append(name)
            if not any(found[1] == name for found in layers.pairings(quantizations, [name])):
                page.loosely(
                    page.wrong,
                    spot,
                    f"{name} fits none of these recipes",
                    f"it can be combined with {', '.join([BASELINE, *layers.TAKES_SEMI])}",
                )
    return layers.pairings(quantizations, sparsities)


def _names(page: TorchaoPage, data: Mapping[str, Any], key: str) -> Sequence[Any]:
    if not isinstance(value := data.get(key) or [], list):
        page.wrong(key, f"expected a list of names, not {shown(value)}")
    return value if isinstance(value, list) else []


def _model_rows(
    page: TorchaoPage, table: Mapping[str, Any], where: str, recipes: Sequence[tuple[str, str | None]], *, form: str, device: str
) -> list[LayerRow]:
    """Return the rows of one entry of `model_params`: each recipe with every shape."""
    page.loosely(page.known, table, where, MODEL_KEYS)
    compiles = page.loosely(page.read, table, where, "use_torch_compile", _switch, bool(table.get("use_torch_compile")))
    switchless = "torch_compile_mode" in table and "use_torch_compile" not in table
    if switchless and form == "seed":
        page.warnings.append(f"{page.where}  {where}: without use_torch_compile nothing is compiled; --form last times both")
    template = LayerRow(
        "", BASELINE, None, LayerShape("", 1, 1, 1),
        dtype=page.read(table, where, "high_precision_dtype", _dtype, "bf16"),
        use_compile=None if form == "last" or (not form and switchless) else compiles,
        mode=page.loosely(page.read, table, where, "torch_compile_mode", choice(layers.COMPILE_MODES), "default"),
        device=device or page.loosely(page.read, table, where, "device", _device, "cpu"), place=where,
        model_type=page.read(table, where, "model_type", text_value, "linear"),
        profiler=page.loosely(page.read, table, where, "enable_profiler", _switch, bool(table.get("enable_profiler"))),
        memory_profiler=page.loosely(page.read, table, where, "enable_memory_profiler", _switch, bool(table.get("enable_memory_profiler"))),
    )  # fmt: skip
    if "device" not in table and not device and page.lenient:
        page.warnings.append(f"{page.where}  {where}: no device is named, so it runs on the CPU")
    name, found = page.read(table, where, "name", text_value, ""), list[LayerRow]()
    all_shapes = _shapes(page, table, where)
    _check_size(len(recipes) * len(all_shapes), page)
    for quantization, sparsity in recipes:
        for shape in all_shapes:
            row = replace(template, quantization=quantization, sparsity=sparsity, shape=shape)
            found.append(replace(row, name=name or layers.default_name(row)))
    return found


def _shapes(page: TorchaoPage, table: Mapping[str, Any], where: str) -> list[LayerShape]:
    if not table.get("matrix_shapes"):
        page.wrong(f"{where}.matrix_shapes", "missing or empty", f"list families of shapes: {', '.join(shapes.FAMILIES)}")
    listed, found = table.get("matrix_shapes") or [], list[LayerShape]()
    for place, item in enumerate(listed if isinstance(listed, list) else [listed]):
        spot = f"{where}.matrix_shapes[{place}]"
        given = page.table(item, spot)
        page.loosely(page.known, given, spot, shapes.keys_of(given.get("name")))
        try:
            found += shapes.expand(given) if given else []
        except UsageError as error:
            page.wrong(spot, error.what, error.do)
    return found


def _check_size(count: int, page: TorchaoPage) -> None:
    if count > MOST_CASES:
        raise UsageError(f"more than {MOST_CASES} rows", do="give fewer shapes or recipes", where=page.where)


def _switch(value: Any) -> bool:
    expect(isinstance(value, bool), "true or false", value)
    return bool(value)


def _device(value: Any) -> str:
    return device_kind(value if isinstance(value, str) else shown(value), DEVICES)


def _dtype(value: Any) -> str:
    """Return our name of a number format; of a dotted name the last part counts, as in the original."""
    found = canonical(text_value(value).rpartition(".")[2])
    if found not in layers.DTYPES:
        raise unknown("high precision dtype", str(value), layers.DTYPES.values())
    return found
