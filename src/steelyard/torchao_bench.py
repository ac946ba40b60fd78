"""Two functions of TorchAO's micro-benchmarks for scripts that call them: a recipe's config by name, and a model with its input.

Both accept our own names, those of installed packages, and those registered by the script or modules it imports.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from steelyard import registry
from steelyard.errors import UsageError, unknown
from steelyard.model.dtypes import canonical
from steelyard.model.words import find_named

if TYPE_CHECKING:
    import torch

HOME, NORMED = "torchao/", "ln_linear"
NOTHING = (None, "", "baseline")
PASSED_OVER = ("high_precision_dtype",)
"""Arguments that the original passes to every recipe although few use them; they are accepted and ignored."""


def string_to_config(quantization: str | None, sparsity: str | None = None, *, device: str = "", **kwargs: Any) -> Any:
    """The config for torchao's `quantize_` that a recipe string such as `int4wo-128-hqq` means; None for the baseline.

    Keyword options are passed to the recipe in addition to the suffixes of its name. A sparsity gives a function that changes a model in
    place, since weights are pruned first. A recipe that cannot run here raises Unsupported with the reason.
    """
    from steelyard.dialects.torchao.layers import SPARSE, sparse_variant

    if sparsity:
        if not sparse_variant(sparsity):
            raise unknown("sparsity", sparsity, SPARSE.values())
        if quantization not in NOTHING:
            raise UsageError(f"{quantization} and {sparsity} are two steps", do="get a config for each, and apply one after the other")
        quantization = sparse_variant(sparsity)
    if quantization in NOTHING:
        return None
    return _config(str(quantization), device or _usual(), kwargs)


def _config(name: str, device: str, options: Mapping[str, Any]) -> Any:
    from steelyard.backends.torch import Torch

    known = {key: item for key, item in _definitions("variants", name).items() if item.rule}
    found = find_named(name, known)
    if found is None:
        raise unknown("recipe", name, known, listing="steelyard list recipes")
    variant, written = found
    builder = inspect.unwrap(variant.apply)
    taken = inspect.signature(builder).parameters
    for key in options:
        if key not in (*taken, *PASSED_OVER):
            raise unknown(f"option of recipe {name}", key, [option for option in taken if option != "be"])
    given = {"be": Torch(device)} if "be" in taken else {}
    return builder(**given, **variant.options() | written | {key: value for key, value in options.items() if key in taken})


def create_model_and_input_data(
    model_type: str,
    m: int,
    k: int,
    n: int,
    high_precision_dtype: torch.dtype | str = "bfloat16",
    device: str = "",
    activation: str = "relu",
) -> tuple[Any, Any]:
    """A model with seeded weights and its input, or a tuple of several: one of TorchAO's, of yours, or any workload by its full name.

    `ln_linear_silu` names the activation too. A workload gets only the sizes that it has axes for.
    """
    from steelyard.backends.torch import Torch

    kind, _, named = model_type.partition(f"{NORMED}_") if model_type.startswith(f"{NORMED}_") else (model_type, "", activation)
    name = kind or NORMED
    name = name if "/" in name else f"{HOME}{name}"
    known = _definitions("workloads", name)
    if name not in known or "torch" not in known[name].bodies:
        raise unknown("model", model_type, [key.removeprefix(HOME) for key, item in known.items() if "torch" in item.bodies])
    workload, body = known[name], known[name].bodies["torch"]
    asked = {"m": m, "k": k, "n": n, "dtype": canonical(str(high_precision_dtype).rpartition(".")[2]), "activation": named}
    axes = {axis: asked.get(axis, values[0]) for axis, values in workload.axes.items()}
    more = {"mode": "eval", "loaded": registry.built_ins(), "member": workload.member}
    more = {key: value for key, value in more.items() if key in inspect.signature(body).parameters}
    task = body(**axes, **more, be=Torch(device or _usual(), seed=42))
    return task.fn, task.args[0] if len(task.args) == 1 else task.args


def _definitions(kind: str, name: str) -> dict[str, Any]:
    """Definitions of one kind: built in, from packages with this name as an entry point, and from modules that are imported already."""
    for point in registry.entry_points(kind):
        if name == point or name.startswith(f"{point}-"):
            registry.load_entry(kind, point)
    found = getattr(registry.built_ins(), kind)
    others = {*sys.stdlib_module_names, *registry.frameworks(), "steelyard", "numpy"}
    for module in [module for key, module in sys.modules.items() if key.partition(".")[0] not in others]:
        if isinstance(module, ModuleType):
            for key, item in getattr(_defined(module), kind).items():
                found.setdefault(key, item)
    return found  # type: ignore[no-any-return]


def _defined(module: ModuleType) -> registry.Loaded:
    try:
        return registry.Loaded().add(module)
    except UsageError:  # a module that defines a name twice; running it reports that
        return registry.Loaded()


def _usual() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
