"""Comparing compilations: both arms compile in fresh processes that take turns, so that drift of the machine affects both alike.

Each process gives one sample of every quantity: the time to compile, the size of the code, memory. The order of each pair of processes
is random, and the first process of each arm is not counted: it reads libraries from the disk.
"""

from __future__ import annotations

import random
import struct
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from steelyard.engine.after import COLD, with_cache
from steelyard.engine.arms import ArmJob, Reply, arms_of
from steelyard.engine.messages import PairAnswer
from steelyard.engine.plan import Job, Plan
from steelyard.model.pair import Pair, PairPart
from steelyard.model.record import FEWEST, Arrays, Figure, Record

if TYPE_CHECKING:
    from steelyard.engine.crew import Crew

TIME = "compile_time"


def with_compiles(answer: PairAnswer, job: Job, plan: Plan, crew: Crew) -> PairAnswer:
    """Add compile measurements of both arms to a comparison if they are requested; if they fail, add a note with the reason."""
    count = plan.settings.compile_time
    if not count or not job.compiles or job.vs is None:
        return answer
    with tempfile.TemporaryDirectory(prefix="steelyard-", ignore_cleanup_errors=True) as folder:
        replies = take_turns(arms_of(job, plan), plan, crew, count, Path(folder))
    if isinstance(replies, str):
        return replace(answer, pair=replace(answer.pair, notes=[*answer.pair.notes, f"compile times were not compared: {replies}"]))
    return weighed(answer, replies)


def take_turns(arms: Sequence[ArmJob], plan: Plan, crew: Crew, count: int, folder: Path) -> str | tuple[list[Reply], list[Reply]]:
    """Return the measurements of all processes of both arms, those of a pair at the same index; or why there is nothing to compare."""
    rng, found = random.SystemRandom(), (list[Reply](), list[Reply]())
    for number in range(count + 1):
        crew.tell("weighing compilers", number / (count + 1))
        for arm in rng.sample((0, 1), 2):
            scratch = folder / f"{number:04}-{arm}"
            scratch.mkdir()
            side = arms[arm]
            reply = crew.ask(with_cache(side.job, scratch), plan, "compile", scratch, alone=True, sources=side.sources)
            if reply.trouble or TIME not in reply.found.figures:
                return f"{side.who}: {reply.trouble or reply.found.facts.get(TIME) or 'it reported no compile time'}"
            if number:
                found[arm].append(reply)
    return found


def weighed(answer: PairAnswer, replies: tuple[Sequence[Reply], Sequence[Reply]]) -> PairAnswer:
    """Return the comparison with a part for each quantity that all processes reported, and its values as arrays."""
    from steelyard.measuring.compiles import weigh_values

    parts: dict[str, PairPart] = {}
    arrays: Arrays = {}
    first = replies[0][0].found.figures
    for name, figure in first.items():
        if all(name in reply.found.figures for side in replies for reply in side):
            base, head = ([reply.found.figures[name].value for reply in side] for side in replies)
            if part := weigh_values(base, head, figure.unit):
                parts[name] = part
                arrays |= {f"{name}_{arm}": (figure.unit, "<f8", _packed(values)) for arm, values in (("base", base), ("head", head))}
    count = len(replies[0])
    notes = [f"both arms were compiled in {count} fresh processes each, in turns" + (_too_few(count) if count < FEWEST else "")]
    hits = [sum(int(reply.found.facts.get("counts", {}).get("hit", 0)) for reply in side) for side in replies]
    notes += ["a compiler hit a cache that should have been empty, so its time is not cold"] if any(hits) else []
    pair = replace(answer.pair, parts={**answer.pair.parts, **parts}, notes=[*answer.pair.notes, *notes])
    return replace(answer, pair=pair, arrays={**answer.arrays, **arrays})


def _too_few(count: int) -> str:
    return f": fewer than {FEWEST} give no interval, so there is no verdict on compile times (use --compile-time={FEWEST})"


def _packed(values: Sequence[float]) -> bytes:
    return struct.pack(f"<{len(values)}d", *values)


def with_figures(record: Record, pairs: Sequence[Pair]) -> Record:
    """Return the record with the compile measurements of its comparison, so that they are not repeated."""
    found: Mapping[str, PairPart] = next((pair.parts for pair in pairs if pair.head.id == record.id and TIME in pair.parts), {})
    own: dict[str, Figure] = {name: part.head for name, part in found.items() if part.head}
    if TIME not in own:
        return record
    told = {COLD if name == TIME else name: figure for name, figure in own.items() if name != "compile_cpu_time"}
    facts = {"processes": own[TIME].n, "cold_cpu_time": own["compile_cpu_time"].value if "compile_cpu_time" in own else None}
    return replace(record, metrics={**told, **record.metrics}, effective={**record.effective, TIME: facts})
