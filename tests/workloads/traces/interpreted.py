"""Compiled code whose Triton kernels run on a CPU, by Triton's interpreter: recorded, and called again out of what was recorded.

    TRITON_INTERPRET=1 python -m tests.workloads.traces.interpreted FOLDER

Inductor writes the kernels as it does for a GPU, and its own launch tells the recorder of them; the interpreter stands for the GPU alone.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class NoDevice:
    """A driver of Triton's for a GPU that is not there: the compiler asks what it would compile for."""

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: Any = None) -> int:
        return 0

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cpu")


def launcher(kernel: Any, config: Any) -> Callable[..., Any]:
    """What launches a kernel in one of its forms, as inductor makes one of what was compiled."""

    def launch(*args: Any, stream: int, **more: Any) -> Any:
        given, grid = kernel._interpret_args_grid(args, config)
        return kernel.fn[grid](*given, **more, **config.kwargs)

    for name, value in (("config", config), ("n_regs", 1), ("n_spills", 0), ("shared", 0), ("store_cubin", False), ("cache_hash", "")):
        setattr(launch, name, value)
    return launch


@contextmanager
def launched() -> Iterator[None]:
    """Kernels are launched as on a GPU, with a trial of two forms before the first; inductor would leave its own way at once."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    kept = CachingAutotuner.__init__, CachingAutotuner.precompile, CachingAutotuner.benchmark_all_configs

    def made(self: Any, *args: Any, **more: Any) -> None:
        kept[0](self, *args, **more)
        self.triton_interpret = False

    def compiled(self: Any, *args: Any, **more: Any) -> None:
        self.launchers = [launcher(self, self.configs[0]), launcher(self, self.configs[-1])]

    def tried(self: Any, *args: Any, **more: Any) -> Any:
        for each in self.launchers:
            each(*args, stream=0, **more)
        return {each: float(place) for place, each in enumerate(self.launchers)}

    CachingAutotuner.__init__, CachingAutotuner.precompile, CachingAutotuner.benchmark_all_configs = made, compiled, tried
    try:
        yield
    finally:
        CachingAutotuner.__init__, CachingAutotuner.precompile, CachingAutotuner.benchmark_all_configs = kept


def record(path: Path) -> None:
    """Two calls of a compiled function, the first of which compiles it, and a step of its training."""
    import torch

    import steelyard

    step = torch.compile(lambda x, w: torch.relu(x.reshape(64, 64) @ w).mul(3).sum(dim=1))
    x, w = torch.randn(4096), torch.randn(64, 64)
    trained = torch.compile(lambda x, w: (x.reshape(64, 64) @ w).sigmoid().sum(dim=1))
    w_trained = torch.randn(64, 64, requires_grad=True)
    with steelyard.capture(path), launched():
        for _ in range(2):
            step(x, w)
        trained(x, w_trained).sum().backward()


def played(path: Path, name: str, resources: Path) -> float:
    """How far what a kernel of the trace makes is from what it was written for, where it was allowed."""
    import torch

    from steelyard.traces.steps import read_trace
    from steelyard.workloads.traces._kernels import TritonKernels

    torch._C._cuda_getCurrentRawStream = lambda index: 0
    kernels = TritonKernels.of(resources, (f"triton:{name}",), "cuda:0")
    node = next(node for node in read_trace(path).outermost if node.name == name)
    found = kernels.find(node)
    given = [torch.randn(64, 64), torch.empty(64), *(item.value for item in node.inputs[2:-1])]
    assert len(found.schema.arguments) == len(given)
    found.call(*given)
    return float((torch.relu(given[0]).mul(3).sum(dim=1) - given[1]).abs().max())


def main(folder: Path) -> None:
    """What was offered, what was loaded for that, and how far the answers of a replayed kernel are off."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")
    from triton.runtime.driver import driver

    driver.set_active(NoDevice())
    import torch._inductor.config

    torch._inductor.config.cpu_backend, torch._inductor.config.compile_threads = "triton", 1
    path = folder / "step.json"
    record(path)
    from steelyard.traces.steps import read_trace
    from steelyard.workloads.traces import replay

    facts = replay.prepared(str(path), {}, "cpu").facts()
    offered = {row["operator"]: row["count"] for row in facts["skipped"] if "--allow triton:" in row["why"]}
    loaded = [name for name in sys.modules if name.startswith("steelyard_trace_kernel")]
    trace = read_trace(path)
    kernels = [node for node in trace.nodes if node.is_triton]
    assert trace.resources is not None
    beside = [(trace.resources / node.kernel_file).is_file() for node in kernels]
    (name,) = {node.name for node in kernels if "relu" in node.name}
    told = {
        "offered": offered, "others": [row for row in facts["skipped"] if row["operator"] not in offered], "loaded": loaded,
        "sources": all(beside), "apart": played(path, name, trace.resources),
        "operators": [node.name for node in trace.outermost],
    }  # fmt: skip
    (folder / "told.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
