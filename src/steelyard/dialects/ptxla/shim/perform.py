"""One config in the worker: build the model, time it repeat by repeat, verify it; the parent is told, and it writes the row."""

from __future__ import annotations

import copy
import importlib
import json
import platform
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from steelyard.dialects.ptxla.flags import RunnerOptions
from steelyard.dialects.ptxla.shim import profiles, verify
from steelyard.errors import Unsupported, status_of, told
from steelyard.machine import cpu
from steelyard.measuring.calm import calm
from steelyard.workloads.models.build import build
from steelyard.workloads.models.subject import ModelDevice, ModelRequest, Subject, doubled, load_xla, mapped, sow

Send = Callable[[Mapping[str, Any]], None]
Metrics = dict[str, list[Any]]
LONGEST_TRACE = 4000
XLA_OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"


def perform(job: Mapping[str, Any], loaded: Any, send: Send, gate: Callable[[], None]) -> None:
    """Answer with what was measured, or with why nothing was; never with a row, which is the parent's."""
    send({"started": job["model"]["model_name"]})
    try:
        send({"measured": measure(job, loaded)})
    except (Exception, SystemExit) as error:
        status = "oom" if XLA_OUT_OF_MEMORY in str(error) else status_of(error)
        send({"failed": {"status": status, "error": told(error), "trace": traceback.format_exc()[-LONGEST_TRACE:]}})


def measure(job: Mapping[str, Any], loaded: Any) -> dict[str, Any]:
    """Everything the row says beside what was asked for."""
    import torch

    options, experiment, policy = RunnerOptions.from_plain(job["options"]), job["experiment"], job["policy"]
    threads = max(1, int(job["threads"]))
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision(options.precision)
    check(experiment)
    on_jax = experiment["torch_xla2"]
    spot = jaxed().open_spot(experiment["accelerator"]) if on_jax else open_spot(experiment["accelerator"], experiment["xla"] is not None)
    ask = ModelRequest(
        options.suite_name, job["model"]["model_name"], experiment["test"], policy.get("batch_size"), options.size, options.torchbench,
        bool(policy.get("half")), bool(policy.get("cast")), bool(policy.get("sgd")), threads, loaded,
        options.verify and not policy.get("unverified"),
    )  # fmt: skip
    files = profiles.Files(Path(job["folder"]), job["basename"])
    if options.save_ir_format is not None:
        files.folder.mkdir(parents=True, exist_ok=True)
    subject = build(ask, spot)
    if on_jax:
        candidate: ModelCall = jaxed().begin(subject, spot, ask.test, on_jax)
    else:
        candidate = ModelCall.open(subject, spot, ask.test, experiment["dynamo"], options.filter_by_single_graph)
    with calm():
        metrics, output = repeats(candidate, options, files)
        metrics |= profiles.extra(candidate, options, files)
    files.note_dumps()
    found = {
        "metrics": metrics, "batch_size": subject.batch_size, "accelerator_model": accelerator_model(spot),
        "versions": versions(spot), "fallbacks": candidate.clock.fallbacks(), "dtype": str(subject.dtype or "").removeprefix("torch."),
        "files": dict(files.written), "verification": {"code": verify.SKIPPED},
    }  # fmt: skip
    if options.save_output:
        answered = candidate.answered(output)
        found["outputs_file"] = files.save_tensors(candidate.state(answered) if options.collect_full_output else answered)
    if options.verify:
        try:
            found["verification"] = verified(candidate, ask, options, policy)
        except Exception as error:
            found["verification"] = {"code": verify.RAISED, "why": told(error)}
    return found


def jaxed() -> Any:
    """How a model runs on JAX, which needs another framework than all the rest."""
    return importlib.import_module("steelyard.dialects.ptxla.shim.jaxed")


def open_spot(accelerator: str, xla: bool) -> ModelDevice:
    """Wake the device, or say why it cannot be had."""
    import torch

    if xla:
        return ModelDevice(accelerator, True, load_xla()._device(accelerator))
    if accelerator == "cuda" and not torch.cuda.is_available():
        raise Unsupported("there is no CUDA device here", why=f"torch {torch.__version__} finds none", do="--accelerator=cpu")
    if accelerator == "tpu":
        raise Unsupported("a TPU needs XLA", do="--xla=PJRT")
    return ModelDevice(accelerator, False, torch.device(accelerator))


def check(experiment: Mapping[str, Any]) -> None:
    """What no version of PyTorch/XLA that installs today can do."""
    if experiment["xla"] == "XRT":
        raise Unsupported("XRT was removed from PyTorch/XLA", do="--xla=PJRT")
    if experiment["keep_model_data_on_cuda"]:
        raise Unsupported("PyTorch/XLA no longer moves data between CUDA and XLA", do="leave --keep-model-data-on-cuda out")


