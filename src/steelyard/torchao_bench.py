"""Two functions of TorchAO's micro-benchmarks for scripts that call them: a recipe's config by name, and a model with its input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steelyard.errors import UsageError, unknown
from steelyard.model.words import find_named

if TYPE_CHECKING:
    import torch

SPARSITIES = {"semi-sparse": ("semi", "2:4"), "block-sparse": ("block",)}


def string_to_config(quantization: str | None, sparsity: str | None = None, *, device: str = "", **options: Any) -> Any:
    """The config of a recipe string, such as `int4wo-128-hqq`, to be given to torchao's `quantize_`; None for the baseline.

    A sparsity gives a function that changes a model in place, since weights are pruned first. What cannot be had here raises
    Unsupported with the reason.
    """
    if sparsity:
        name = next((name for name, parts in SPARSITIES.items() if any(part in sparsity for part in parts)), "")
        if not name:
            raise unknown("sparsity", sparsity, SPARSITIES)
        if quantization not in (None, "", "baseline"):
            raise UsageError(f"{quantization} and {sparsity} are two steps", do="ask for each config, and apply one after the other")
        quantization = name
    if quantization in (None, "", "baseline"):
        return None
    return _config(str(quantization), device or _usual(), options)


def _config(name: str, device: str, options: dict[str, Any]) -> Any:
    from steelyard import registry
    from steelyard.backends.torch import Torch

    known = {key: item for key, item in registry.built_ins().variants.items() if item.rule}
    found = find_named(name, known)
    if found is None:
        raise unknown("recipe", name, known, listing="steelyard list recipes")
    variant, written = found
    builder: Any = variant.apply.__wrapped__  # type: ignore[attr-defined]
    given = {"be": Torch(device)} if "be" in builder.__code__.co_varnames else {}
    return builder(**given, **written, **options)


def create_model_and_input_data(
    model_type: str,
    m: int,
    k: int,
    n: int,
    high_precision_dtype: torch.dtype | str = "bfloat16",
    device: str = "",
    activation: str = "relu",
) -> tuple[Any, Any]:
    """A model of TorchAO's micro-benchmarks with seeded weights, and its input; `ln_linear_silu` names the activation too."""
    from steelyard import registry
    from steelyard.backends.torch import Torch

    name, _, act = model_type.partition("ln_linear_") if model_type.startswith("ln_linear_") else (model_type, "", activation)
    name = name or "ln_linear"
    workloads = {key.removeprefix("torchao/"): item for key, item in registry.built_ins().workloads.items() if key.startswith("torchao/")}
    if name not in workloads:
        raise unknown("model", model_type, workloads)
    axes = {"m": m, "k": k, "n": n, "dtype": str(high_precision_dtype).rpartition(".")[2]}
    task = workloads[name].bodies["torch"](
        **axes, **({"activation": act} if name == "ln_linear" else {}), be=Torch(device or _usual(), seed=42)
    )
    return task.fn, task.args[0]


def _usual() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
