"""Extra passes besides timing, on the conductor's side: which passes a case gets, in which process, and what they add to its record."""

from __future__ import annotations

import functools
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steelyard import registry
from steelyard.analyze.programs import BASE_PROGRAM, PROGRAM, count_program
from steelyard.engine import envs, profilers
from steelyard.engine.arms import ArmJob, Reply, arms_of
from steelyard.engine.keeping import ResultKeeper
from steelyard.engine.messages import Found, Pass, encode
from steelyard.engine.plan import Job, Plan
from steelyard.errors import SteelyardError
from steelyard.model.record import Figure, Record

if TYPE_CHECKING:
    from steelyard.engine.crew import Crew

LARGEST_FILE = 512 << 20
SAVED = "graphs"
COLD, WARM = "compile_time_cold", "compile_time_warm"
CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH")


Work = Callable[["Crew", Job, Plan, Path], Reply]


def complete(record: Record, job: Job, plan: Plan, crew: Crew, writer: ResultKeeper) -> Record:
    """Run the requested passes one after another and add their results to the record. Compile times that a comparison has measured are not
    measured again, and those of a base are left to its comparisons.
    """
    if record.status not in ("ok", "wrong"):
        return record
    for name, work in wanted(plan):
        if name == "compile_time" and (COLD in record.metrics or job.case in plan.bases):
            continue
        with tempfile.TemporaryDirectory(prefix="steelyard-", ignore_cleanup_errors=True) as folder:
            reply = work(crew, job, plan, Path(folder))
            record = _extended(record, name, reply, Path(folder), writer)
    return record


def wanted(plan: Plan) -> Iterator[tuple[str, Work]]:
    """Yield the requested passes of a plan by the setting that requests each; those that need the timing worker come first."""
    for name, work in WORKS.items():
        if getattr(plan.settings, name) or (name == "peak_memory" and plan.settings.memory_snapshot):
            yield name, work


def profile(crew: Crew, job: Job, plan: Plan, scratch: Path) -> Reply:
    """Profile the case in the worker that timed it. That worker times nothing afterwards, since a tracer leaves its hooks behind."""
    return crew.ask(job, plan, "profile", scratch, alone=False)


def runtime_profile(crew: Crew, job: Job, plan: Plan, scratch: Path) -> Reply:
    """Profile with the framework's runtime, in a separate process: two profilers cannot share one."""
    return crew.ask(replace(job, fresh=True), plan, "runtime", scratch, alone=True)


def outputs(crew: Crew, job: Job, plan: Plan, scratch: Path) -> Reply:
    """Save the case's outputs, in any worker that can build it."""
    return crew.ask(job, plan, "outputs", scratch, alone=False)


def memory(crew: Crew, job: Job, plan: Plan, scratch: Path) -> Reply:
    """Measure peak memory, in a process that has run nothing else."""
    fresh = job.compiles or job.case.device != "cpu" or not registry.about_backend(job.case.backend).forks
    return crew.ask(replace(job, fresh=fresh), plan, "memory", scratch, alone=True)


def graphs(crew: Crew, job: Job, plan: Plan, scratch: Path) -> Reply:
    """Dump graphs in a separate process, with dumps switched on before it starts; compiled graphs of both arms if there are two, to show
    how they differ."""
    both = job.vs is not None and plan.settings.dump_ir == "optimized"
    arms = arms_of(job, plan) if both else (ArmJob("", job, plan.sources_of(job)),)
    found = Found()
    for arm in reversed(arms):
        folder = scratch / ("head" if arm is arms[-1] else "base")
        folder.mkdir()
        reply = _graphs(crew, arm, plan, folder)
        if reply.trouble:
            return replace(reply, found=found, trouble=f"{arm.who}: {reply.trouble}" if arm.who else reply.trouble)
        found = _laid_over(found, reply.found, base=arm is not arms[-1])
    return Reply(found)


def _graphs(crew: Crew, arm: ArmJob, plan: Plan, scratch: Path) -> Reply:
    """Return the graphs of one arm, with counts of the operations in them."""
    assert plan.settings.dump_ir is not None
    saving = envs.saving_graphs(arm.job.case.backend, plan.settings.dump_ir, scratch / SAVED)
    place = replace(arm.job.place, flags=tuple((dict(arm.job.place.flags) | saving).items()))
    reply = crew.ask(replace(arm.job, place=place, fresh=True), plan, "graphs", scratch, alone=True, sources=arm.sources)
    texts = {Path(path).name: _contents(path, scratch).decode(errors="replace") for _, path in reply.found.files}
    counted = {name: counts.plain() for name, text in texts.items() if (counts := count_program(text)).operations}
    facts = {**reply.found.facts, **({PROGRAM: counted} if counted else {})}
    return replace(reply, found=replace(reply.found, facts=facts))


def _laid_over(head: Found, found: Found, *, base: bool) -> Found:
    """Return the findings of the head, with those of the base added under separate names."""
    if not base:
        return found
    files = [(f"base {kind}", str(Path(path).rename(Path(path).with_name(f"base-{Path(path).name}")))) for kind, path in found.files]
    facts = {BASE_PROGRAM: found.facts[PROGRAM]} if PROGRAM in found.facts else {"base_dump_ir": found.facts.get("dump_ir")}
    return replace(head, facts={**head.facts, **facts}, files=(*head.files, *files))


