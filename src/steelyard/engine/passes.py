"""Extra passes besides timing, on the worker's side: memory, profile, compile time, and calls for an external profiler.

Each builds the case again and adds nothing to its record's time; the process that ran one runs nothing afterwards.
`python -m steelyard.engine.passes JOB_FILE` is the program that an external profiler starts.
"""

from __future__ import annotations

import builtins
import contextlib
import json
import resource
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from steelyard import clocks, registry
from steelyard.backends._memory import library_memory, own_memory
from steelyard.engine import messages
from steelyard.engine.bench import Bench, prepare_bench
from steelyard.engine.messages import Found, Pass, Phase
from steelyard.engine.worker import Send, load
from steelyard.errors import PASS, SteelyardError, Unsupported
from steelyard.measuring.busy import figures as busy_figures
from steelyard.measuring.busy import work_in
from steelyard.measuring.fixed import NoLabels, take
from steelyard.measuring.marks import OURS
from steelyard.model.experiment import GraphForm
from steelyard.model.protocol import Fixed
from steelyard.model.record import Figure
from steelyard.model.task import Task, clean_up, observed
from steelyard.model.units import plain as quantity

WARM_CALLS, PROFILED_CALLS = 3, 5
WATCHED_CALLS = {"ncu": 1, "nsys": 10}
"""Calls for each external profiler; one for ncu, which runs each kernel of a call many times by itself."""
TOP_KERNELS = 5
GRAPH_FILES = {"hlo": "hlo.txt", "stablehlo": "mlir", "text": "ir.txt", "optimized": "txt"}


def perform(job: Pass, loaded: registry.Loaded, send: Send) -> Found:
    """Do one pass and return its findings; the caller reports exceptions."""
    send(Phase(f"{job.name} pass"))
    bench = prepare_bench(job.case, loaded, job.settings)
    bench.backend.reset()
    key, work = PASSES[job.name]
    try:
        return work(bench, Path(job.scratch))
    except Unsupported as error:
        return Found(facts={key: _note(error)})


def memory(bench: Bench, scratch: Path) -> Found:
    """Measure the peak of a second call above the memory before the build: inputs, weights and call, without the build's own copies."""
    if bench.case.backend == "command":
        raise Unsupported("a command is a process of its own; its peak is read from the kernel while it is timed")
    be, facts, files = bench.open(), {}, []
    history: Any = nullcontext()
    if bench.settings.memory_snapshot:
        try:
            history = be.snapshot(scratch / "memory-snapshot.pickle")
            files.append(("memory", str(scratch / "memory-snapshot.pickle")))
        except Unsupported as error:
            facts["memory_snapshot"] = _note(error)
    be.release_memory()
    be.start_memory()
    with history:
        with growth(lambda: own_memory("RssAnon")) as imported:
            task = bench.build(be)[1]
            figures = {"model_bytes": Figure(be.model_bytes(task), "B", "lower", n=1)} if task.parameters else {}
            ready = bench.ready(be, task)
            call(ready)
            be.sync()
        be.release_memory()
        be.start_memory()
        call(ready)
        be.sync()
        peaks = be.peak_memory()
    if "peak_memory" in peaks:
        peaks["peak_memory"] = max(0.0, peaks["peak_memory"] - imported())
    clean_up([task])
    figures |= {name: Figure(value, "B", "lower", n=1) for name, value in peaks.items()}
    return Found(figures, facts, tuple(files))


def profile(bench: Bench, scratch: Path) -> Found:
    """Record a trace of a few calls and a table of what ran in them; with a fixed protocol, of each repeat.

    If stacks are requested, they are recorded instead, in files of their own. On a GPU also the kernels' time per call, and the
    share of a call's time, measured without the profiler, in which no kernel runs.
    """
    be, task = bench.build()
    ready, fixed = bench.ready(be, task), bench.settings.fixed
    rounds, calls = (fixed.repeats, fixed.calls) if fixed else (1, PROFILED_CALLS)
    files: list[tuple[str, str]] = []
    top: list[Any] = []
    try:
        for _ in range(WARM_CALLS):
            call(ready)
        be.sync()
        if bench.settings.profile == "stacks":
            stacks = be.profile_stacks(lambda: call(ready), scratch)
            return Found(files=tuple(zip(("flame", "trace", "kernels"), map(str, stacks), strict=True)))
        wall = _wall(be, ready, calls)
        for number in range(rounds):
            mark = f"-{number}" if rounds > 1 else ""
            trace, table, text = scratch / f"trace{mark}.json.gz", scratch / f"kernels{mark}.json", scratch / f"kernels{mark}.txt"
            rows = be.profile(lambda: call(ready), trace, calls)
            table.write_text(json.dumps(rows, indent=1), encoding="utf-8")
            text.write_text(kernel_table(rows), encoding="utf-8")
            files += [("trace", str(trace)), ("kernels", str(table)), ("kernels", str(text))]
            top = top or rows[:TOP_KERNELS]
        seen = work_in(trace) if be.device == "cuda" else None
    finally:
        clean_up([task])
    return Found(busy_figures(seen, calls, wall) if seen else {}, {"top_kernels": top}, tuple(files))


