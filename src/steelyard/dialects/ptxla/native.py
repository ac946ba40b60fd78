"""Convert a config of PyTorch/XLA's runner to our case: model, stack and test, how often it is called, and the rule for its answers."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steelyard import registry
from steelyard.dialects.ptxla import matrix, torchbench
from steelyard.dialects.ptxla.flags import RunnerOptions
from steelyard.dialects.ptxla.matrix import RunnerPoint
from steelyard.dialects.ptxla.torchbench import ModelPolicy
from steelyard.engine import envs
from steelyard.engine.place import Place
from steelyard.errors import UsageError, unknown
from steelyard.model.case import VariantSpec, sorted_pairs
from steelyard.model.experiment import Matrix, Saved, Settings
from steelyard.model.protocol import Fixed

RULE, NO_RULE = "ptxla", "none"
RATE = 0.01
SEED = 1337
DUMMY = "dummy/linear"
OWN = "model"
LIBRARIES = ("torchbench", "timm", "transformers")
AMP = {"cuda": "fp16", "tpu": "bf16"}
"""The format that training is cast to; on a CPU it is not cast."""
LONG = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
TF32 = "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"


def settings(options: RunnerOptions) -> Settings:
    """Return how configs are timed: each in its own process, with repeats of some calls on their own inputs, the first one cold."""
    fixed = Fixed(
        repeats=options.repeat, calls=options.iterations_per_run, clock="fastest" if options.pure_wall_time else "discrete",
        inputs="random" if options.randomize_input else "fresh", cold=True,
        counters="reports" if options.dump_pytorch_xla_metrics else "counts",
    )  # fmt: skip
    saved: Saved = "state" if options.collect_full_output else "answer"
    return Settings(
        fixed=fixed, verify=options.verify, seed=SEED, isolate="case", timeout=options.subprocess_timeout, profile=options.profiles,
        runtime_profile=options.profile_xla, save_output=saved if options.save_output else None,
    )  # fmt: skip


def asked(model: str, experiment: RunnerPoint, options: RunnerOptions, policy: ModelPolicy, batch: int | None, label: str) -> Matrix:
    """Return one config as a matrix of one case."""
    known = policy.for_model(model, experiment["test"], batch)
    workload, axes = _model(model, options, known)
    backend, chain = _stack(experiment, options)
    training, accelerator, dtype = experiment["test"] == "train", experiment["accelerator"], axes.get("dtype", (None,))[0]
    steps = []
    if workload.startswith(LIBRARIES) and dtype is None and backend != "torchax" and (low := AMP.get(accelerator)):
        steps.append(VariantSpec("autocast", (("dtype", low),)))
    if training and backend != "torchax":
        steps.append(VariantSpec("optimizer", sorted_pairs({"kind": "sgd" if known["sgd"] else "adam", "rate": RATE})))
    return Matrix(
        (workload,), {name: values for name, values in axes.items() if values != (None,)}, (backend,),
        ("+".join(map(str, (*steps, *chain))) or "eager",), (experiment["test"],), (accelerator,),
        (options.threads or len(os.sched_getaffinity(0)),), flags=(_flags(experiment, options),), label=label,
        rule=_rule(known, options) if options.verify else "",
    )  # fmt: skip


def _model(name: str, options: RunnerOptions, policy: Mapping[str, Any]) -> tuple[str, dict[str, tuple[Any, ...]]]:
    """Return the workload of a model, and the values of its axes; None leaves an axis at its default.

    Inference of a library's models is converted to bf16, or to fp16 where the policy says so; models that cannot be converted, and
    training, are cast while they run.
    """
    batch, suite = policy["batch_size"], options.suite_name
    if suite == "dummy":
        if name != "dummy":
            raise unknown("model", name, ["dummy"])
        return DUMMY, {"batch": (batch,)}
    if suite == "steelyard":
        workload = f"{OWN}/{name}"
        info = registry.catalogue().workloads.get(workload)
        if info is None:
            raise unknown("model", name, models_of_ours())
        sized = {"batch": (batch,)} if "batch" in info["axes"] else {}
        return workload, {"size": (options.size,), **sized}
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name):
        raise UsageError(f"not a model of {suite}: {name!r:.80}")
    short = "fp16" if policy["half"] else "bf16"
    return f"{suite}/{name}", {"batch": (batch,), "dtype": (None if policy["training"] or policy["cast"] else short,)}


def models_of_ours() -> list[str]:
    """Return the names of our own models."""
    return sorted(name.removeprefix(f"{OWN}/") for name in registry.catalogue().workloads if name.startswith(f"{OWN}/"))


def _stack(experiment: RunnerPoint, options: RunnerOptions) -> tuple[str, list[VariantSpec]]:
    """Return the backend, and the variant that compiles, if any."""
    whole = (("fullgraph", True),) if options.filter_by_single_graph else ()
    if way := experiment["torch_xla2"]:
        return "torchax", [VariantSpec("jit", (("way", "export"),) if way == "torch_export" else ())]
    if experiment["dynamo"] == "openxla":
        return "torch_xla", [VariantSpec("openxla", whole)]
    if experiment["dynamo"] == "inductor":
        graphs = (("mode", "reduce-overhead"),) if experiment["accelerator"] == "cuda" else ()
        return "torch", [VariantSpec("compile", sorted_pairs((*whole, *graphs)))]
    return ("torch_xla" if experiment["xla"] else "torch"), []


def _flags(experiment: RunnerPoint, options: RunnerOptions) -> dict[str, str]:
    """Return variables that change what is computed, and are therefore part of the case."""
    found = {"XLA_FLAGS": str(experiment["xla_flags"])} if experiment["xla_flags"] else {}
    if experiment["xla"] and not experiment["torch_xla2"] and not experiment["enable_functionalization"]:
        found["XLA_DISABLE_FUNCTIONALIZATION"] = "1"
    if experiment["accelerator"] == "cuda" and options.precision == "high":
        found[TF32] = "1"
    return found


def _rule(policy: Mapping[str, Any], options: RunnerOptions) -> str:
    if policy["unverified"]:
        return NO_RULE
    told = {name: policy[name] for name in ("tolerance", "cosine", "small_tensors", "even_higher", "iou", "multiplier") if policy[name]}
    calls = {"calls": options.verify_iterations} if options.verify_iterations != 1 else {}
    return str(VariantSpec(RULE, sorted_pairs({**told, **calls})))


def place(options: RunnerOptions) -> Place:
    """Return where processes start: in the named environment, and in the checkout of TorchBench, which models import and read."""
    found = envs.place(options.env) if options.env else Place()
    if options.suite_name != "torchbench":
        return found
    checkout = str(Path(options.torchbench or "").resolve())
    return Place(found.python, search_path=found.search_path, paths=(checkout,), folder=checkout)


def dumps(model: str, experiment: RunnerPoint, options: RunnerOptions, folder: Path, present: str) -> dict[str, str]:
    """Return variables that make XLA write files to a folder, and do not affect results; `present` is the case's XLA_FLAGS."""
    base, found = matrix.basename({"model_name": model}, experiment), {}
    if options.dump_hlo:
        given = present or (os.environ.get("XLA_FLAGS", "") if experiment["xla"] is None else "")
        found["XLA_FLAGS"] = f"{given} --xla_dump_to={_quoted(str(folder / f'hlo-{base}'))}".strip()
    if options.save_ir_format is not None:
        found |= {"XLA_SAVE_TENSORS_FMT": options.save_ir_format, "XLA_SAVE_TENSORS_FILE": str(folder / f"dump-{base}")}
    if model in torchbench.GENERATING:
        found["XLA_COMPILATION_CACHE_SIZE"] = "2048"
    return found


def _quoted(path: str) -> str:
    """Quote a path for XLA_FLAGS, which are split at blanks outside quotes."""
    if not re.search(r"[\s'\"\\]", path):
        return path
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'
