"""One row of a config: a layer, a recipe and what both are held against, as cases and pairs of ours."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from steelyard.dialects.torchao.shapes import LayerShape
from steelyard.model.case import IDENTITY, Case
from steelyard.model.experiment import ResultRow

if TYPE_CHECKING:
    from steelyard.codec.torchao import Form, Question

BASELINE = "baseline"
SPARSE = {"block": "block-sparse", "semi": "semi-sparse", "2:4": "semi-sparse"}
"""Our variants by what the name of a sparsity recipe holds; the first that fits counts."""
TAKES_SEMI = ("marlin", "int8dq", "float8dq")
COMPILE_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
DTYPES = {"bf16": "torch.bfloat16", "fp32": "torch.float32", "fp16": "torch.float16", "fp64": "torch.float64"}
ACTIVATIONS = ("relu", "sigmoid", "leakyrelu", "relu6", "gelu", "silu", "hardswish")
NORMED = "ln_linear"
NO_TRAINING = "recipes for training are not here yet; benchmark_mode: inference runs"


def sparse_variant(recipe: str) -> str:
    """Our variant for a sparsity recipe; empty where it is none."""
    return next((ours for part, ours in SPARSE.items() if part in recipe), "")


def pairings(quantizations: Sequence[str], sparsities: Iterable[str]) -> list[tuple[str, str | None]]:
    """Every recipe by itself, then those that each sparsity goes with, in the order of the file and none twice.

    Block sparsity goes with the baseline alone, and semi-structured with the baseline and with what has kernels for it.
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
    """One config of the original; `use_compile` is None where both are timed, and `mode` is how torch.compile is called.

    `trouble` is why it cannot be measured, where that is known before.
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
    backend: str = "torch"
    key: str = ""
    trouble: str = ""

    @property
    def is_baseline(self) -> bool:
        """Whether nothing is done to the layer."""
        return self.quantization.startswith(BASELINE) and self.sparsity is None

    @property
    def recipe(self) -> str:
        """The recipes as a chain of variants; `eager` where there are none."""
        steps = [] if self.quantization.startswith(BASELINE) else [self.quantization]
        return "+".join([*steps, *([sparse_variant(self.sparsity)] if self.sparsity else [])]) or IDENTITY

    @cached_property
    def cases(self) -> dict[Form, Case]:
        """What is measured, by its part in the row."""
        compiling = f"compile[fullgraph=true{f',mode={self.mode}' if self.mode != 'default' else ''}]"
        params: dict[str, str | int] = {"m": self.shape.m, "k": self.shape.k, "n": self.shape.n, "dtype": self.dtype}
        workload = self.model_type
        if workload.startswith(NORMED):
            workload, params["activation"] = NORMED, workload.removeprefix(NORMED).lstrip("_") or ACTIVATIONS[0]
        base = Case(f"torchao/{workload}", tuple(params.items()), self.backend, device=self.device)
        found: dict[Form, Case] = {
            "baseline_eager": base, "quantized_eager": base.with_variant(self.recipe),
            "baseline_compiled": base.with_variant(compiling), "quantized_compiled": base.with_variant(f"{self.recipe}+{compiling}"),
        }  # fmt: skip
        left_out = ("eager",) if self.use_compile else ("compiled",) if self.use_compile is False else ()
        kept = {form: case for form, case in found.items() if not form.endswith(left_out)} if left_out else found
        return {form: case for form, case in kept.items() if not (self.is_baseline and form.startswith("quantized"))}

    @property
    def pairs(self) -> dict[Question, tuple[Case, Case]]:
        """What is weighed: head and base by the question that each pair answers."""
        both: tuple[Form, Form] = ("quantized_compiled", "quantized_eager")
        asked: dict[Question, tuple[Form, Form]] = {
            "eager": ("quantized_eager", "baseline_eager"), "compile": ("quantized_compiled", "baseline_compiled"),
            "eager_vs_compile": ("baseline_compiled", "baseline_eager") if self.is_baseline else both,
        }  # fmt: skip
        cases = self.cases
        return {question: (cases[head], cases[base]) for question, (head, base) in asked.items() if head in cases and base in cases}

    @property
    def subject(self) -> Case:
        """The case that profiles are made of: the recipe, compiled where the row is."""
        return list(self.cases.values())[-1]

    @property
    def result_row(self) -> ResultRow:
        """The same for the engine."""
        return ResultRow(self.key, tuple(self.cases.values()), tuple(self.pairs.values()))

    @property
    def file_stem(self) -> str:
        """What the files of its profiles begin with; a name cannot lead to another folder."""
        shape = self.shape
        stem = f"{self.name}_{shape.m}_{shape.k}_{shape.n}_quant_{self.quantization}_sparsity_{self.sparsity}"
        return re.sub(r"[^\w.:+-]", "_", stem)


def default_name(row: LayerRow) -> str:
    """The original's name for a row that has none."""
    m, k, n = row.shape.m, row.shape.k, row.shape.n
    return f"benchmark_{row.quantization}_{row.model_type}_m{m}_k{k}_n{n}{'_compile' if row.use_compile else ''}"


def with_keys(rows: Iterable[LayerRow]) -> list[LayerRow]:
    """Rows with a key each; the original lets several have one name, shapes of one family among them."""
    seen: dict[str, int] = {}
    found = []
    for row in rows:
        shape = row.shape
        recipes = f"{row.quantization}+{row.sparsity}" if row.sparsity else row.quantization
        key = f"{row.name} {recipes} {shape.name} ({shape.m}, {shape.k}, {shape.n})"
        seen[key] = seen.get(key, 0) + 1
        found.append(replace(row, key=key if seen[key] == 1 else f"{key} #{seen[key]}"))
    return found