def _wall(be: Any, ready: Task, calls: int) -> float:
    """Return the mean seconds of several calls in a row, from the first to the end of the device's work."""
    began = clocks.perf_counter()
    for _ in range(calls):
        call(ready)
    be.sync()
    return (clocks.perf_counter() - began) / calls


def runtime_profile(bench: Bench, scratch: Path) -> Found:
    """Profile each repeat with the framework's own runtime, which writes the files."""
    be, task = bench.build()
    ready, fixed = bench.ready(be, task), bench.settings.fixed
    rounds, calls = (fixed.repeats, fixed.calls) if fixed else (1, PROFILED_CALLS)
    files: list[tuple[str, str]] = []
    try:
        for number in range(rounds):
            folder = scratch / f"runtime-{number}"
            with be.runtime_profile(folder):
                for _ in range(calls):
                    call(ready)
                be.sync()
            for place, path in enumerate(path for path in sorted(folder.rglob("*")) if path.is_file()):
                files.append(("runtime", str(path.rename(scratch / f"runtime-{number}-{place}-{path.name}"))))
    finally:
        clean_up([task])
    return Found(facts={"runtime_profile": {"files": len(files)}}, files=tuple(files))


def outputs(bench: Bench, scratch: Path) -> Found:
    """Save the output of a call in a file of the framework's format; with gradients and weights if they are requested."""
    be, task = bench.build()
    fixed, path = bench.settings.fixed, scratch / "output.pt"
    try:
        made = be.answer(task, bench.case.mode, fixed.repeats * fixed.calls if fixed else 1)
        state = isinstance(made, dict) and made.keys() >= {"prediction", "loss"}
        whole = bench.settings.save_output == "state"
        pair = (made["prediction"], made["loss"]) if state else (made, None)
        be.save((made if state else {"prediction": made}) if whole else pair, path)
    finally:
        clean_up([task])
    return Found(facts={"save_output": bench.settings.save_output}, files=(("output", str(path)),))


def answer(bench: Bench, scratch: Path) -> Found:
    """Make one call as verification does: the workload itself keeps the answer, for other cases to be compared with."""
    be, task = bench.build()
    try:
        observed(bench.ready(be, task))
        be.sync()
    finally:
        clean_up([task])
    return Found()


def graphs(bench: Bench, scratch: Path) -> Found:
    """Dump the graphs of one call, the first of its process: a later one may not use the compiler."""
    form: GraphForm = bench.settings.dump_ir or "text"
    be, task = bench.build()
    try:
        ready = bench.ready(be, task)
        texts = be.graph_texts(lambda: call(ready), form)
    finally:
        clean_up([task])
    files = [scratch / f"graph-{name}.{GRAPH_FILES.get(form, 'txt')}" for name in texts]
    for path, text in zip(files, texts.values(), strict=True):
        path.write_text(text, encoding="utf-8")
    return Found(facts={"dump_ir": {"form": form, "graphs": len(texts)}}, files=tuple(("graph", str(path)) for path in files))