@dataclass(frozen=True)
class RuntimeClock:
    """What waiting means on a device, and what its runtime counts; this one is for devices that PyTorch drives itself."""

    spot: ModelDevice

    def step(self) -> None:
        """The end of one call."""
        self.wait()

    def wait(self) -> None:
        """Until everything is done."""
        import torch

        if self.spot.accelerator == "cuda":
            torch.cuda.synchronize()

    def counts(self) -> Any:
        """What the runtime counted so far."""
        return None

    def since(self, before: Any) -> dict[str, Any]:
        """What it counted since then, by the names of the row."""
        return {}

    def fallbacks(self) -> dict[str, int]:
        """Operators that ran on the host instead of the device."""
        return {}


class XlaClock(RuntimeClock):
    """XLA: a call ends when its graph was handed over, and all is done when the device says so."""

    @property
    def runtime(self) -> Any:
        """Our backend's view of the runtime."""
        return importlib.import_module("steelyard.backends.torch_xla")

    def step(self) -> None:
        importlib.import_module("torch_xla").sync()

    def wait(self) -> None:
        self.runtime.settle()

    def counts(self) -> Any:
        return self.runtime.Counts.read()

    def since(self, before: Any) -> dict[str, Any]:
        found = self.runtime.Counts.read().since(before)
        return {
            "xla_CompileTime_time_s": found.compile_time, "xla_CompileTime_number": found.compiles,
            "xla_ExecuteTime_time_s": found.execute_time, "xla_ExecuteTime_number": found.executions,
        }  # fmt: skip

    def fallbacks(self) -> dict[str, int]:
        found: dict[str, int] = self.runtime.fallbacks()
        return found


@dataclass
class ModelCall:
    """A model that can be called as its test calls it: inference, or a whole training step."""

    subject: Subject
    spot: ModelDevice
    test: str
    forward: Callable[..., Any]
    optimizer: Any
    clock: RuntimeClock
    start: Mapping[str, Any]

    @classmethod
    def open(cls, subject: Subject, spot: ModelDevice, test: str, dynamo: str | None = None, whole: bool = False) -> ModelCall:
        """Compile what is to be compiled, and remember the weights, so that verification begins where timing began."""
        import torch

        forward = subject.module
        if dynamo is not None:
            options = {"triton.cudagraphs": True} if dynamo == "inductor" and spot.accelerator == "cuda" else None
            forward = torch.compile(subject.module, backend=dynamo, fullgraph=whole, options=options)
        training = test == "train"
        start = {name: item.detach().clone() for name, item in subject.module.state_dict().items()} if training else {}
        made = cls(subject, spot, test, forward, None, XlaClock(spot) if spot.xla else RuntimeClock(spot), start)
        made.optimizer = subject.fresh_optimizer() if training else None
        made.clock.wait()
        return made

    def rewind(self) -> None:
        """Back to the first step."""
        if self.start:
            self.subject.module.load_state_dict(dict(self.start))
            self.optimizer = self.subject.fresh_optimizer()

    def scope(self) -> AbstractContextManager[Any]:
        """What surrounds a call: no gradients in inference, and the short format that training casts to."""
        import torch

        stack = ExitStack()
        if self.test == "eval" and not self.subject.differentiates:
            stack.enter_context(torch.no_grad())
        if self.subject.amp is not None:
            kind = "xla" if self.spot.xla else self.spot.accelerator
            stack.enter_context(torch.autocast(kind, dtype=self.subject.amp))
        return stack

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
        """One call: what the model answers, and in training the loss of the step that was made."""
        if self.test == "eval":
            with self.scope():
                return self.forward(*args, **kwargs), None
        self.optimizer.zero_grad(set_to_none=True)
        with self.scope():
            output = self.forward(*args, **kwargs)
            loss = self.subject.loss(output)
        loss.backward()
        self.optimizer.step()
        return output, loss

    def inputs(self, randomise: bool = False) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """A copy of the inputs, which a call may change; other numbers in floating ones where asked, whole ones stay."""
        import torch

        def fresh(item: Any) -> Any:
            if not isinstance(item, torch.Tensor):
                return copy.deepcopy(item)
            if randomise and item.is_floating_point():
                return torch.randn_like(item)
            return item.detach().clone()

        args = tuple(mapped(item, fresh) for item in self.subject.args)
        return args, {key: mapped(item, fresh) for key, item in self.subject.kwargs.items()}

    def answered(self, output: tuple[Any, Any]) -> tuple[Any, Any]:
        """What a call gave, in PyTorch's own tensors."""
        return output

    def state(self, output: tuple[Any, Any]) -> dict[str, Any]:
        """What the last call answered, with the gradients and weights that it left."""
        weights = dict(self.subject.module.named_parameters())
        gradients = {name: item.grad for name, item in weights.items() if item.grad is not None}
        return {"prediction": output[0], "loss": output[1], "gradients": gradients, "parameters": weights}

    def answer(self, iterations: int = 1) -> verify.Answer:
        """What the last of some calls from the start answered, and in training what it did to the weights."""
        sow(self.spot.xla)
        self.rewind()
        output = loss = None
        for _ in range(iterations):
            output, loss = self(*self.inputs())
            self.clock.step()
        self.clock.wait()
        if self.test == "eval":
            return verify.answer(output)
        weights = dict(self.subject.module.named_parameters())
        return verify.answer(output, loss, {name: item.grad for name, item in weights.items()}, weights)


