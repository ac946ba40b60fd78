"""PyTorch, eager and compiled."""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import math
import platform
import random
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from steelyard.backends import (
    _ranks,
    _torch_fixed,
    _torch_graphs,
    _torch_litter,
    _torch_looks,
    _torch_modes,
    _torch_moves,
    _torch_numbers,
    _torch_passes,
    _torch_seeds,
    _torch_state,
)
from steelyard.backends._litter import Sketch
from steelyard.backends._places import alter_array
from steelyard.backends.base import Backend, Leaf, Seat, step_through
from steelyard.errors import Unsupported
from steelyard.machine.telemetry import Log, Meter, watch
from steelyard.measuring.clock import Timer
from steelyard.measuring.fixed import Labels, Range, Stopwatch
from steelyard.model.dtypes import canonical
from steelyard.model.experiment import Settings
from steelyard.model.protocol import Traces
from steelyard.model.record import Figure
from steelyard.model.task import Task

ABOUT = {
    "package": "torch", "stack": "torch", "requires": ["numpy", "torch"], "pins": "torch.txt", "forks": True, "returns": True,
    "extra": "torch",
}  # fmt: skip
FORMATS = {
    "fp64": torch.float64, "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16,
    "fp8e4m3": torch.float8_e4m3fn, "fp8e5m2": torch.float8_e5m2, "fp8e4m3fnuz": torch.float8_e4m3fnuz,
    "fp8e5m2fnuz": torch.float8_e5m2fnuz, "fp8e8m0": torch.float8_e8m0fnu, "int64": torch.int64, "int32": torch.int32,
    "int16": torch.int16, "int8": torch.int8, "uint64": torch.uint64, "uint32": torch.uint32, "uint16": torch.uint16,
    "uint8": torch.uint8, "bool": torch.bool,
    "complex32": torch.complex32, "complex64": torch.complex64, "complex128": torch.complex128,
}  # fmt: skip
READ_AS = {kind: torch.float32 for name, kind in FORMATS.items() if name.startswith(("bf", "fp8"))} | {torch.complex32: torch.complex64}
"""Formats that numpy lacks, and the next wider ones that it has."""
DRAWN_THERE = 2**18
COUNTING = ("cuda", "rocm", "xpu")
"""Devices with integers and floats of 64 bits."""
LEFT_THERE = 2**28
"""Most bytes that may stay allocated on a device after a case: the compiler's constants and the like."""
SPARED = 16
"""Answers stay on the device while they take at most 1/SPARED of its free memory."""
PADDING, EMPTIED = 2**22, 0.2
LIBRARIES = {
    "gcc": r"GCC (\S+)", "mkl": r"Math Kernel Library Version (\S+)", "onednn": r"MKL-DNN (v\S+)", "openmp": r"OpenMP (\d+)",
    "cpu_capability": r"CPU capability usage: (\S+)", "cudnn": r"CuDNN (\S+)",
}  # fmt: skip
NAMES = {kind: name for name, kind in FORMATS.items()}


