"""Variants that take Python out of the loop: CUDA graphs, exported programs and programs compiled ahead of time."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from steelyard.errors import NotApplied, Unsupported
from steelyard.model.define import variant
from steelyard.model.task import Backward, Task
from steelyard.variants.wrap import body_of

REHEARSALS = 3


@variant("cuda_graph", backends=["torch"], fresh=True)
def cuda_graph(task: Task, be: Any) -> Task:
    """The call captured as one CUDA graph and replayed: the same kernels without the cost of launching each."""
    import torch

    if be.device != "cuda":
        raise Unsupported("CUDA graphs need an NVIDIA GPU")
    from steelyard.backends._device import capture

    body_of(task)
    if task.back:
        _rehearse_back(task, task.back)
    held: list[Any] = []

    def once() -> None:
        held[:] = [task()]

    graph = capture(torch.cuda, once)
    back = task.back and _captured_back(task.back, held[0], graph)

    def replay(inputs: Task = task) -> Any:
        """Replay the graph; `inputs` keeps its inputs alive, because the graph refers to them by address."""
        graph.replay()
        return held[0]

    return replace(task, fn=replay, args=(), kwargs={}, back=back, effective={**task.effective, "cuda_graph": True})


def _rehearse_back(task: Task, back: Backward) -> None:
    """Run the backward pass on a side stream first, as capturing requires."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(REHEARSALS):
            if (step := back.step(task())) is not None:
                step()
                back.clear()
    torch.cuda.current_stream().wait_stream(side)


def _captured_back(back: Backward, out: Any, ahead: Any) -> Backward | None:
    """Return the backward pass as a second graph in the memory pool of the first, which holds the tensors it needs."""
    import torch

    if back.again is None or back.step(out) is None:
        return None
    step, graph = back.again(out), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=ahead.pool()):
        step()
    return Backward(lambda out: graph.replay, pending=back.pending)


@variant("export", backends=["torch"], fresh=True, sticky=True)
def export(task: Task, be: Any) -> Task:
    """The program that torch.export records, run by its own module."""
    module, effective = _exported(task)
    return replace(task, fn=module.module(), effective=effective)


@variant("aot_inductor", backends=["torch"], fresh=True, sticky=True)
def aot_inductor(task: Task, be: Any) -> Task:
    """torch.export, then compiled ahead of time by AOTInductor into a package that is loaded and called."""
    import torch

    if be.device == "cpu" and not shutil.which(os.environ.get("CXX", "g++")):
        raise Unsupported("AOTInductor needs a C++ compiler on the CPU and none is on PATH", do="apt-get install g++")
    program, effective = _exported(task)
    folder = tempfile.mkdtemp(prefix="steelyard-aoti-")
    try:
        package = torch._inductor.aoti_compile_and_package(program, package_path=str(Path(folder) / "program.pt2"))
        loaded = torch._inductor.aoti_load_package(package)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    before = task.cleanup

    def cleanup() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        if before:
            before()

    return replace(task, fn=loaded, cleanup=cleanup, effective={**effective, "aot_inductor": True})


def _exported(task: Task) -> tuple[Any, dict[str, Any]]:
    import torch

    fn = body_of(task)
    module = fn if isinstance(fn, torch.nn.Module) else _as_module(fn)
    with torch.no_grad():
        program = torch.export.export(module, task.args, dict(task.kwargs))
    nodes = sum(node.op == "call_function" for node in program.graph.nodes)
    if not nodes:
        raise NotApplied("the exported program has no operation, so there is nothing to run in another way")
    return program, {**task.effective, "exported_nodes": nodes}


def _as_module(fn: Any) -> Any:
    """Wrap a plain function in a module, because export takes modules only."""
    import torch

    class Function(torch.nn.Module):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return fn(*args, **kwargs)

    return Function()
