"""Other ways to generate with the same model: compiled, with other kernels or attention, by continuous batching, or with drafts."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from steelyard import clocks
from steelyard.backends._torch_graphs import Mode, graphs_counted
from steelyard.errors import NotApplicable, NotApplied, Unsupported, UsageError, told
from steelyard.measuring.requests import Stamps
from steelyard.model.task import Task
from steelyard.workloads.generation._answer import GeneratedTokens
from steelyard.workloads.generation._language import refusing
from steelyard.workloads.generation.generate import generate
from steelyard.workloads.models.subject import installed

KERNELS = Path(__file__).parent / "kernels"
REPLAYING = ("reduce-overhead", "max-autotune")
"""Modes that record and replay CUDA graphs."""
BLOCK_PLACES = 16
"""Tokens added for each row to the cache of continuous batching, so that a partly filled block fits."""


def changed(task: Task, **how: Any) -> Task:
    """Return the task with other settings for requests to the same model."""
    module: Any = copy.copy(task.fn)
    module.how = replace(module.how, **how)
    return replace(task, fn=module)


def watching(task: Task, look: Callable[[], Mapping[str, Any]]) -> Task:
    """Return the task with one more inspection after its first call and after timing."""
    earlier = task.inspect
    return replace(task, inspect=lambda: {**(earlier() if earlier else {}), **look()})


@generate.variant("compile", fresh=True)
def compile(task: Task, be: Any, mode: Mode | None = None, fullgraph: bool = False) -> Task:
    """Decoding compiled with a static cache; on CUDA with CUDA graphs unless another mode is given."""
    mode = mode or ("reduce-overhead" if be.device == "cuda" else "default")
    made = changed(task, cache="static", compiled={"mode": mode, "fullgraph": fullgraph}, every_device=True)
    if _how(made).new < 2:
        raise NotApplicable("only decoding is compiled, and a single new token needs no decoding step")
    counted = graphs_counted()

    def look() -> dict[str, Any]:
        found = {**counted(), **be.captured_graphs()}
        if mode in REPLAYING and found.get("cuda_graphs", 1) == 0:
            raise NotApplied(f"mode {mode} was asked for, and no CUDA graph was recorded", do="see TORCH_LOGS=cudagraphs for the reason")
        return found

    made = watching(made, look)
    return replace(made, effective={**made.effective, "mode": mode, "cache": "static", "fullgraph": fullgraph})


def _attention(name: str) -> None:
    @generate.variant(f"attention-{name.removesuffix('_attention')}")
    def other(task: Task) -> Task:
        """The same model with another implementation of attention."""
        made = changed(task, attention=name)
        with refusing(name):
            made.fn.model.set_attn_implementation(name)  # type: ignore[union-attr]
        return made


for _name in ("eager", "sdpa", "flex_attention"):
    _attention(_name)


@generate.variant("kernelize")
def kernelize(task: Task, be: Any, folder: str = "") -> Task:
    """Layers replaced by those of a kernel in a local folder, in the format of the package `kernels`; ours has RMSNorm in one operation.

    The kernel of a folder is Python code, which runs because you name the folder.
    """
    place = Path(folder).expanduser() if folder else KERNELS / "rms_norm"
    if not (place / "build").is_dir():
        raise UsageError(f"{place} holds no kernel", do="name a folder that has build/torch-universal/ in it")
    kernels, made = installed("kernels"), changed(task)
    model = made.fn.model  # type: ignore[union-attr]
    before = {name: _code(module) for name, module in model.named_modules()}
    layers = sorted(_layers(kernels, place))
    mapping = {name: {be.device: kernels.LocalLayerRepository(place, layer_name=name)} for name in layers}
    with _quiet(), kernels.use_kernel_mapping(mapping, inherit_mapping=False):
        kernels.kernelize(model, mode=kernels.Mode.INFERENCE, device=be.device, use_fallback=True)
    swapped = sum(_code(module) is not before[name] for name, module in model.named_modules())
    if not swapped:
        raise NotApplied(f"no layer of the model is one of {', '.join(layers)}, so nothing was replaced")
    return replace(made, effective={**made.effective, "kernelized": swapped, "kernels": layers})


def _layers(kernels: Any, place: Path) -> list[str]:
    """Return the names of a kernel's layers."""
    try:
        loaded = kernels.get_local_kernel(place).layers
    except Exception as error:
        raise Unsupported(f"the kernel in {place.name} cannot be loaded here: {told(error, 300)}") from error
    found = [name for name, item in vars(loaded).items() if isinstance(item, type) and item.__module__ == loaded.__name__]
    if not found:
        raise UsageError(f"the kernel in {place.name} has no layers")
    return found


def _code(module: Any) -> Any:
    return getattr(module.forward, "__func__", module.forward)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the warning for each layer without a kernel: the record says how many layers have one."""
    found = logging.getLogger("kernels.layer.layer")
    before = found.level
    found.setLevel(logging.ERROR)
    try:
        yield
    finally:
        found.setLevel(before)


@generate.variant("continuous")
def continuous(task: Task, be: Any) -> Task:
    """Continuous batching: every row is a separate request over a paged cache, with its own times."""
    import torch

    found = getattr(installed("transformers"), "ContinuousBatchingConfig", None)
    model = task.fn.model  # type: ignore[union-attr]
    if found is None or not hasattr(model, "generate_batch"):
        raise Unsupported("this version of transformers has no continuous batching", do="pip install 'transformers>=5'")

    def ask(module: Any, prompt: Any) -> GeneratedTokens:
        rows, length = prompt.shape
        places = rows * (length + module.how.new) + rows * BLOCK_PLACES
        settings = module.settings(module.how.new)
        settings.eos_token_id = -1
        blocks = found(num_blocks=max(16, -(-places // 256) + rows), max_batch_tokens=max(128, rows * length))
        began = clocks.perf_counter_ns()
        with torch.no_grad():
            made = module.model.generate_batch(
                inputs=prompt.tolist(), generation_config=settings, continuous_batching_config=blocks, record_timestamps=True
            )
        ended = clocks.perf_counter_ns()
        answers = list(made.values())
        for each in answers:
            if each.error:
                raise RuntimeError(f"a request failed: {each.error}")
        stamps = Stamps(began, [[round(1e9 * when) for when in each.timestamps] for each in answers], ended)
        return GeneratedTokens(torch.tensor([each.generated_tokens for each in answers], device=prompt.device), stamps)

    made = changed(task, ask=ask)
    return replace(made, own_threads=True, effective={**made.effective, "cache": "paged", "rows": "apart"})


@generate.variant("assisted")
def assisted(task: Task, tokens: int = 4) -> Task:
    """Drafts of `tokens` tokens, looked up in the prompt and checked by the model at once; for one row."""
    if task.args[0].shape[0] != 1:
        raise NotApplicable("transformers drafts for a single row only", do="use -a batch=1")
    made = changed(task, more={"prompt_lookup_num_tokens": tokens})
    return replace(made, effective={**made.effective, "drafts": f"{tokens} tokens looked up in the prompt"})


def _how(task: Task) -> Any:
    return task.fn.how  # type: ignore[union-attr]