class Torch(Backend):
    """PyTorch on the CPU or on an accelerator it knows."""

    name = "torch"
    install = "pip install 'steelyard[torch]'"
    api: Any = None
    meter: Meter | None = None
    _held_there = 0
    """Bytes of answers that are kept on the device."""

    def open(self) -> None:
        self.take_threads()
        if self.device != "cpu":
            from steelyard.backends import _device

            if self.seat.size > 1:
                _ranks.take_device(self.seat)
            self.api, self.where = _device.open_api(self.device)
            self.meter = _meter(self.where.index) if self.device == "cuda" else None
        else:
            self.where = torch.device("cpu")

    def take_threads(self) -> None:
        """Give torch as many threads as the case has."""
        if torch.get_num_threads() != self.threads:
            torch.set_num_threads(self.threads)

    def join(self) -> Seat:
        _ranks.join(self.seat, self.device, self.where)
        self.joined = True
        return self.seat

    def barrier(self) -> None:
        _ranks.barrier(self.where)

    @classmethod
    def leave(cls) -> None:
        _ranks.leave()

    def timer(self) -> Timer:
        if self.api is None:
            return _ranks.GroupTimer() if self.joined else super().timer()
        from steelyard.backends._device import EventTimer

        timer = EventTimer(self.api, self.where, self.meter)
        return timer if self.seat.size == 1 else _ranks.unheld(timer)

    def pair_timer(self, arms: Sequence[Task]) -> Timer:
        if self.api is None or self.seat.size > 1 or any(task.times_itself or task.fn is None for task in arms):
            return self.timer()
        from steelyard.backends._device import PairTimer

        return PairTimer(self.api, self.where, self.meter, arms)

    def stopwatch(self, *, flush: Range | None = None) -> Stopwatch:
        return _torch_fixed.stopwatch(self.api, self.where, flush)

    def labels(self, *, traced: bool = False) -> Labels:
        return _torch_fixed.TorchLabels.where(self.device, traced)

    def facts(self) -> dict[str, Any]:
        return _torch_fixed.facts()

    @classmethod
    def as_it_was(cls) -> AbstractContextManager[Any]:
        return _torch_state.as_it_was()

    @classmethod
    def wholly_as_it_was(cls) -> AbstractContextManager[Callable[[], list[str]]]:
        return _torch_state.wholly_as_it_was()

    @classmethod
    def process_state(cls) -> tuple[Any, ...]:
        return _torch_state.values()

    @classmethod
    def in_state(cls, values: tuple[Any, ...]) -> AbstractContextManager[None]:
        return _torch_state.in_state(values)

    def traced(self, traces: Traces | None, files: dict[str, str]) -> AbstractContextManager[None]:
        if traces is None:
            return contextlib.nullcontext()
        from steelyard.backends import _torch_traces

        return _torch_traces.traced(traces, self.device, files)

    @classmethod
    def recorder(cls) -> Any:
        from steelyard.backends import _torch_captures

        return _torch_captures

    def recovers(self, reason: str) -> bool:
        return _torch_fixed.recovers(self.api, reason)

    def sync(self) -> None:
        if self.api is not None:
            self.api.synchronize()

    def in_mode(self, task: Task, mode: str) -> Task:
        return _torch_modes.in_mode(task, mode)

    def module(self, make: Callable[[], Any], dtype: str) -> Any:
        """Return a module with seeded weights drawn in named order: matrices by fan-in, gains 1, biases 0."""
        with torch.device(self.where):
            module = make().to(FORMATS[canonical(dtype)]).eval()
        self.draw_weights(module, dtype)
        return module

    def draw_weights(self, module: Any, dtype: str) -> None:
        """Draw seeded weights for a module, in named order."""
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                if parameter.ndim >= 2:
                    fan_in = parameter.numel() / parameter.shape[0]
                    parameter.copy_(self.randn(*parameter.shape, dtype=dtype, scale=fan_in**-0.5))
                else:
                    parameter.fill_(0.0 if name.endswith("bias") else 1.0)

    def randn(self, *shape: int, dtype: str = "fp32", scale: float = 1.0) -> Any:
        if not self._drawn_there(shape):
            return super().randn(*shape, dtype=dtype, scale=scale)
        dtype = canonical(dtype)
        data = _torch_numbers.normals(self._stream(), shape, self.where, wide=dtype == "fp64")
        return (data if scale == 1.0 else data.mul_(scale)).to(FORMATS[dtype])

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0, dtype: str = "fp32") -> Any:
        if not self._drawn_there(shape):
            return super().uniform(*shape, low=low, high=high, dtype=dtype)
        return _torch_numbers.between(self._stream(), low, high, shape, self.where, FORMATS[canonical(dtype)])

    def integers(self, low: int, high: int, *shape: int, dtype: str = "int64") -> Any:
        if not self._drawn_there(shape):
            return super().integers(low, high, *shape, dtype=dtype)
        return _torch_numbers.whole(self._stream(), low, high, shape, self.where, FORMATS[canonical(dtype)])

    def _drawn_there(self, shape: Sequence[int]) -> bool:
        """Whether an array is drawn on the device: if it is large enough to be faster there, and comes out with the same bits."""
        large = self.api is not None and self.device in COUNTING and math.prod(shape) >= DRAWN_THERE
        return large and _torch_numbers.sound(self.where)

    def upcast(self, task: Task) -> Task | None:
        if task.fn is None:
            return None
        wide: dict[int, Any] = {}
        args, kwargs = _doubled(tuple(task.args), wide), _doubled(dict(task.kwargs), wide)
        if isinstance(task.fn, torch.nn.Module):
            module = copy.deepcopy(task.fn).double()
            return replace(task, fn=module, args=args, kwargs=kwargs, parameters=tuple(module.parameters()))
        return replace(task, args=args, kwargs=kwargs, parameters=tuple(_doubled(item, wide) for item in task.parameters))

    def start_memory(self) -> None:
        if self.api is None:
            super().start_memory()
        elif hasattr(self.api, "reset_peak_memory_stats"):
            self.api.synchronize()
            self.api.reset_peak_memory_stats()

    def peak_memory(self) -> dict[str, float]:
        if self.api is None:
            return super().peak_memory()
        stats = self.api.memory_stats() if hasattr(self.api, "memory_stats") else {}
        names = ("allocated", "reserved", "active")
        return {f"peak_{name}": float(stats[key]) for name in names if (key := f"{name}_bytes.all.peak") in stats}

    def release_memory(self) -> None:
        super().release_memory()
        if hasattr(self.api, "empty_cache"):
            self.api.empty_cache()

    def model_bytes(self, task: Task) -> int:
        return _torch_passes.model_bytes(task)

    def snapshot(self, path: Path) -> AbstractContextManager[None]:
        return _torch_passes.snapshot(path) if self.device == "cuda" else super().snapshot(path)

    def profile(self, call: Callable[[], Any], trace: Path, calls: int) -> list[dict[str, Any]]:
        return _torch_passes.profile(call, self.sync, self.where.type, trace, calls)

    def profile_stacks(self, call: Callable[[], Any], folder: Path) -> list[Path]:
        return _torch_passes.profile_stacks(call, self.sync, folder)

    @classmethod
    def import_mode(cls, mode: str) -> None:
        if mode == "train":
            torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.0)

    @classmethod
    def import_compiler(cls) -> None:
        import torch._dynamo
        import torch._inductor.compile_fx  # noqa: F401

    def cache_counts(self) -> dict[str, int]:
        return _torch_passes.cache_counts()

    def program_sizes(self) -> dict[str, float]:
        return _torch_passes.code_size()

    def observe(self) -> AbstractContextManager[Log]:
        return watch(self.meter)

    def beside(self, task: Task, timer: Timer, seconds: float, settings: Settings) -> tuple[dict[str, Figure], dict[str, Any]]:
        if self.api is None or task.fn is None:
            return {}, {}
        from steelyard.backends import _device

        return _device.beside(task, timer, seconds, settings) if isinstance(timer, _device.EventTimer) else ({}, {})

    def array(self, data: np.ndarray[Any, Any], dtype: str) -> Any:
        return torch.from_numpy(np.asarray(data, order="C")).to(self.where, FORMATS[dtype])

    def dtype(self, name: str) -> torch.dtype:
        """Return the torch format for one of our names."""
        return FORMATS[name]

    def dtype_name(self, format: torch.dtype) -> str:
        """Return our name for a torch format."""
        return NAMES.get(format, str(format))

    def leaf(self, value: Any) -> tuple[str, np.ndarray[Any, Any]] | None:
        if not isinstance(value, torch.Tensor):
            return None
        bare = _torch_litter.bare(value)
        step = step_through(bare.numel())
        host = (bare if step <= 1 else bare.reshape(-1)[::step]).to("cpu")
        plain = host.to(READ_AS.get(host.dtype, host.dtype))
        return NAMES.get(bare.dtype, str(bare.dtype)), plain.resolve_conj().resolve_neg().numpy()

    def seen(self, value: Any, path: str) -> Leaf | None:
        if not self._looks_there(value):
            return super().seen(value, path)
        name, plain = NAMES.get(value.dtype, str(value.dtype)), _torch_litter.bare(value).resolve_conj().resolve_neg()
        return Leaf(path, name, None, tuple(value.shape), plain, torch, lambda there: _data(self.leaf(there)))

    def kept(self, leaf: Leaf) -> Leaf:
        if leaf.there is None or self._held_there + leaf.there.nbytes > self._room_there() / SPARED:
            return super().kept(leaf)
        self._held_there += leaf.there.nbytes
        return replace(leaf, there=leaf.there.clone())

    def _room_there(self) -> float:
        """Return the free bytes of the device; 0 if it does not report them."""
        try:
            return float(self.api.mem_get_info()[0])
        except (RuntimeError, AttributeError):
            return 0.0

    def _looks_there(self, value: Any) -> bool:
        """Whether a tensor is compared on its device, without a copy to the host."""
        counts = self.api is not None and self.device in COUNTING and isinstance(value, torch.Tensor)
        return counts and value.device.type == self.where.type and _torch_looks.plain(value)

    def fingerprint(self, value: Any) -> str | None:
        if not self._looks_there(value):
            return super().fingerprint(value)
        try:
            return _torch_looks.fingerprint(value.detach())
        except (RuntimeError, NotImplementedError):
            return super().fingerprint(value)

    def copy(self, value: Any, buffers: dict[Any, Any] | None = None) -> Any:
        return (
            _torch_moves.copy_tensor(value, {} if buffers is None else buffers)
            if isinstance(value, torch.Tensor)
            else super().copy(value, buffers)
        )

    def answer(self, task: Task, mode: str, calls: int) -> Any:
        if mode != "train":
            return super().answer(self.in_mode(task, mode), "eval", calls)
        step = _torch_modes.TrainingStep(_torch_modes.recording(task, inputs=False))
        with step.task.scope() if step.task.scope else contextlib.nullcontext():
            for _ in range(calls):
                step.clear()
                output, loss = step(self.renewed(task.args), self.renewed(dict(task.kwargs)))
                self.sync()
        gradients = {str(place): item.grad for place, item in enumerate(step.parameters) if item.grad is not None}
        return {"prediction": output, "loss": loss, "gradients": gradients, "parameters": dict(enumerate(step.parameters))}

    def sow(self) -> None:
        super().sow()
        _torch_seeds.seed_awake(self.seed)

    def changing(self, task: Task) -> list[Any]:
        """Return the weights, and what a module keeps beside them, such as the statistics of its norms."""
        return [*super().changing(task), *(task.fn.buffers() if isinstance(task.fn, torch.nn.Module) else ())]

    def save(self, value: Any, path: Path) -> None:
        torch.save({place: item.detach().cpu() for place, item in _torch_passes.leaves(value).items()}, path)

    def drawn_again(self, value: Any) -> Any:
        return torch.randn_like(value) if isinstance(value, torch.Tensor) and value.is_floating_point() else super().drawn_again(value)

    def fixed(self, value: Any) -> bool:
        return _torch_moves.is_compiled(value) or super().fixed(value)

    def alter(self, value: Any, change: Callable[[Any], Any]) -> bool:
        if not isinstance(value, torch.Tensor):
            return alter_array(value, change)
        if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout is not torch.strided:
            return False
        try:
            with torch.no_grad():
                value.copy_(change(value.detach().to(READ_AS.get(value.dtype, value.dtype))))
        except (RuntimeError, NotImplementedError):
            return False
        self.sync()
        return True

    def litter(self, answer: Sequence[Sketch]) -> None:
        if self.api is not None:
            _torch_litter.litter_device(answer, self.api, self.where, FORMATS)
        else:
            _torch_litter.litter_cpu(answer, FORMATS)

    def graphs(self) -> int:
        return int(torch._dynamo.utils.counters["stats"]["unique_graphs"]) if "torch._dynamo" in sys.modules else 0

    def captured_graphs(self) -> dict[str, int]:
        return {"cuda_graphs": _torch_graphs.captured_graphs(self.where)} if self.device == "cuda" else {}

    @classmethod
    def reset(cls) -> None:
        cls.leave()
        if "torch._dynamo" in sys.modules:
            torch._dynamo.reset()
            torch._dynamo.utils.counters.clear()
        if torch.cuda.is_initialized():
            gc.collect()
            getattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None)()
            torch.cuda.empty_cache()

    @classmethod
    def unreturned(cls) -> str:
        if torch.cuda.is_initialized():
            gc.collect()
            torch.cuda.empty_cache()
            if torch.cuda.memory_allocated() > LEFT_THERE:
                cls.reset()
            if (held := torch.cuda.memory_allocated()) > LEFT_THERE:
                return f"{held / 2**20:.0f} MiB of the device's memory that it did not give back"
        return super().unreturned()

    def relocate(self, task: Task, rng: random.Random, *, whole: bool = True) -> Task:
        if self.api is not None:
            self._room = torch.empty(rng.randrange(1, PADDING), dtype=torch.uint8, device=self.where)
            if rng.random() < EMPTIED and hasattr(self.api, "empty_cache"):
                self.api.empty_cache()
        if not whole:
            _torch_moves.move_in_place(task)
        return super().relocate(task, rng, whole=whole)

    def versions(self) -> dict[str, str]:
        found = dict(_libraries())
        if self.api is not None:
            found["device"] = str(getattr(self.api, "get_device_name", lambda: self.device)())
            found["cuda"] = str(torch.version.cuda or torch.version.hip or "")
        return found