def kernel_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows as a table to read, in their order, which is longest total first."""
    lines = [f"{'where':<6}{'calls':>8}{'total':>12}{'mean':>12}  name"]
    for row in rows:
        lines.append(f"{row['where']:<6}{row['calls']:>8}{quantity(row['total'], 's'):>12}{quantity(row['mean'], 's'):>12}  {row['name']}")
    return "\n".join(lines) + "\n"


def compile_once(bench: Bench, scratch: Path) -> Found:
    """Measure compiling in a separate process: seconds from a built task to the end of its first call, without imports, or the phases
    that the backend distinguishes; also the size of the code, the memory used meanwhile, and the peak of a second call."""
    if not bench.compiles and not registry.about_backend(bench.case.backend).compiles:
        raise Unsupported(f"{bench.case.variant} of backend {bench.case.backend} compiles nothing")
    be = bench.open()
    be.import_compiler()
    with contextlib.suppress(Unsupported):
        be.start_memory()
    while_built, before = memory_grown(), processor_time()
    task = bench.base(be)[1]
    phases, compiled, busy = be.compile_phases(), while_built(), processor_time() - before
    steps = list(bench.chain)
    while steps and not steps[0][0].fresh:
        variant, options = steps.pop(0)
        task = variant(task, be, options)
    be.sync()
    grown = memory_grown()
    with growth(clocks.perf_counter) as imported:
        start, processor = clocks.perf_counter(), processor_time()
        for variant, options in steps:
            task = variant(task, be, options)
        ready = bench.ready(be, task)
        call(ready)
        be.sync()
        seconds, processor = clocks.perf_counter() - start - imported(), processor_time() - processor
    counts = be.cache_counts()
    sizes = {"compile_memory": compiled if phases else grown(), **be.program_sizes(), **_peak_of_call(be, ready)}
    clean_up([task])
    times = {f"{name}_time": spent for name, spent in phases.items()} or {"compile_time": seconds}
    times["compile_cpu_time"] = busy if phases else processor
    figures = {name: Figure(spent, "s", "lower", n=1) for name, spent in times.items()}
    figures |= {name: Figure(size, "B", "lower", n=1) for name, size in sizes.items() if size > 0}
    return Found(figures, {"counts": counts, "cpu_time": times["compile_cpu_time"], "imports": imported()})


def processor_time() -> float:
    """Return CPU seconds of this process and of children it has waited for; finer than os.times, which counts hundredths of a second."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return clocks.process_time() + children.ru_utime + children.ru_stime


def memory_grown() -> Callable[[], float]:
    """Return a function for this process's peak growth since now, or the size of a compiler it started; 0 if the kernel reports none."""
    try:
        before = own_memory("VmRSS") - library_memory()
        Path("/proc/self/clear_refs").write_text("5")
    except (Unsupported, OSError):
        return lambda: 0.0

    def grown() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024.0
        return max(own_memory("VmHWM") - library_memory() - before, children)

    return grown


def _peak_of_call(be: Any, ready: Task) -> dict[str, float]:
    """Return the peak of one more call, above what the process held before it built anything."""
    try:
        be.release_memory()
        be.start_memory()
        call(ready)
        be.sync()
        return {name: value for name, value in be.peak_memory().items() if name == "peak_memory"}
    except Unsupported:
        return {}


def watched(bench: Bench, calls: int) -> None:
    """Make calls inside the marks that an external profiler looks for, after warm-up calls."""
    be, task = bench.build()
    labels = be.labels()
    if isinstance(labels, NoLabels):
        raise Unsupported(f"backend {be.name} on {be.device} has no marks for an external profiler", do="use torch on cuda")
    try:
        ready = bench.ready(be, task)
        with ready.scope() if ready.scope else nullcontext():
            take(ready, Fixed(WARM_CALLS, calls, ranges=OURS), be.stopwatch(), labels, bench.case.workload, position=0)
    finally:
        clean_up([task])


def call(task: Task) -> Any:
    """Make one call, also of a task that times itself."""
    return task() if task.fn is not None or task.measure is None else task.measure()


@contextmanager
def growth(gauge: Callable[[], float]) -> Iterator[Callable[[], float]]:
    """Yield a function for how much a gauge grew during imports inside, which are not part of the task's cost."""
    original, total, inside = builtins.__import__, 0.0, False

    def watched(*args: Any, **kwargs: Any) -> Any:
        nonlocal total, inside
        if inside:
            return original(*args, **kwargs)
        inside = True
        before = gauge()
        try:
            return original(*args, **kwargs)
        finally:
            total += gauge() - before
            inside = False

    builtins.__import__ = watched
    try:
        yield lambda: total
    finally:
        builtins.__import__ = original


def _note(error: SteelyardError) -> str:
    return f"unsupported: {'; '.join(part for part in (error.what, error.why, error.do) if part)}"


PASSES: Mapping[str, tuple[str, Callable[[Bench, Path], Found]]] = {
    "memory": ("peak_memory", memory), "profile": ("profile", profile), "compile": ("compile_time", compile_once),
    "graphs": ("dump_ir", graphs), "runtime": ("runtime_profile", runtime_profile), "outputs": ("save_output", outputs),
    "answer": ("answer", answer),
}  # fmt: skip
"""By job name: the setting that requests the pass, and the function that does it."""


def main(argv: Sequence[str]) -> int:
    """`python -m steelyard.engine.passes JOB_FILE`"""
    job = messages.decode(Path(argv[1]).read_text(encoding="utf-8"))
    assert isinstance(job, Pass)
    try:
        watched(prepare_bench(job.case, load(job.sources, {}), job.settings), WATCHED_CALLS[job.name])
    except SteelyardError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return error.exit_code
    return PASS


if __name__ == "__main__":
    sys.exit(main(sys.argv))