def under_tool(name: str, crew: Crew, job: Job, plan: Plan, scratch: Path) -> Reply:
    """Profile the case in a process that ncu or nsys starts, with the device to itself."""
    if job.case.device != "cuda":
        return Reply(Found(facts={name: f"unsupported: {name} profiles NVIDIA GPUs only"}))
    crew.dismiss()
    crew.see_off()
    file = scratch / "job.json"
    file.write_text(encode(Pass(plan.sources_of(job), plan.settings, job.case, name)), encoding="utf-8")
    program = [job.place.python, "-P", "-m", "steelyard.engine.passes", str(file)]
    try:
        return Reply(profilers.LOOKS[name](program, job.place.environment(crew.mark), scratch, plan.settings.timeout))
    except (SteelyardError, OSError) as error:
        return Reply(trouble=f"failed: {' '.join(str(error).split())}")


def compile_time(crew: Crew, job: Job, plan: Plan, scratch: Path) -> Reply:
    """Measure first calls in fresh interpreters: each with its own empty cache, then each again with the cache that this left."""
    if not job.compiles:
        return Reply()
    cold: list[Reply] = []
    warm: list[Reply] = []
    for number in range(plan.settings.compile_time or 0):
        folder = scratch / f"cache-{number}"
        for replies in (cold, warm):
            replies.append(crew.ask(with_cache(job, folder), plan, "compile", scratch, alone=True))
            if replies[-1].trouble or "compile_time" not in replies[-1].found.figures:
                return Reply(Found(facts=replies[-1].found.facts), replies[-1].trouble)
    figures = {COLD: _spread(cold, "compile_time"), WARM: _spread(warm, "compile_time")}
    sizes = [name for name, figure in cold[0].found.figures.items() if figure.unit == "B" and name != "peak_memory"]
    figures |= {name: _spread(cold, name) for name in sizes if all(name in reply.found.figures for reply in cold)}
    return Reply(Found(figures, {"compile_time": compile_facts(cold, warm, job)}))


def with_cache(job: Job, folder: Path) -> Job:
    """Return the job for a fresh interpreter with a private cache of compiled code."""
    private = tuple((name, str(folder / name.lower())) for name in CACHES)
    return replace(job, place=replace(job.place, flags=(*job.place.flags, *private)), fresh=True)


def _spread(replies: Sequence[Reply], name: str) -> Figure:
    """Return the median and interval of a figure over processes, each of which is one sample."""
    import numpy as np

    from steelyard.measuring.stats import median_interval, time_figure

    found = time_figure(median_interval(np.asarray([reply.found.figures[name].value for reply in replies])))
    return replace(found, unit=replies[0].found.figures[name].unit)


def compile_facts(cold: Sequence[Reply], warm: Sequence[Reply], job: Job) -> dict[str, Any]:
    """Return the compiler's cache counters and other costs, with a doubt if a cache was not cold or not warm."""
    facts: dict[str, Any] = {"processes": len(cold), "interval": "min to max"}
    for name, replies in (("cold", cold), ("warm", warm)):
        counts = [reply.found.facts.get("counts", {}) for reply in replies]
        facts[f"{name}_cache"] = {key: [int(count.get(key, 0)) for count in counts] for key in ("hit", "miss")}
        facts[f"{name}_cpu_time"] = statistics.median(float(reply.found.facts.get("cpu_time", 0.0)) for reply in replies)
    facts["compile_threads"] = job.place.environment("").get("TORCHINDUCTOR_COMPILE_THREADS", "")
    doubts = list(_doubts(facts["cold_cache"], facts["warm_cache"]))
    return facts | ({"doubt": "; ".join(doubts)} if doubts else {})


def _doubts(cold: Mapping[str, list[int]], warm: Mapping[str, list[int]]) -> Iterator[str]:
    if not any([*cold["miss"], *cold["hit"], *warm["miss"], *warm["hit"]]):
        yield "the compiler counted no use of its cache, so cold and warm cannot be distinguished"
        return
    if any(cold["hit"]) or not all(cold["miss"]):
        yield "the first process hit its cache or compiled nothing, so the cold figure is not cold"
    if any(warm["miss"]) or not all(warm["hit"]):
        yield "the second process missed its cache, so the warm figure is not warm"


def _extended(record: Record, name: str, reply: Reply, scratch: Path, writer: ResultKeeper) -> Record:
    effective = {**record.effective, **reply.found.facts}
    if reply.trouble:
        effective[name] = reply.trouble
    kept = list(record.attachments)
    for kind, path in reply.found.files:
        try:
            kept.append(writer.attach(kind, f"{len(writer.done) + 1}-{Path(path).name}", _contents(path, scratch)))
        except (OSError, ValueError) as error:
            effective[name] = f"failed: a file was not kept: {error}"
    return replace(record, metrics={**record.metrics, **reply.found.figures}, effective=effective, attachments=kept)


def _contents(name: str, scratch: Path) -> bytes:
    """Read a file that a worker made in its folder; ValueError if it is elsewhere or too large."""
    path = Path(name)
    if path.is_symlink() or not path.is_file() or not path.resolve().is_relative_to(scratch.resolve()):
        raise ValueError(f"{path.name} is not a file in the folder given for it")
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(fd, "rb") as file:
        data = file.read(LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        raise ValueError(f"{path.name} is larger than {LARGEST_FILE >> 20} MiB")
    return data


WORKS: Mapping[str, Work] = {
    "profile": profile, "runtime_profile": runtime_profile, "save_output": outputs, "peak_memory": memory, "dump_ir": graphs,
    **{name: functools.partial(under_tool, name) for name in profilers.LOOKS}, "compile_time": compile_time,
}  # fmt: skip