class TorchElsewhere(Torch):
    """A runtime other than PyTorch's own that runs workloads' torch implementations; plain torch in the same process is its reference."""

    speaks = "torch"

    def join(self) -> Seat:
        raise Unsupported(f"backend {self.name} runs one process per case", do="use backend torch for several ranks")

    def witness(self) -> Torch:
        """Return plain torch on the CPU, which computes the same task in double precision."""
        return Torch("cpu", seed=self.seed, threads=self.threads)


def _data(found: tuple[str, np.ndarray[Any, Any]] | None) -> np.ndarray[Any, Any]:
    assert found is not None
    return found[1]


def _doubled(value: Any, known: dict[int, Any]) -> Any:
    """Return the same structure with its floating-point tensors in double precision; a tensor in `known` is not converted again."""
    if type(value) in (list, tuple):
        return type(value)(_doubled(item, known) for item in value)
    if type(value) is dict:
        return {key: _doubled(item, known) for key, item in value.items()}
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    return known.setdefault(id(value), value.detach().double())


@functools.cache
def _libraries() -> Mapping[str, str]:
    """Return the versions of torch, Python and numpy, and of the libraries that torch was built with."""
    found = {"torch": torch.__version__, "numpy": np.__version__, "python": platform.python_version()}
    config = torch.__config__.show()
    return found | {name: match[1] for name, pattern in LIBRARIES.items() if (match := re.search(pattern, config))}


@functools.cache
def _meter(index: int) -> Meter | None:
    """Return the telemetry of an NVIDIA device, opened once per process."""
    return Meter.open(f"GPU-{torch.cuda.get_device_properties(index).uuid}")


BACKEND = Torch