def repeats(act: ModelCall, options: RunnerOptions, files: Any) -> tuple[Metrics, Any]:
    """Times of every repeat; the first one traces and compiles, as nothing is called before it."""
    metrics: Metrics = {}
    output: Any = None
    sow(act.spot.xla)
    for number in range(options.repeat):
        inputs = [act.inputs(options.randomize_input) for _ in range(options.iterations_per_run)]
        act.clock.wait()
        before = act.clock.counts()
        profiles.clear_counters()
        figures, output = (fastest if options.pure_wall_time else timed)(act, inputs)
        for name, value in {**figures, **act.clock.since(before)}.items():
            metrics.setdefault(name, []).append(value)
        counters = profiles.dynamo_counters() if options.collect_dynamo_counters or options.dump_dynamo_counters else {}
        if options.collect_dynamo_counters:
            metrics.setdefault("dynamo_counters", []).append(counters)
        if options.dump_dynamo_counters:
            files.write("dynamo-counters", f"{json.dumps(counters)}\n", "txt", number)
        if options.dump_pytorch_xla_metrics and act.spot.xla:
            report = importlib.import_module("torch_xla.debug.metrics").metrics_report()
            files.write("pytorch-xla-metrics", report, "txt", number)
    return metrics, output


def timed(act: ModelCall, inputs: list[Any]) -> tuple[dict[str, float], Any]:
    """All calls of a repeat, each until it was handed over, and the device until it is done."""
    now, traced, output = time.perf_counter, 0.0, None
    start = now()
    for args, kwargs in inputs:
        called = now()
        output = act(args, kwargs)
        traced += now() - called
        act.clock.step()
    act.clock.wait()
    total, count = now() - start, len(inputs)
    found = {"total_time": total, "per_iter_time": total / count}
    if act.spot.xla:
        found |= {"trace_total_time": traced, "trace_per_iter_time": traced / count}
    return found, output


def fastest(act: ModelCall, inputs: list[Any]) -> tuple[dict[str, float], Any]:
    """For every call of a repeat the shortest of many, as a micro-benchmark has it; no CUDA is needed for it."""
    from steelyard.drop_in import do_bench

    held: list[Any] = []
    total = 0.0
    for args, kwargs in inputs:

        def call(args: Any = args, kwargs: Any = kwargs) -> None:
            held[:] = [act(args, kwargs)]
            act.clock.wait()

        shortest = do_bench(call, return_mode="min")
        assert isinstance(shortest, float)
        total += shortest * 1e-3
    return {"total_time": total, "per_iter_time": total / len(inputs)}, held[0]


def verified(candidate: ModelCall, ask: ModelRequest, options: RunnerOptions, policy: Mapping[str, Any]) -> dict[str, Any]:
    """Hold the candidate against the same model in plain PyTorch; XLA's against that on the CPU."""
    if policy.get("unverified"):
        return {"code": verify.SKIPPED, "why": "the policy says that this model is too large or not deterministic"}
    spot = candidate.spot
    plain = open_spot("cpu", False) if spot.xla or spot.jax else spot
    rules = verify.Rules.of(ask.test, spot.accelerator, policy, options.verify_iterations)

    def eager() -> verify.Answer:
        return ModelCall.open(build(ask, plain), plain, ask.test).answer(options.verify_iterations)

    def double() -> verify.Answer:
        subject = doubled(build(ask, plain))
        return ModelCall.open(subject, plain, ask.test).answer(options.verify_iterations)

    return verify.verify(
        lambda: candidate.answer(options.verify_iterations), eager, double, rules, training=ask.test == "train"
    ).plain()  # fmt: skip


def accelerator_model(spot: ModelDevice) -> str:
    """The device's own name; one of several GPUs is told with the others, as the original does."""
    import torch

    if spot.accelerator == "cuda":
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        return names[0] if len(names) == 1 else f"One of {', '.join(names)}"
    if spot.accelerator == "tpu":
        return str(getattr(importlib.import_module("torch_xla.runtime"), "device_type", lambda: "TPU")())
    return cpu.model(cpu.cpuinfo(Path("/"))) or platform.machine()


def versions(spot: ModelDevice) -> dict[str, str]:
    """What a reader needs to repeat it."""
    import torch

    found = {"python": platform.python_version(), "torch": str(torch.__version__)}
    if spot.xla:
        found["torch_xla"] = str(importlib.import_module("torch_xla").__version__)
    if spot.jax:
        found |= {name: metadata.version(name) for name in ("jax", "torchax")}
    return found
