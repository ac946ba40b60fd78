"""One row of a config: a layer, a recipe and their baselines, as cases and pairs of ours."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from steelyard.dialects.torchao.shapes import LayerShape
from steelyard.model.case import IDENTITY, Case
from steelyard.model.experiment import ResultRow

if TYPE_CHECKING:
    from steelyard.codec.torchao import Form, Question

BASELINE = "baseline"
SPARSE = {"block": "block-sparse", "semi": "semi-sparse", "2:4": "semi-sparse"}
"""Our variants by a part of a sparsity recipe's name; the first match counts."""
TAKES_SEMI = ("marlin", "int8dq", "float8dq")
COMPILE_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
DTYPES = {"bf16": "torch.bfloat16", "fp32": "torch.float32", "fp16": "torch.float16", "fp64": "torch.float64"}
HOME, NORMED, OWN_SIZES = "torchao/", "ln_linear", "own sizes"
TRAINING, MODES = "training", ("eval", "train")


def sparse_variant(recipe: str) -> str:
    """Return our variant for a sparsity recipe; empty if the name is not one."""
    return next((ours for part, ours in SPARSE.items() if part in recipe), "")


def pairings(quantizations: Sequence[str], sparsities: Iterable[str]) -> list[tuple[str, str | None]]:
    """Return every recipe alone, then each sparsity with the recipes that it can be combined with, in the order of the file, none twice.

    Block sparsity is combined with the baseline only; semi-structured sparsity also with recipes that have kernels for it.
    """
    found: dict[tuple[str, str | None], None] = dict.fromkeys((name, None) for name in quantizations)
    for sparsity in sparsities:
        if sparse_variant(sparsity) == SPARSE["block"]:
            found[BASELINE, sparsity] = None
        else:
            fitting = [name for name in quantizations if name == BASELINE or any(part in name for part in TAKES_SEMI)]
            found |= dict.fromkeys((name, sparsity) for name in fitting)
    return list(found)


@dataclass(frozen=True)
class LayerRow:
    """One config of the original; `use_compile` is None if the row is timed both ways, and `mode` is the mode of torch.compile.

    `axes` are the axes of the workload with their defaults, once known; `place` is the row's key path in the file. `note` says what the
    file sets without effect, and `trouble` why the row cannot be measured, if that is known beforehand.
    """

    name: str
    quantization: str
    sparsity: str | None
    shape: LayerShape
    dtype: str = "bf16"
    use_compile: bool | None = None
    mode: str = "default"
    device: str = "cpu"
    model_type: str = "linear"
    output_dir: str = ""
    profiler: bool = False
    memory_profiler: bool = False
    trains: bool = False
    backend: str = "torch"
    axes: tuple[tuple[str, Any], ...] | None = None
    place: str = ""
    key: str = ""
    note: str = ""
    trouble: str = ""

    @property
    def is_baseline(self) -> bool:
        """Whether the layer is neither quantized nor made sparse."""
        return self.quantization.startswith(BASELINE) and self.sparsity is None

    @property
    def recipe(self) -> str:
        """The recipes as a chain of variants; `eager` if there are none."""
        steps = [] if self.quantization.startswith(BASELINE) else [self.quantization]
        return "+".join([*steps, *([sparse_variant(self.sparsity)] if self.sparsity else [])]) or IDENTITY

    @property
    def workload(self) -> str:
        """The workload: a model_type with a slash is a workload's full name, one without is below `torchao/`."""
        name = NORMED if self.model_type.startswith(NORMED) else self.model_type
        return name if "/" in name else f"{HOME}{name}"

    @property
    def asked(self) -> dict[str, str | int]:
        """The workload's parameters in the file, by axis."""
        words: dict[str, str | int] = {"m": self.shape.m, "k": self.shape.k, "n": self.shape.n, "dtype": self.dtype}
        activation = self.model_type.removeprefix(NORMED).lstrip("_") if self.workload == f"{HOME}{NORMED}" else ""
        return words | ({"activation": activation} if activation else {})

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of the case: the file's values for axes that the workload has, and defaults for its other axes."""
        own = self.asked if self.axes is None else dict(self.axes)
        return own | {axis: value for axis, value in self.asked.items() if axis in own}

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes among m, k and n that the workload takes."""
        shape, params = self.shape, self.params
        return {axis: size for axis, size in (("m", shape.m), ("k", shape.k), ("n", shape.n)) if axis in params}

    @cached_property
    def cases(self) -> dict[Form, Case]:
        """The cases measured, by their part in the row."""
        compiling = f"compile[fullgraph=true{f',mode={self.mode}' if self.mode != 'default' else ''}]"
        base = Case(self.workload, tuple(self.params.items()), self.backend, IDENTITY, MODES[self.trains], device=self.device)
        found: dict[Form, Case] = {
            "baseline_eager": base, "quantized_eager": base.with_variant(self.recipe),
            "baseline_compiled": base.with_variant(compiling), "quantized_compiled": base.with_variant(f"{self.recipe}+{compiling}"),
        }  # fmt: skip
        left_out = ("eager",) if self.use_compile else ("compiled",) if self.use_compile is False else ()
        kept = {form: case for form, case in found.items() if not form.endswith(left_out)} if left_out else found
        return {form: case for form, case in kept.items() if not (self.is_baseline and form.startswith("quantized"))}

    @property
    def pairs(self) -> dict[Question, tuple[Case, Case]]:
        """The pairs, each as head and base, by what the pair compares."""
        both: tuple[Form, Form] = ("quantized_compiled", "quantized_eager")
        asked: dict[Question, tuple[Form, Form]] = {
            "eager": ("quantized_eager", "baseline_eager"), "compile": ("quantized_compiled", "baseline_compiled"),
            "eager_vs_compile": ("baseline_compiled", "baseline_eager") if self.is_baseline else both,
        }  # fmt: skip
        cases = self.cases
        return {question: (cases[head], cases[base]) for question, (head, base) in asked.items() if head in cases and base in cases}

    @property
    def subject(self) -> Case:
        """The case to profile: the recipe, compiled if the row is."""
        return list(self.cases.values())[-1]

    @property
    def result_row(self) -> ResultRow:
        """The cases and pairs of the row, for the engine."""
        return ResultRow(self.key, tuple(self.cases.values()), tuple(self.pairs.values()))

    @property
    def file_stem(self) -> str:
        """The beginning of the profiles' file names, without characters that could lead to another folder."""
        sizes = "".join(f"_{size}" for size in self.sizes.values())
        stem = f"{self.name}{sizes}_quant_{self.quantization}_sparsity_{self.sparsity}"
        return re.sub(r"[^\w.:+-]", "_", stem)


def default_name(row: LayerRow) -> str:
    """The original's name for a row that has none."""
    sizes = "".join(f"_{axis}{size}" for axis, size in row.sizes.items())
    return f"benchmark_{row.quantization}_{row.model_type}{sizes}{'_compile' if row.use_compile else ''}"


def with_keys(rows: Iterable[LayerRow]) -> list[LayerRow]:
    """Return the rows with unique keys; in the original, several rows may have one name, such as the shapes of one family."""
    seen: dict[str, int] = {}
    found = []
    for row in rows:
        recipes = "+".join(filter(None, [row.quantization, row.sparsity]))
        key = f"{row.name} {recipes} {shape_text(row.shape.name, row.sizes.values())}"
        seen[key] = seen.get(key, 0) + 1
        found.append(replace(row, key=key if seen[key] == 1 else f"{key} #{seen[key]}"))
    return found


def shape_text(name: str, sizes: Iterable[int]) -> str:
    """Return a shape as tables show it."""
    return f"{name} ({listed})" if (listed := ", ".join(map(str, sizes))) else OWN_SIZES
